/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Weakly ordered stores, marked in the type.
 *
 * MOVNTI and CLZERO write around the order that other stores keep: until a
 * fence, another processor may see the page mapped but not yet zeroed. So
 * functions that write in this way take an __incoherent pointer; there is one
 * way to get one, and one way back, which is the fence. sparse (`make check`)
 * reports a pointer of the wrong kind as a different address space, and a
 * function that begins and never ends as a context imbalance. To the compiler
 * none of it is there.
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
 * The task may sleep and move to another processor before incoherent_end():
 * switching tasks executes locked instructions, which drain the buffers that
 * weakly ordered stores wait in.
 *
 * Return: the same address, for functions that write incoherently
 */
static inline void __incoherent *incoherent_begin(void *kaddr)
	__acquires(incoherent)
{
	__acquire(incoherent);
	return (void __force __incoherent *)kaddr;
}

/**
 * incoherent_end() - make all weakly ordered stores visible
 * @addr: what incoherent_begin() returned
 *
 * Return: the address as ordinary, coherent memory
 */
static inline void *incoherent_end(void __incoherent *addr)
	__releases(incoherent)
{
	/* On x86-64 always SFENCE, unlike smp_wmb(). */
	wmb();
	__release(incoherent);
	return (void __force *)addr;
}

#endif /* _BULKMEM_INCOHERENT_H */
