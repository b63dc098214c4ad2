// SPDX-License-Identifier: GPL-2.0
/*
 * The instructions that copy memory, without policy, chunks or fences. They use
 * general registers only.
 *
 * A load that raises a machine check, because the memory is broken, ends the copy
 * and not the kernel: its address is in the exception table as
 * EX_TYPE_DEFAULT_MCE_SAFE (not on 5.10, which does not survive it anyway). The
 * kernel's handler looks there, also in the tables of modules, before it decides
 * that it cannot recover.
 */
#include <linux/minmax.h>
#include <linux/uaccess.h>

#include "bulkmem.h"
#include "compat.h"
#include "copy.h"

/*
 * The kernel's own machine-check-safe copy, which is one REP MOVSB for the whole
 * length on the processors that copy.c allows it on.
 */
size_t bulkmem_store_rep_movsb(void *to, const void *from, size_t length)
{
	return copy_mc_to_kernel(to, from, length);
}

/*
 * Copies a line by eight loads, each with a label, and eight stores, advances, and
 * loops to 10. After a fault in a load, 9 is next, with the bytes from this line on
 * in %[left]. Loads are of 8 bytes and aligned, so none crosses a line.
 */
#define COPY_LINE						\
	"1:	movq 0x00(%[from]), %[a]\n"			\
	"2:	movq 0x08(%[from]), %[b]\n"			\
	"3:	movq 0x10(%[from]), %[c]\n"			\
	"4:	movq 0x18(%[from]), %[d]\n"			\
	"	movnti %[a], 0x00(%[to])\n"			\
	"	movnti %[b], 0x08(%[to])\n"			\
	"	movnti %[c], 0x10(%[to])\n"			\
	"	movnti %[d], 0x18(%[to])\n"			\
	"5:	movq 0x20(%[from]), %[a]\n"			\
	"6:	movq 0x28(%[from]), %[b]\n"			\
	"7:	movq 0x30(%[from]), %[c]\n"			\
	"8:	movq 0x38(%[from]), %[d]\n"			\
	"	movnti %[a], 0x20(%[to])\n"			\
	"	movnti %[b], 0x28(%[to])\n"			\
	"	movnti %[c], 0x30(%[to])\n"			\
	"	movnti %[d], 0x38(%[to])\n"			\
	"	addq %[line], %[from]\n"			\
	"	addq %[line], %[to]\n"				\
	"	subq %[line], %[left]\n"			\
	"	jnz 10b\n"					\
	"9:\n"							\
	SAFE_LOAD(1) SAFE_LOAD(2) SAFE_LOAD(3) SAFE_LOAD(4)	\
	SAFE_LOAD(5) SAFE_LOAD(6) SAFE_LOAD(7) SAFE_LOAD(8)

#define SAFE_LOAD(label)	BULKMEM_EXTABLE_SAFE(label##b, 9b)

size_t bulkmem_store_copy_movnti(void __incoherent *to, const void *from, size_t length,
				 size_t ahead)
{
	/* No prefetch past the end, which is memory of others. */
	size_t plain = min(length, ahead);
	size_t fetched = length - plain;
	u64 a, b, c, d;

	if (fetched) {
		asm volatile("10:	prefetchnta (%[from], %[ahead])\n"
			     COPY_LINE
			     : [to] "+&r" (to), [from] "+&r" (from), [left] "+&r" (fetched),
			       [a] "=&r" (a), [b] "=&r" (b), [c] "=&r" (c), [d] "=&r" (d)
			     : [ahead] "r" (ahead), [line] "i" (BULKMEM_LINE)
			     : "memory", "cc");
		if (fetched)
			return fetched + plain;
	}
	if (plain)
		asm volatile("10:\n"
			     COPY_LINE
			     : [to] "+&r" (to), [from] "+&r" (from), [left] "+&r" (plain),
			       [a] "=&r" (a), [b] "=&r" (b), [c] "=&r" (c), [d] "=&r" (d)
			     : [line] "i" (BULKMEM_LINE)
			     : "memory", "cc");
	return plain;
}
