/* SPDX-License-Identifier: GPL-2.0 */
/*
 * block.c, for memory.c: the memory of one mmap(). It lives as long as a
 * mapping of any part of it in any process.
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
 * @mappings: that show any of it
 * @memory: what it is
 * @user: who is charged for it; NULL: nobody
 * @length: in bytes
 * @count: of pages, of the size that @memory says
 * @allocated: of these, from the first
 * @typed: of these, no longer write-back
 * @pages: each; NULL: can never be given back
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
 * @length: a multiple of the page size. Zeroed, and of the attribute asked, in
 * the direct map as well. -ENOMEM without memory or beyond RLIMIT_MEMLOCK,
 * -EINTR when the caller was killed; then nothing is left of it.
 */
struct block *bulkmem_block_make(const struct bulkmem_memory *memory, unsigned long length);

/* Once nothing but the direct map can reach the pages. May sleep. */
void bulkmem_block_free(struct block *block);

/* @index: in pages of 4 KiB, whatever the block's are. */
static inline struct page *block_page(struct block *block, unsigned long index)
{
	if (block_is_huge(block))
		return block->pages[index >> HUGE_ORDER] + (index & (HUGE_PAGES - 1));
	return block->pages[index];
}

#endif /* _BULKMEM_BLOCK_H */
