/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface of block.c for memory.c: the memory of one mmap(), which lives
 * as long as a mapping of any part of it in any process.
 */
#ifndef _BULKMEM_BLOCK_H
#define _BULKMEM_BLOCK_H

#include <linux/mm.h>
#include <linux/refcount.h>

#include "bulkmem.h"

#define HUGE_ORDER	(PMD_SHIFT - PAGE_SHIFT)
#define HUGE_PAGES	(PMD_SIZE / PAGE_SIZE)

/**
 * struct block - memory of one page size, node and attribute
 * @mappings: number of mappings of any part of it
 * @memory: its attribute, page size and node
 * @user: the user whose RLIMIT_MEMLOCK it counts against, or NULL
 * @length: in bytes
 * @count: number of pages of the size in @memory
 * @allocated: number of pages allocated so far
 * @typed: number of pages whose attribute was changed, from the first
 * @pages: the pages; NULL for one that must never be freed
 */
struct block {
	refcount_t mappings;
	struct bulkmem_memory memory;
	struct user_struct *user;
	unsigned long length;
	unsigned long count;
	unsigned long allocated;
	unsigned long typed;
	struct page *pages[];
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
 * Allocates a block of @length bytes, a multiple of the page size. It is zeroed
 * and has the requested attribute, in the direct map too. -ENOMEM without
 * memory or beyond RLIMIT_MEMLOCK, -EINTR if the caller was killed.
 */
struct block *bulkmem_block_make(const struct bulkmem_memory *memory, unsigned long length);

/* Only after nothing but the direct map can reach the pages. May sleep. */
void bulkmem_block_free(struct block *block);

/* @index: in pages of 4 KiB, whatever the page size of the block. */
static inline struct page *block_page(struct block *block, unsigned long index)
{
	if (block_is_huge(block))
		return block->pages[index >> HUGE_ORDER] + (index & (HUGE_PAGES - 1));
	return block->pages[index];
}

#endif /* _BULKMEM_BLOCK_H */
