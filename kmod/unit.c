// SPDX-License-Identifier: GPL-2.0
/*
 * Units of memory: 2 MiB, contiguous and aligned, of one cache attribute.
 *
 * A unit changes its attribute as a whole, so the direct map is never split
 * below 2 MiB, whatever the page size of the mapping. Each change flushes the
 * TLBs of all processors, so a bounded pool for each attribute keeps units that
 * were retyped: they are cleared and used again without a change. The pool's
 * memory is not charged to a memory cgroup, because it outlives its users; what
 * exceeds the pool is charged, and becomes write-back again when it is released.
 *
 * While a unit is in use or in the pool, the reference count of its pages is 0:
 * the kernel refuses to take references to them. So nothing can pin them, and
 * KVM, which would map them write-back, refuses them up to Linux 6.12, but not
 * 7.2 and 7.3.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/moduleparam.h>
#include <linux/page_ref.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/sysfs.h>
#include <linux/timekeeping.h>

#include <asm/set_memory.h>

#include "block.h"

/*
 * What callers without CAP_SYS_ADMIN may retype: units within a moment, and the
 * time for which each unit counts.
 */
#define RATE_BURST	(SZ_256M / PMD_SIZE)
#define RATE_NS		(NSEC_PER_SEC / 16)

/**
 * struct pool - the units that keep an attribute
 * @free: those that are not in use, linked by page->lru
 * @free_count: their number
 * @count: number of units that belong to the pool, in use or not
 */
struct pool {
	struct list_head free;
	unsigned long free_count;
	unsigned long count;
};

/* By attribute. */
static struct pool pools[] = {
	[BULKMEM_WC] = { .free = LIST_HEAD_INIT(pools[BULKMEM_WC].free) },
	[BULKMEM_UC] = { .free = LIST_HEAD_INIT(pools[BULKMEM_UC].free) },
};

/* Protects pools and pool_limit. */
static DEFINE_MUTEX(pool_lock);
/* The most units in each pool. */
static unsigned long pool_limit = SZ_32M / PMD_SIZE;

static atomic_long_t retyped = ATOMIC_LONG_INIT(0);
static atomic_long_t reused = ATOMIC_LONG_INIT(0);
static atomic_long_t changes = ATOMIC_LONG_INIT(0);
static atomic_long_t lost = ATOMIC_LONG_INIT(0);

/* The rate: the time until which the retyped units count. */

static DEFINE_SPINLOCK(rate_lock);
static u64 rate_until;

bool bulkmem_unit_allow(unsigned long units)
{
	u64 now = ktime_get_ns();
	bool allowed;

	if (units > RATE_BURST)
		return false;
	spin_lock(&rate_lock);
	rate_until = max(rate_until, now);
	allowed = rate_until + units * RATE_NS <= now + RATE_BURST * RATE_NS;
	if (allowed)
		rate_until += units * RATE_NS;
	spin_unlock(&rate_lock);
	return allowed;
}

void bulkmem_unit_refund(unsigned long units)
{
	spin_lock(&rate_lock);
	rate_until -= units * RATE_NS;
	spin_unlock(&rate_lock);
}

bool bulkmem_is_poisoned(struct page *page, unsigned long n)
{
	while (n--)
		if (PageHWPoison(page + n))
			return true;
	return false;
}

/* Attributes. */

static int bulkmem_unit_set_attribute(struct page *page, u32 attribute)
{
	unsigned long kaddr = (unsigned long)page_address(page);

	atomic_long_inc(&changes);
	switch (attribute) {
	case BULKMEM_WC:
		return set_memory_wc(kaddr, HUGE_PAGES);
	case BULKMEM_UC:
		return set_memory_uc(kaddr, HUGE_PAGES);
	default:
		return set_memory_wb(kaddr, HUGE_PAGES);
	}
}

/* Allocating and freeing. */

static struct page *bulkmem_unit_allocate(const struct bulkmem_memory *memory, bool account)
{
	/* RETRY_MAYFAIL: fail instead of invoking the OOM killer. */
	gfp_t gfp = GFP_USER | __GFP_COMP | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	struct page *page;

	if (account)
		gfp |= __GFP_ACCOUNT;
	if (memory->node == NUMA_NO_NODE)
		page = alloc_pages(gfp, HUGE_ORDER);
	else
		page = alloc_pages_node(memory->node, gfp | __GFP_THISNODE, HUGE_ORDER);
	if (!page)
		return NULL;
	/* A reference that the page's last user still holds ends soon. */
	while (!page_ref_freeze(page, 1)) {
		if (fatal_signal_pending(current)) {
			__free_pages(page, HUGE_ORDER);
			return NULL;
		}
		cond_resched();
	}
	return page;
}

/*
 * Returns a unit to the allocator, unless that would reuse a page with a
 * hardware error, or one that cannot become write-back again. A broken unit
 * keeps its attribute: if it were write-back, the processor could load from the
 * broken page speculatively.
 */
static void bulkmem_unit_release(u32 attribute, struct page *page)
{
	if (bulkmem_is_poisoned(page, HUGE_PAGES)) {
		atomic_long_inc(&lost);
		return;
	}
	if (attribute != BULKMEM_WB && bulkmem_unit_set_attribute(page, BULKMEM_WB)) {
		atomic_long_inc(&lost);
		pr_err_once("memory did not become write-back again and stays out of use until the next boot\n");
		return;
	}
	page_ref_unfreeze(page, 1);
	__free_pages(page, HUGE_ORDER);
}

/*
 * Clears a unit that has its attribute already. Stores of its last user are not
 * pending: the unmapping interrupted the processors that had it mapped, and a
 * context switch executes locked instructions; both drain the write-combining
 * buffers.
 */
static void bulkmem_unit_clear_retyped(struct page *page)
{
	const struct bulkmem_method *method = &bulkmem_methods[BULKMEM_MOVNTI];
	u64 start = ktime_get_ns();
	unsigned long i;

	for (i = 0; i < HUGE_PAGES; i++) {
		void __incoherent *addr = incoherent_begin(page_address(page + i));

		bulkmem_store_movnti(addr, PAGE_SIZE);
		incoherent_end(addr);
		bulkmem_reschedule(method, PAGE_SIZE);
	}
	bulkmem_stats_count(BULKMEM_DEVICE, method, PMD_SIZE, ktime_get_ns() - start, false);
}

/* The pool. */

/* Removes a free unit from the pool's list. */
static void bulkmem_unit_unlist(struct pool *pool, struct page *page)
{
	lockdep_assert_held(&pool_lock);
	list_del(&page->lru);
	pool->free_count--;
}

/*
 * Takes a free unit from the pool. *@of_pool tells if the unit belongs to the
 * pool: the one returned does, and one that the caller allocates does if there
 * is room for it, which is then counted.
 */
static struct page *bulkmem_unit_take(const struct bulkmem_memory *memory, bool *of_pool)
{
	struct pool *pool = &pools[memory->attribute];
	struct page *page, *next, *found = NULL;

	mutex_lock(&pool_lock);
	list_for_each_entry_safe(page, next, &pool->free, lru) {
		if (memory->node != NUMA_NO_NODE && page_to_nid(page) != memory->node)
			continue;
		bulkmem_unit_unlist(pool, page);
		if (!bulkmem_is_poisoned(page, HUGE_PAGES)) {
			found = page;
			break;
		}
		pool->count--;
		bulkmem_unit_release(memory->attribute, page);
	}
	*of_pool = found || pool->count < pool_limit;
	if (*of_pool && !found)
		pool->count++;
	mutex_unlock(&pool_lock);
	return found;
}

/* For a unit that bulkmem_unit_take() counted and that does not exist. */
static void bulkmem_unit_leave(u32 attribute)
{
	mutex_lock(&pool_lock);
	pools[attribute].count--;
	mutex_unlock(&pool_lock);
}

/* Puts a unit back into its pool. Otherwise it no longer belongs to the pool. */
static bool bulkmem_unit_give_back(u32 attribute, struct page *page)
{
	struct pool *pool = &pools[attribute];
	bool kept;

	mutex_lock(&pool_lock);
	kept = pool->count <= pool_limit && !bulkmem_is_poisoned(page, HUGE_PAGES);
	if (kept) {
		list_add(&page->lru, &pool->free);
		pool->free_count++;
	} else {
		pool->count--;
	}
	mutex_unlock(&pool_lock);
	return kept;
}

static void bulkmem_unit_set_pool_limit(unsigned long units)
{
	u32 attribute;

	mutex_lock(&pool_lock);
	pool_limit = units;
	for (attribute = BULKMEM_WC; attribute <= BULKMEM_UC; attribute++) {
		struct pool *pool = &pools[attribute];

		while (pool->count > pool_limit && !list_empty(&pool->free)) {
			struct page *page = list_first_entry(&pool->free, struct page, lru);

			bulkmem_unit_unlist(pool, page);
			pool->count--;
			bulkmem_unit_release(attribute, page);
			cond_resched();
		}
	}
	mutex_unlock(&pool_lock);
}

void bulkmem_unit_exit(void)
{
	bulkmem_unit_set_pool_limit(0);
}

static int bulkmem_memory_pool_set(const char *value, const struct kernel_param *param)
{
	unsigned int mib;
	int err = kstrtouint(value, 0, &mib);

	if (err || mib % (PMD_SIZE / SZ_1M) || mib > SZ_1G / SZ_1M)
		return -EINVAL;
	bulkmem_unit_set_pool_limit(mib / (PMD_SIZE / SZ_1M));
	return 0;
}

static int bulkmem_memory_pool_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%lu\n", READ_ONCE(pool_limit) * (PMD_SIZE / SZ_1M));
}

static const struct kernel_param_ops memory_pool_ops = {
	.set = bulkmem_memory_pool_set,
	.get = bulkmem_memory_pool_get,
};
module_param_cb(memory_pool, &memory_pool_ops, NULL, 0644);
MODULE_PARM_DESC(memory_pool,
		 "Most MiB of write-combining, and of uncached, memory that keeps its type while unused: even, up to 1024 (default: 32)");

/* Units. */

int bulkmem_unit_get(const struct bulkmem_memory *memory, u64 extent, struct unit *unit)
{
	struct page *page = NULL;

	unit->of_pool = false;
	if (fatal_signal_pending(current))
		return -EINTR;
	if (memory->attribute != BULKMEM_WB)
		page = bulkmem_unit_take(memory, &unit->of_pool);
	if (page) {
		bulkmem_unit_clear_retyped(page);
		atomic_long_inc(&reused);
		unit->page = page;
		return 0;
	}

	page = bulkmem_unit_allocate(memory, !unit->of_pool);
	if (!page)
		goto failed;
	bulkmem_clear(page_address(page), PMD_SIZE, extent);
	unit->page = page;
	if (memory->attribute == BULKMEM_WB)
		return 0;
	if (bulkmem_unit_set_attribute(page, memory->attribute)) {
		/* No memory to split a larger page of the direct map. */
		bulkmem_unit_release(memory->attribute, page);
		goto failed;
	}
	atomic_long_inc(&retyped);
	return 1;

failed:
	if (unit->of_pool)
		bulkmem_unit_leave(memory->attribute);
	return fatal_signal_pending(current) ? -EINTR : -ENOMEM;
}

void bulkmem_unit_put(u32 attribute, const struct unit *unit)
{
	if (!unit->of_pool || !bulkmem_unit_give_back(attribute, unit->page))
		bulkmem_unit_release(attribute, unit->page);
}

/* Counters in /sys/class/misc/bulkmem-memory, in units of 2 MiB except changes. */

struct counter {
	struct device_attribute attribute;
	atomic_long_t *value;
};

static ssize_t bulkmem_unit_show_counter(struct device *device, struct device_attribute *attribute,
					 char *buffer)
{
	struct counter *counter = container_of(attribute, struct counter, attribute);

	return sysfs_emit(buffer, "%ld\n", atomic_long_read(counter->value));
}

static ssize_t bulkmem_unit_show_pooled(struct device *device, struct device_attribute *attribute,
					char *buffer)
{
	unsigned long count;

	mutex_lock(&pool_lock);
	count = pools[BULKMEM_WC].free_count + pools[BULKMEM_UC].free_count;
	mutex_unlock(&pool_lock);
	return sysfs_emit(buffer, "%lu\n", count);
}

static struct device_attribute pooled = __ATTR(pooled, 0444, bulkmem_unit_show_pooled, NULL);

#define COUNTER(_name)							\
	static struct counter counter_##_name = {			\
		.attribute =						\
			__ATTR(_name, 0444, bulkmem_unit_show_counter, NULL),	\
		.value = &_name,					\
	}

COUNTER(retyped);
COUNTER(reused);
COUNTER(changes);
COUNTER(lost);

static struct attribute *attributes[] = {
	&counter_retyped.attribute.attr,
	&counter_reused.attribute.attr,
	&counter_changes.attribute.attr,
	&counter_lost.attribute.attr,
	&pooled.attr,
	NULL
};

static const struct attribute_group group = { .attrs = attributes };
const struct attribute_group *bulkmem_unit_groups[] = { &group, NULL };
