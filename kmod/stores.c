// SPDX-License-Identifier: GPL-2.0
/*
 * The instructions that zero memory, without policy, chunks or fences.
 *
 * They use general registers only, so none needs kernel_fpu_begin().
 * Non-temporal SSE and AVX stores would need it, and gain nothing: on Zen 4 they
 * beat MOVNTI by a third or more in user space, but CLZERO is as fast, and on
 * Cascade Lake they do not beat MOVNTI.
 *
 * Except for bulkmem_store_pages(), all take a line-aligned address and whole
 * lines.
 */
#include <linux/minmax.h>
#include <asm/cpufeature.h>
#include <asm/page.h>

#include "bulkmem.h"

/* The kernel's own method for this processor. */
void bulkmem_store_pages(void *kaddr, size_t length, size_t ahead)
{
	void *end = kaddr + length;

	for (; kaddr < end; kaddr += PAGE_SIZE)
		clear_page(kaddr);
}

void bulkmem_store_rep_stosb(void *kaddr, size_t length, size_t ahead)
{
	asm volatile("rep stosb"
		     : "+D" (kaddr), "+c" (length)
		     : "a" (0)
		     : "memory");
}

void bulkmem_store_rep_stosq(void *kaddr, size_t length, size_t ahead)
{
	length /= sizeof(u64);
	asm volatile("rep stosq"
		     : "+D" (kaddr), "+c" (length)
		     : "a" (0UL)
		     : "memory");
}

/* Zeroes a line by eight stores, advances, and loops. */
#define LINE_BY(store)						\
	"	" store " %[zero], 0x00(%[addr])\n"		\
	"	" store " %[zero], 0x08(%[addr])\n"		\
	"	" store " %[zero], 0x10(%[addr])\n"		\
	"	" store " %[zero], 0x18(%[addr])\n"		\
	"	" store " %[zero], 0x20(%[addr])\n"		\
	"	" store " %[zero], 0x28(%[addr])\n"		\
	"	" store " %[zero], 0x30(%[addr])\n"		\
	"	" store " %[zero], 0x38(%[addr])\n"		\
	"	addq %[line], %[addr]\n"			\
	"	subq %[line], %[left]\n"			\
	"	jnz 1b\n"

/* Ordinary stores, with each line prefetched for ownership. */
void bulkmem_store_prefetchw(void *kaddr, size_t length, size_t ahead)
{
	/* No prefetch past the end: it would take lines away from other processors. */
	size_t plain = min(length, ahead);
	size_t fetched = length - plain;

	if (fetched)
		asm volatile("1:	prefetchw (%[addr], %[ahead])\n"
			     LINE_BY("movq")
			     : [addr] "+&r" (kaddr), [left] "+&r" (fetched)
			     : [ahead] "r" (ahead), [zero] "r" (0UL),
			       [line] "i" (BULKMEM_LINE)
			     : "memory", "cc");
	if (plain)
		asm volatile("1:\n"
			     LINE_BY("movq")
			     : [addr] "+&r" (kaddr), [left] "+&r" (plain)
			     : [zero] "r" (0UL), [line] "i" (BULKMEM_LINE)
			     : "memory", "cc");
}

void bulkmem_store_movnti(void __incoherent *kaddr, size_t length)
{
	if (!length)
		return;
	asm volatile("1:\n"
		     LINE_BY("movnti")
		     : [addr] "+&r" (kaddr), [left] "+&r" (length)
		     : [zero] "r" (0UL), [line] "i" (BULKMEM_LINE)
		     : "memory", "cc");
}

/* CLZERO zeroes the line that contains %rax; method.c checks that it is BULKMEM_LINE long. */
void bulkmem_store_clzero(void __incoherent *kaddr, size_t length)
{
	if (!length)
		return;
	asm volatile("1:	clzero\n"
		     "	addq %[line], %%rax\n"
		     "	subq %[line], %[left]\n"
		     "	jnz 1b\n"
		     : "+&a" (kaddr), [left] "+&r" (length)
		     : [line] "i" (BULKMEM_LINE)
		     : "memory", "cc");
}
