/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A pointer type for weakly ordered stores.
 *
 * Stores by MOVNTI and CLZERO are not ordered with other stores: before a
 * fence, another processor may see the page mapped but not yet zeroed. So
 * functions that use them take an __incoherent pointer. incoherent_begin()
 * creates one, and only incoherent_end(), which fences, converts it back.
 * sparse (`make check`) reports a pointer of the wrong type as a different
 * address space, and a missing incoherent_end() as a context imbalance. The
 * compiler sees ordinary pointers.
 */
#ifndef _BULKMEM_INCOHERENT_H
#define _BULKMEM_INCOHERENT_H

#include <linux/compiler.h>
#include <asm/barrier.h>

#ifdef __CHECKER__
# define __incoherent	__attribute__((noderef, address_space(__incoherent)))
#else
# define __incoherent
#endif

/**
 * incoherent_begin() - start to write memory with weakly ordered stores
 * @kaddr: kernel address of the memory
 *
 * The task may sleep and move to another processor before incoherent_end(): a
 * context switch executes locked instructions, which drain the write-combining
 * buffers.
 *
 * Return: the same address, for functions that use weakly ordered stores
 */
static inline void __incoherent *incoherent_begin(void *kaddr)
	__acquires(incoherent)
{
	__acquire(incoherent);
	return (void __force __incoherent *)kaddr;
}

/**
 * incoherent_end() - make all weakly ordered stores visible
 * @addr: the address that incoherent_begin() returned
 *
 * Return: the address as ordinary, coherent memory
 */
static inline void *incoherent_end(void __incoherent *addr)
	__releases(incoherent)
{
	/* wmb() is always SFENCE on x86-64; smp_wmb() is not. */
	wmb();
	__release(incoherent);
	return (void __force *)addr;
}

/**
 * incoherent_unfenced() - write memory with weakly ordered stores for a caller that fences
 * @kaddr: kernel address of the memory
 *
 * Only for functions whose contract says that their callers fence, such as the
 * replacement of __memcpy_flushcache().
 *
 * Return: the same address, for functions that use weakly ordered stores
 */
static inline void __incoherent *incoherent_unfenced(void *kaddr)
{
	return (void __force __incoherent *)kaddr;
}

#endif /* _BULKMEM_INCOHERENT_H */
