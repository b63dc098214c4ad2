// SPDX-License-Identifier: GPL-2.0
/*
 * Clears ranges by the policy's method, in chunks, with one fence after the
 * weakly ordered stores. The pages around the one that is about to be touched
 * come last, through the cache.
 */
#include <linux/highmem.h>
#include <linux/kasan-checks.h>
#include <linux/minmax.h>
#include <linux/timekeeping.h>

#include "bulkmem.h"
#include "compat.h"

#ifndef CONFIG_SPARSEMEM_VMEMMAP
# error "huge pages must be contiguous in the memory map and the direct map"
#endif

/* The number of hot pages on each side of the touched one. */
#define HOT_PAGES	2UL

/* Returns the time since *@clock in ns, and sets *@clock to now. */
static u64 bulkmem_lap(u64 *clock)
{
	u64 start = *clock;

	*clock = ktime_get_ns();
	return *clock - start;
}

static void bulkmem_clear_cached(const struct bulkmem_plan *plan, void *kaddr, size_t length)
{
	while (length) {
		size_t now = min(length, plan->chunk);

		plan->method->cached(kaddr, now, plan->ahead);
		kaddr += now;
		length -= now;
		bulkmem_reschedule(plan->method, now);
	}
}

static void bulkmem_clear_weak(const struct bulkmem_plan *plan, void __incoherent *kaddr,
			       size_t length)
{
	while (length) {
		size_t now = min(length, plan->chunk);

		plan->method->weak(kaddr, now);
		kaddr += now;
		length -= now;
		bulkmem_reschedule(plan->method, now);
	}
}

void bulkmem_clear_around(const struct bulkmem_plan *plan, void *kaddr, unsigned long pages,
			  unsigned long hot, struct bulkmem_parts *parts)
{
	unsigned long first = pages, end = pages, i;
	u64 clock = ktime_get_ns();
	size_t head, rest, tail;

	if (hot != BULKMEM_NO_HOT) {
		first = hot - min(hot, HOT_PAGES);
		end = min(hot + HOT_PAGES + 1, pages);
	}
	head = first << PAGE_SHIFT;
	rest = end << PAGE_SHIFT;
	tail = (pages - end) << PAGE_SHIFT;
	*parts = (struct bulkmem_parts) {
		.head.bytes = head,
		.tail.bytes = tail,
		.hot.bytes = rest - head,
	};

	/* KASAN does not see the instructions. */
	kasan_check_write(kaddr, pages << PAGE_SHIFT);
	kmsan_unpoison_memory(kaddr, pages << PAGE_SHIFT);
	if (plan->method->weak) {
		void __incoherent *addr = incoherent_begin(kaddr);

		bulkmem_clear_weak(plan, addr, head);
		if (head && tail)
			parts->head.ns = bulkmem_lap(&clock);
		bulkmem_clear_weak(plan, addr + rest, tail);
		kaddr = incoherent_end(addr);
	} else {
		bulkmem_clear_cached(plan, kaddr, head);
		if (head && tail)
			parts->head.ns = bulkmem_lap(&clock);
		bulkmem_clear_cached(plan, kaddr + rest, tail);
	}
	if (tail)
		parts->tail.ns = bulkmem_lap(&clock);
	else if (head)
		parts->head.ns = bulkmem_lap(&clock);

	if (first == end)
		return;
	/* Approach the touched page from both sides, as the kernel does. */
	for (i = first; i < hot; i++)
		clear_page(kaddr + (i << PAGE_SHIFT));
	for (i = end - 1; i > hot; i--)
		clear_page(kaddr + (i << PAGE_SHIFT));
	clear_page(kaddr + (hot << PAGE_SHIFT));
	bulkmem_stats_stretch(&bulkmem_methods[BULKMEM_STOCK], parts->hot.bytes);
	parts->hot.ns = bulkmem_lap(&clock);
}

static void bulkmem_count(const char *function, const struct bulkmem_method *method,
			  const struct bulkmem_part *part, bool hinted)
{
	if (part->bytes)
		bulkmem_stats_count(function, method, part->bytes, part->ns, hinted);
}

void bulkmem_clear(void *kaddr, size_t length, u64 extent)
{
	bool below;
	struct bulkmem_plan plan = bulkmem_policy_plan(extent, &below);
	struct bulkmem_parts parts;

	might_sleep();
	bulkmem_clear_around(&plan, kaddr, length >> PAGE_SHIFT, BULKMEM_NO_HOT, &parts);
	bulkmem_count(BULKMEM_DEVICE, plan.method, &parts.head, false);
}

#ifdef BULKMEM_STOCK_RANGES
/* Clears the pages from number @first to before number @end. */
static void bulkmem_clear_range(struct page *page, unsigned long base, unsigned long first,
				unsigned long end)
{
	unsigned long unit = preempt_model_preemptible() ? end : PROCESS_PAGES_NON_PREEMPT_BATCH;

	while (first < end) {
		unsigned long now = min(unit, end - first);

		cond_resched();
		clear_user_highpages(page + first, base + (first << PAGE_SHIFT), now);
		bulkmem_stats_stretch(&bulkmem_methods[BULKMEM_STOCK], now << PAGE_SHIFT);
		first += now;
	}
}

/*
 * Clears with the kernel's function and in its order: the pages after the
 * touched ones, those before them, and the touched ones.
 */
static void bulkmem_clear_stock(struct page *page, unsigned long base, unsigned long pages,
				unsigned long hot)
{
	unsigned long first = hot - min(hot, HOT_PAGES);
	unsigned long end = min(hot + HOT_PAGES + 1, pages);

	bulkmem_clear_range(page, base, end, pages);
	bulkmem_clear_range(page, base, 0, first);
	bulkmem_clear_range(page, base, first, end);
}
#else
static void bulkmem_clear_one(struct page *page, unsigned long base, unsigned long i)
{
	cond_resched();
	clear_user_highpage(page + i, base + (i << PAGE_SHIFT));
	bulkmem_stats_stretch(&bulkmem_methods[BULKMEM_STOCK], PAGE_SIZE);
}

/*
 * Clears page by page, with the kernel's function and in its order: gigantic
 * pages from their start; others from the end that is farther from the touched
 * page, then alternately from both ends.
 */
static void bulkmem_clear_stock(struct page *page, unsigned long base, unsigned long pages,
				unsigned long hot)
{
	unsigned long low = 0, high = pages;

	if (pages > MAX_ORDER_NR_PAGES) {
		while (low < pages)
			bulkmem_clear_one(page, base, low++);
		return;
	}
	if (2 * hot <= pages) {
		while (high > 2 * hot)
			bulkmem_clear_one(page, base, --high);
	} else {
		while (low < 2 * hot - pages)
			bulkmem_clear_one(page, base, low++);
	}
	while (low < high) {
		bulkmem_clear_one(page, base, low++);
		if (low < high)
			bulkmem_clear_one(page, base, --high);
	}
}
#endif

/*
 * fallocate() of hugetlbfs passes an offset in the file as @addr_hint, which may
 * match a hint for other memory. That affects only the speed.
 */
void bulkmem_clear_huge(const char *function, struct page *page, unsigned long addr_hint,
			unsigned long pages)
{
	u64 size = (u64)pages << PAGE_SHIFT;
	unsigned long base = addr_hint & ~(size - 1);
	unsigned long hot = (addr_hint - base) >> PAGE_SHIFT;
	u64 hint = bulkmem_hint_extent(addr_hint, size);
	bool hinted = hint > size, below;
	struct bulkmem_plan plan = bulkmem_policy_plan(hinted ? hint : size, &below);
	struct bulkmem_parts parts;

	might_sleep();
	bulkmem_stats_fault(below);
	if (plan.method == &bulkmem_methods[BULKMEM_STOCK]) {
		u64 clock = ktime_get_ns();

		bulkmem_clear_stock(page, base, pages, hot);
		bulkmem_stats_count(function, plan.method, size, bulkmem_lap(&clock), hinted);
		return;
	}
	bulkmem_clear_around(&plan, page_address(page), pages, hot, &parts);
	bulkmem_count(function, plan.method, &parts.head, hinted);
	bulkmem_count(function, plan.method, &parts.tail, hinted);
	bulkmem_count(function, &bulkmem_methods[BULKMEM_STOCK], &parts.hot, false);
}
