/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interfaces of unit.c and block.c for memory.c.
 *
 * A unit is 2 MiB of contiguous memory with a cache attribute. A block is the
 * memory of one mmap(): units that are allocated when they are first needed.
 */
#ifndef _BULKMEM_BLOCK_H
#define _BULKMEM_BLOCK_H

#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/refcount.h>

#include "bulkmem.h"

#define HUGE_ORDER	(PMD_SHIFT - PAGE_SHIFT)
#define HUGE_PAGES	(PMD_SIZE / PAGE_SIZE)

/**
 * struct unit - 2 MiB of memory
 * @page: its first page, or NULL
 * @of_pool: it belongs to the pool of its attribute
 */
struct unit {
	struct page *page;
	bool of_pool;
};

/* unit.c */

/*
 * Provides a zeroed unit with the attribute and node of @memory, in the direct
 * map too. @extent is the number of bytes that it is a part of. Returns 1 if
 * memory was retyped for it, 0 if not, -ENOMEM or -EINTR.
 */
int bulkmem_unit_get(const struct bulkmem_memory *memory, u64 extent, struct unit *unit);

/* Only after nothing but the direct map can reach the unit. */
void bulkmem_unit_put(u32 attribute, const struct unit *unit);

/* Counts @units against the rate at which memory may be retyped, or returns false. */
bool bulkmem_unit_allow(unsigned long units);
/* Undoes a part of bulkmem_unit_allow(), for units that were not retyped. */
void bulkmem_unit_refund(unsigned long units);

/* True if one of @n pages has a hardware error. */
bool bulkmem_is_poisoned(struct page *page, unsigned long n);

extern const struct attribute_group *bulkmem_unit_groups[];

/* block.c */

/**
 * struct block - the memory of one mmap()
 * @references: mappings of any part of it, and calls that use it
 * @lock: serializes allocation
 * @memory: its attribute, page size and node
 * @cred: of the user whose RLIMIT_MEMLOCK it counts against, or NULL
 * @length: in bytes
 * @rated: its units count against the rate of bulkmem_unit_allow()
 * @count: number of units
 * @units: allocated when they are first needed
 */
struct block {
	refcount_t references;
	struct mutex lock;		/* held while a unit is allocated */
	struct bulkmem_memory memory;
	const struct cred *cred;
	unsigned long length;
	bool rated;
	unsigned long count;
	struct unit units[];
};

static inline bool memory_is_huge(const struct bulkmem_memory *memory)
{
	return memory->page_shift == PMD_SHIFT;
}

static inline bool block_is_huge(const struct block *block)
{
	return memory_is_huge(&block->memory);
}

/*
 * Creates a block of @length bytes, without memory. -ENOMEM beyond
 * RLIMIT_MEMLOCK or what the machine has, -EAGAIN beyond the rate.
 */
struct block *bulkmem_block_make(const struct bulkmem_memory *memory, unsigned long length,
				 bool rated);

/* Allocates unit @index if necessary. Returns 0, -ENOMEM or -EINTR. */
int bulkmem_block_fill(struct block *block, unsigned long index);

/* Drops a reference; the last one frees the memory. May sleep. */
void bulkmem_block_put(struct block *block);

/* @index: in pages of 4 KiB. Only after bulkmem_block_fill() of its unit. */
static inline struct page *block_page(struct block *block, unsigned long index)
{
	return block->units[index >> HUGE_ORDER].page + (index & (HUGE_PAGES - 1));
}

#endif /* _BULKMEM_BLOCK_H */
