// SPDX-License-Identifier: GPL-2.0
/*
 * The memory of one mmap() of /dev/bulkmem: accounting, allocation, clearing,
 * cache attributes, and freeing.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include <asm/set_memory.h>

#include "block.h"

/* The most bytes cleared between two checks for signals. */
#define CLEAR_STEP	(64UL << 20)
/* Pages in one call of set_pages_array_*(), each of which flushes all TLBs. */
#define ATTRIBUTE_STEP	2048UL

/* Accounting: per user, as for other pinned memory, not per process. */

static int charge(struct block *block)
{
	long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	long pages = block->length >> PAGE_SHIFT;
	struct user_struct *user = current_user();
	long charged;

	if (capable(CAP_IPC_LOCK))
		return 0;

	charged = atomic_long_read(&user->locked_vm);
	do {
		if (pages > limit || charged > limit - pages)
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &charged, charged + pages));
	block->user = get_uid(user);
	return 0;
}

static void uncharge(struct block *block)
{
	if (!block->user)
		return;
	atomic_long_sub(block->length >> PAGE_SHIFT, &block->user->locked_vm);
	free_uid(block->user);
}

/* Allocation. */

static struct page *allocate(const struct bulkmem_memory *memory, gfp_t gfp, unsigned int order)
{
	if (memory->node == NUMA_NO_NODE)
		return alloc_pages(gfp, order);
	return alloc_pages_node(memory->node, gfp | __GFP_THISNODE, order);
}

/*
 * Before 6.12, which introduced special PMDs, a fast get_user_pages() can pin a
 * huge page. The page then outlives the block: it becomes write-back with the
 * block's end, and is freed with the pin.
 */
static int allocate_huge(struct block *block, gfp_t gfp)
{
	struct page *page = allocate(&block->memory, gfp | __GFP_COMP, HUGE_ORDER);

	if (!page)
		return -ENOMEM;
	block->pages[block->allocated++] = page;
	return 0;
}

/*
 * Allocates as many contiguous small pages as is possible without reclaim:
 * clearing is faster on long ranges, and fewer large pages of the direct map
 * are split.
 */
static int allocate_small(struct block *block, gfp_t gfp, unsigned int *order)
{
	unsigned long left = block->count - block->allocated;
	struct page *page;
	unsigned long i;

	while (*order && 1UL << *order > left)
		--*order;
	if (*order)
		gfp = (gfp | __GFP_NORETRY) & ~(__GFP_RETRY_MAYFAIL | __GFP_DIRECT_RECLAIM);

	page = allocate(&block->memory, gfp, *order);
	if (!page && *order) {
		--*order;
		return 0;
	}
	if (!page)
		return -ENOMEM;
	split_page(page, *order);
	for (i = 0; i < 1UL << *order; i++)
		block->pages[block->allocated++] = page + i;
	return 0;
}

static int allocate_all(struct block *block)
{
	/* RETRY_MAYFAIL: fail instead of invoking the OOM killer. */
	gfp_t gfp = GFP_USER | __GFP_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	unsigned int order = HUGE_ORDER;
	int err;

	while (block->allocated < block->count) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (block_is_huge(block))
			err = allocate_huge(block, gfp);
		else
			err = allocate_small(block, gfp, &order);
		if (err)
			return err;
		cond_resched();
	}
	return 0;
}

/* Clearing: before the pages are mapped, while they are write-back. */

static int clear_all(struct block *block)
{
	unsigned long size = 1UL << block->memory.page_shift;
	unsigned long first, n;

	for (first = 0; first < block->count; first += n) {
		struct page *page = block->pages[first];

		for (n = 1; first + n < block->count && n * size < CLEAR_STEP; n++)
			if (page_to_pfn(block->pages[first + n]) !=
			    page_to_pfn(page) + (n * size >> PAGE_SHIFT))
				break;
		if (fatal_signal_pending(current))
			return -EINTR;
		bulkmem_clear(page_address(page), n * size, block->length);
		cond_resched();
	}
	return 0;
}

/* Attributes. */

static unsigned long attribute_step(struct block *block, unsigned long first,
				    unsigned long end)
{
	return block_is_huge(block) ? 1 : min(ATTRIBUTE_STEP, end - first);
}

/*
 * Changes huge pages one by one by address, which keeps the large pages of the
 * direct map, and small pages as arrays.
 */
static int set_attribute(struct block *block, unsigned long first, unsigned long n)
{
	bool wc = block->memory.attribute == BULKMEM_WC;
	struct page **pages = &block->pages[first];

	if (block_is_huge(block)) {
		unsigned long kaddr = (unsigned long)page_address(*pages);

		return wc ? set_memory_wc(kaddr, HUGE_PAGES) : set_memory_uc(kaddr, HUGE_PAGES);
	}
	return wc ? set_pages_array_wc(pages, n) : set_pages_array_uc(pages, n);
}

/* Pages that cannot become write-back again must never be freed. */
static void restore_attribute(struct block *block, unsigned long first, unsigned long n)
{
	struct page **pages = &block->pages[first];
	int err;

	if (block_is_huge(block))
		err = set_memory_wb((unsigned long)page_address(*pages), HUGE_PAGES);
	else
		err = set_pages_array_wb(pages, n);
	if (!err)
		return;
	pr_err_once("memory did not become write-back again (error %d) and stays out of use until the next boot\n",
		    err);
	memset(pages, 0, n * sizeof(*pages));
}

static int set_all_attributes(struct block *block)
{
	unsigned long n;

	if (block->memory.attribute == BULKMEM_WB)
		return 0;
	for (; block->typed < block->count; block->typed += n) {
		n = attribute_step(block, block->typed, block->count);
		if (fatal_signal_pending(current))
			return -EINTR;
		if (set_attribute(block, block->typed, n)) {
			restore_attribute(block, block->typed, n);
			return -ENOMEM;	/* to split a large page of the direct map */
		}
		cond_resched();
	}
	return 0;
}

static void restore_all_attributes(struct block *block)
{
	unsigned long first, n;

	for (first = 0; first < block->typed; first += n) {
		n = attribute_step(block, first, block->typed);
		restore_attribute(block, first, n);
		cond_resched();
	}
}

/* Blocks. */

static bool is_poisoned(struct page *page, unsigned long n)
{
	while (n--)
		if (PageHWPoison(page + n))
			return true;
	return false;
}

static void free_page_of(struct block *block, struct page *page)
{
	unsigned int order = block_is_huge(block) ? HUGE_ORDER : 0;

	/* The allocator would reuse a huge page that has a broken part. */
	if (!page || is_poisoned(page, 1UL << order))
		return;
	__free_pages(page, order);
}

void bulkmem_block_free(struct block *block)
{
	unsigned long i;

	restore_all_attributes(block);
	for (i = 0; i < block->allocated; i++) {
		free_page_of(block, block->pages[i]);
		if (!(i % ATTRIBUTE_STEP))
			cond_resched();
	}
	uncharge(block);
	kvfree(block);
}

struct block *bulkmem_block_make(const struct bulkmem_memory *memory, unsigned long length)
{
	unsigned long count = length >> memory->page_shift;
	struct block *block;
	int err;

	/* An attempt that cannot succeed would only evict the memory of others. */
	if (length >> PAGE_SHIFT > si_mem_available())
		return ERR_PTR(-ENOMEM);

	block = kvmalloc(struct_size(block, pages, count),
			 GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (!block)
		return ERR_PTR(-ENOMEM);
	*block = (struct block) {
		.mappings = REFCOUNT_INIT(1),
		.memory = *memory,
		.length = length,
		.count = count,
	};

	err = charge(block) ?: allocate_all(block) ?: clear_all(block) ?: set_all_attributes(block);
	if (err) {
		bulkmem_block_free(block);
		return ERR_PTR(err);
	}
	return block;
}
