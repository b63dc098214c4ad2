// SPDX-License-Identifier: GPL-2.0
/*
 * The memory of one mmap() of /dev/bulkmem: charged, allocated, cleared, given
 * its cache attribute, and all of that undone.
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

/* How much is done between two looks at signals and the scheduler. */
#define CLEAR_STEP	(64UL << 20)
/* One call of set_pages_array_*() flushes all TLBs; this many pages share it. */
#define ATTRIBUTE_STEP	2048UL

/* Charging: as pinned memory is charged elsewhere, to the user, not the process. */

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
 * Kernels without special PMDs (before 6.12) let a fast get_user_pages() pin a
 * huge page. It then outlives the block: write-back again by that time, and
 * freed with the pin.
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
 * Small pages come in stretches as long as can be had without effort: clearing
 * runs better over them, and fewer large pages of the direct map are broken.
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
	/* RETRY_MAYFAIL: fail rather than have the OOM killer make room. */
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

/* Clearing: before anybody can see the pages, while they are write-back. */

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
 * Huge pages one by one as stretches of addresses, which leaves the direct map
 * its large pages; small ones as arrays.
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

/* Pages that cannot become write-back again are nobody's any more. */
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
			return -ENOMEM;	/* a large page of the direct map to break */
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

/* All of it. */

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

	/* The allocator would give a broken page's neighbours on, and the page. */
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

	/* Asking for what cannot be there would only push everybody else out. */
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
