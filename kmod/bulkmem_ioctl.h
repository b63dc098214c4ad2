/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The interfaces of /dev/bulkmem (hints) and /dev/bulkmem-memory (memory).
 *
 * Each structure starts with its size, so that later versions can append
 * members: a shorter structure than the first version's is refused with EINVAL,
 * an unknown flag with EINVAL, and a longer structure than the module's with
 * E2BIG unless the rest is 0.
 */
#ifndef _BULKMEM_IOCTL_H
#define _BULKMEM_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Increases when the meaning of an existing request changes. */
#define BULKMEM_ABI	2

/* The first number of all requests, which the kernel's list of ioctls has free. */
#define BULKMEM_IOC	0xc4

/* Both devices: reads BULKMEM_ABI. */
#define BULKMEM_IOC_ABI		_IOR(BULKMEM_IOC, 0, __u32)

/*
 * /dev/bulkmem: a range of the caller's address space that it is about to fault
 * in as a whole. Huge pages of page faults inside it are cleared as parts of
 * @length bytes instead of separately. A hint ends when the file is closed for
 * the last time, when the process ends, or by BULKMEM_IOC_UNHINT.
 */
struct bulkmem_hint {
	__u32 size;	/* of this structure */
	__u32 flags;	/* 0 */
	__u64 addr;	/* page-aligned */
	__u64 length;	/* bytes, page-aligned, not 0 */
};

#define BULKMEM_IOC_HINT	_IO(BULKMEM_IOC, 1)	/* struct bulkmem_hint */
/* /dev/bulkmem: ends all hints of this file. */
#define BULKMEM_IOC_UNHINT	_IO(BULKMEM_IOC, 2)

/*
 * /dev/bulkmem: from now on, all huge pages of 2 MiB and more that the calling
 * process faults in are cleared as parts of large extents, also after exec. The
 * processes that it starts from now on inherit this. It ends with each of them, and
 * does not need the file to stay open. No effect on a process that has it already.
 * ENOSPC beyond the user's limit.
 */
struct bulkmem_hint_process {
	__u32 size;	/* of this structure */
	__u32 flags;	/* 0 */
};

#define BULKMEM_IOC_HINT_PROCESS	_IO(BULKMEM_IOC, 5)	/* struct bulkmem_hint_process */

#define BULKMEM_CGROUP_REMOVE	1

/*
 * /dev/bulkmem: from now on, huge pages of 2 MiB and more that the processes in a
 * cgroup, or below it, fault in are cleared as parts of large extents. It ends
 * with the cgroup, or by this request with BULKMEM_CGROUP_REMOVE. Needs
 * CAP_SYS_ADMIN. EBADF if @fd is not the folder of a cgroup of version 2, ENOSPC
 * beyond 64 cgroups, ESRCH if the one to withdraw was not declared.
 */
struct bulkmem_hint_cgroup {
	__u32 size;	/* of this structure */
	__u32 flags;	/* 0 or BULKMEM_CGROUP_REMOVE */
	__s32 fd;	/* an open folder */
	__u32 reserved;	/* 0 */
};

#define BULKMEM_IOC_HINT_CGROUP	_IO(BULKMEM_IOC, 6)	/* struct bulkmem_hint_cgroup */

enum bulkmem_attribute {
	BULKMEM_WB = 0,	/* write-back: ordinary memory */
	BULKMEM_WC = 1,	/* write-combining */
	BULKMEM_UC = 2,	/* uncached (UC-) */
	BULKMEM_WT = 3,	/* write-through; EOPNOTSUPP if the kernel does not support it */
};

/* /dev/bulkmem-memory: the memory of the next mmap() of this file. */
struct bulkmem_memory {
	__u32 size;		/* of this structure */
	__u32 flags;		/* 0 */
	__u32 attribute;	/* enum bulkmem_attribute */
	__u32 page_shift;	/* 12 or 21 */
	__s32 node;		/* NUMA node; -1: any */
	__u32 reserved;		/* 0 */
};

#define BULKMEM_IOC_MEMORY	_IO(BULKMEM_IOC, 3)	/* struct bulkmem_memory */

/*
 * /dev/bulkmem-memory: allocates and maps the memory of a range of the device's
 * mappings now, instead of at the first access to each 2 MiB. On an error, a
 * part of the range may be populated.
 */
struct bulkmem_populate {
	__u32 size;	/* of this structure */
	__u32 flags;	/* 0 */
	__u64 addr;	/* page-aligned */
	__u64 length;	/* bytes, page-aligned, not 0 */
};

#define BULKMEM_IOC_POPULATE	_IO(BULKMEM_IOC, 4)	/* struct bulkmem_populate */

#endif /* _BULKMEM_IOCTL_H */
