/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The interface of /dev/bulkmem.
 *
 * Each open file has a set of bulk hints and a description of the memory that
 * its mmap() calls allocate.
 */
#ifndef _BULKMEM_IOCTL_H
#define _BULKMEM_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Increases when the meaning of a structure below changes. */
#define BULKMEM_ABI	1

/*
 * A range of the caller's address space that it is about to fault in as a
 * whole. Huge pages of page faults inside it are cleared as parts of @length
 * bytes instead of separately. A hint ends when the file is closed for the last
 * time, when the process ends, or by BULKMEM_IOC_UNHINT.
 */
struct bulkmem_hint {
	__u64 addr;	/* page-aligned */
	__u64 length;	/* bytes, page-aligned, not 0 */
};

enum bulkmem_attribute {
	BULKMEM_WB = 0,	/* write-back: ordinary memory */
	BULKMEM_WC = 1,	/* write-combining */
	BULKMEM_UC = 2,	/* uncached (UC-) */
	BULKMEM_WT = 3,	/* write-through; EOPNOTSUPP if the kernel does not support it */
};

/* The memory that the next mmap() of this file allocates. */
struct bulkmem_memory {
	__u32 attribute;	/* enum bulkmem_attribute */
	__u32 page_shift;	/* 12 or 21 */
	__s32 node;		/* NUMA node; -1: any */
	__u32 flags;		/* 0 */
};

#define BULKMEM_IOC_ABI		_IOR(0xb7, 0, __u32)
#define BULKMEM_IOC_HINT	_IOW(0xb7, 1, struct bulkmem_hint)
#define BULKMEM_IOC_UNHINT	_IO(0xb7, 2)
#define BULKMEM_IOC_MEMORY	_IOW(0xb7, 3, struct bulkmem_memory)

#endif /* _BULKMEM_IOCTL_H */
