// SPDX-License-Identifier: GPL-2.0
/*
 * The instructions that copy past the cache, or out of it, without policy and
 * without fences. They use general registers only, so that they can be used in any
 * context.
 *
 * An exception in a load is as fatal as in the kernel's function: its callers
 * expect no error.
 */
#include "bulkmem.h"
#include "flushcache.h"

void bulkmem_flushcache_store_half(void __incoherent *to, const void *from)
{
	u32 a;

	asm volatile("movl (%[from]), %[a]\n"
		     "	movnti %[a], (%[to])\n"
		     : [a] "=&r" (a)
		     : [to] "r" (to), [from] "r" (from)
		     : "memory");
}

void bulkmem_flushcache_store_words(void __incoherent *to, const void *from, size_t length)
{
	u64 a;

	asm volatile("1:	movq (%[from]), %[a]\n"
		     "	movnti %[a], (%[to])\n"
		     "	addq $8, %[from]\n"
		     "	addq $8, %[to]\n"
		     "	subq $8, %[left]\n"
		     "	jnz 1b\n"
		     : [to] "+&r" (to), [from] "+&r" (from), [left] "+&r" (length), [a] "=&r" (a)
		     :
		     : "memory", "cc");
}

/* Four loads and four stores. */
#define HALF_LINE(store, first, second, third, fourth)		\
	"	movq " first "(%[from]), %[a]\n"		\
	"	movq " second "(%[from]), %[b]\n"		\
	"	movq " third "(%[from]), %[c]\n"		\
	"	movq " fourth "(%[from]), %[d]\n"		\
	"	" store " %[a], " first "(%[to])\n"		\
	"	" store " %[b], " second "(%[to])\n"		\
	"	" store " %[c], " third "(%[to])\n"		\
	"	" store " %[d], " fourth "(%[to])\n"

/* Advances by @unit, and loops. */
#define ADVANCE							\
	"	addq %[unit], %[from]\n"			\
	"	addq %[unit], %[to]\n"				\
	"	subq %[unit], %[left]\n"			\
	"	jnz 1b\n"

/* Copies @length bytes from @from to @to in steps of @size bytes. */
#define LOOP(step, size) do {							\
	u64 a, b, c, d;								\
										\
	asm volatile("1:\n"							\
		     step							\
		     ADVANCE							\
		     : [to] "+&r" (to), [from] "+&r" (from), [left] "+&r" (length), \
		       [a] "=&r" (a), [b] "=&r" (b), [c] "=&r" (c), [d] "=&r" (d) \
		     : [unit] "i" (size)					\
		     : "memory", "cc");						\
} while (0)

#define LINE_BY(store)						\
	"\n"							\
	HALF_LINE(store, "0x00", "0x08", "0x10", "0x18")	\
	HALF_LINE(store, "0x20", "0x28", "0x30", "0x38")

void bulkmem_flushcache_store_stock(void __incoherent *to, const void *from, size_t length)
{
	LOOP(HALF_LINE("movnti", "0x00", "0x08", "0x10", "0x18"), BULKMEM_LINE / 2);
}

void bulkmem_flushcache_store_movnti(void __incoherent *to, const void *from, size_t length)
{
	LOOP(LINE_BY("movnti"), BULKMEM_LINE);
}

/* The processor writes a line back after the stores to it that precede, without a fence. */
void bulkmem_flushcache_store_clwb(void *to, const void *from, size_t length)
{
	LOOP(LINE_BY("movq") "	clwb (%[to])\n", BULKMEM_LINE);
}

void bulkmem_flushcache_store_clflushopt(void *to, const void *from, size_t length)
{
	LOOP(LINE_BY("movq") "	clflushopt (%[to])\n", BULKMEM_LINE);
}

void bulkmem_flushcache_clwb(void *in_line)
{
	asm volatile("clwb (%0)" : : "r" (in_line) : "memory");
}

void bulkmem_flushcache_clflushopt(void *in_line)
{
	asm volatile("clflushopt (%0)" : : "r" (in_line) : "memory");
}
