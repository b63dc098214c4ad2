/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the module say to each other; one section a file.
 */
#ifndef _BULKMEM_H
#define _BULKMEM_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/types.h>

#include "bulkmem_ioctl.h"

/* clear.c: an extent by the policy, and the function that replaces the kernel's. */

/*
 * Zeroes @length bytes of directly mapped, write-back memory at @kaddr (both
 * page-aligned) by the method that the policy has for an extent of @extent
 * bytes; fenced on return. May sleep.
 */
void bulkmem_clear(void *kaddr, size_t length, u64 extent);

/* hint.c: which faults are part of something larger. */

struct bulkmem_file;

long bulkmem_hint_add(struct bulkmem_file *file, const struct bulkmem_hint *hint);
void bulkmem_hint_drop_all(struct bulkmem_file *file);
/* The length of the hinted stretch of current's that holds @addr, or 0. */
u64 bulkmem_hint_extent(unsigned long addr);

/* device.c: /dev/bulkmem. memory.c: what its mmap() gives. */

struct bulkmem_file {
	struct bulkmem_memory memory;
	struct mutex lock;		/* protects all that follows */
	struct list_head hints;
};

int bulkmem_device_register(void);
void bulkmem_device_unregister(void);

long bulkmem_memory_describe(struct bulkmem_file *file, const struct bulkmem_memory *memory);
int bulkmem_memory_mmap(struct bulkmem_file *file, struct vm_area_struct *vma);
unsigned long bulkmem_memory_area(struct file *file, unsigned long addr, unsigned long length,
				  unsigned long pgoff, unsigned long flags);

#endif /* _BULKMEM_H */
