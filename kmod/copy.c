// SPDX-License-Identifier: GPL-2.0
/*
 * Copies huge pages when a private mapping of hugetlbfs is written to after a fork:
 * in chunks, with one fence after the weakly ordered stores, and the pages around
 * the one that is about to be written last, by the kernel's functions.
 *
 * A method that meets an exception has not copied the page. Then all of it is
 * copied by the kernel's functions, page by page, which find and report the broken
 * page exactly as they do without the module.
 */
#include <linux/highmem.h>
#include <linux/kasan-checks.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/cpu_device_id.h>
#include <asm/cpufeature.h>

#include "bulkmem.h"
#include "compat.h"
#include "copy.h"

#if BULKMEM_COPY_IS_SAFE && !defined(copy_mc_to_kernel)
# error "bulkmem copies as safely as the kernel only with CONFIG_X86_MCE=y"
#endif

/* The number of hot pages on each side of the one that is written. */
#define HOT_PAGES	2UL

#define FRAGILE(model)	X86_MATCH_VENDOR_FAM_MODEL(INTEL, 6, model, NULL)

/*
 * The servers that can recover from a machine check only in a special copy:
 * copy_mc_fragile(), which the quirks of arch/x86/kernel/quirks.c enable if the
 * firmware allows it. A module cannot see that, so these models use the kernel's
 * copying only.
 */
static const struct x86_cpu_id fragile[] = {
	FRAGILE(62),	/* Ivy Bridge-X */
	FRAGILE(63),	/* Haswell-X */
	FRAGILE(79),	/* Broadwell-X */
	FRAGILE(86),	/* Broadwell-D */
	FRAGILE(85),	/* Skylake-X, Cascade Lake, Cooper Lake */
	{}
};

static bool bulkmem_copy_always(void)
{
	return true;
}

static bool bulkmem_copy_has_rep_movsb(void)
{
	return boot_cpu_has(X86_FEATURE_ERMS) && !x86_match_cpu(fragile);
}

static bool bulkmem_copy_has_movnti(void)
{
	return boot_cpu_has(X86_FEATURE_XMM2) && !x86_match_cpu(fragile);
}

const struct bulkmem_copy_method bulkmem_copy_methods[BULKMEM_COPY_METHODS] = {
	[BULKMEM_COPY_STOCK] = {
		.name = "stock",
		.available = bulkmem_copy_always,
	},
	[BULKMEM_COPY_REP_MOVSB] = {
		.name = "rep_movsb",
		.available = bulkmem_copy_has_rep_movsb,
		.cached = bulkmem_store_rep_movsb,
	},
	[BULKMEM_COPY_MOVNTI] = {
		.name = "movnti",
		.available = bulkmem_copy_has_movnti,
		.weak = bulkmem_store_copy_movnti,
	},
};

const struct bulkmem_copy_method *bulkmem_copy_method_find(const char *name)
{
	unsigned int i;

	for (i = 0; i < BULKMEM_COPY_METHODS; i++)
		if (sysfs_streq(name, bulkmem_copy_methods[i].name))
			return &bulkmem_copy_methods[i];
	return NULL;
}

/* Nothing changes until a method is set: no published measurement is of these copies. */
struct bulkmem_copy_policy bulkmem_copy_policy = {
	.large = &bulkmem_copy_methods[BULKMEM_COPY_STOCK],
	.cached = &bulkmem_copy_methods[BULKMEM_COPY_STOCK],
	.threshold = SZ_2M,
};

#ifdef BULKMEM_TESTS
static bool copy_fault;
module_param(copy_fault, bool, 0644);
MODULE_PARM_DESC(copy_fault, "For tests: every method stops as at a machine check");

static unsigned long copy_poison = ULONG_MAX;
module_param(copy_poison, ulong, 0644);
MODULE_PARM_DESC(copy_poison, "For tests: this page of every huge page cannot be copied");
#else
static const bool copy_fault;
static const unsigned long copy_poison = ULONG_MAX;
#endif

static bool bulkmem_copy_cached(const struct bulkmem_copy_plan *plan, void *to,
				const void *from, size_t length)
{
	while (length) {
		size_t now = min(length, plan->chunk);

		if (plan->method->cached(to, from, now))
			return false;
		to += now;
		from += now;
		length -= now;
		cond_resched();
	}
	return true;
}

static bool bulkmem_copy_weak(const struct bulkmem_copy_plan *plan, void __incoherent *to,
			      const void *from, size_t length)
{
	while (length) {
		size_t now = min(length, plan->chunk);

		if (plan->method->weak(to, from, now, plan->ahead))
			return false;
		to += now;
		from += now;
		length -= now;
		cond_resched();
	}
	return true;
}

bool bulkmem_copy_around(const struct bulkmem_copy_plan *plan, void *to, const void *from,
			 size_t length, size_t first, size_t end)
{
	bool done;

	/* KASAN does not see the instructions. */
	kasan_check_read(from, length);
	kasan_check_write(to, length);
	kmsan_unpoison_memory(to, length);
	if (plan->method->weak) {
		void __incoherent *addr = incoherent_begin(to);

		done = bulkmem_copy_weak(plan, addr, from, first) &&
		       bulkmem_copy_weak(plan, addr + end, from + end, length - end);
		to = incoherent_end(addr);
	} else {
		done = bulkmem_copy_cached(plan, to, from, first) &&
		       bulkmem_copy_cached(plan, to + end, from + end, length - end);
	}
	if (copy_fault) {
		memset(to, 0xee, length);
		done = false;
	}
	return done;
}

/**
 * struct bulkmem_copy - a huge page to copy
 * @dst: first page of the copy
 * @src: first page of the original
 * @vma: the mapping
 * @base: address of the first page
 * @pages: number of pages
 * @hot: the page at which the fault was
 */
struct bulkmem_copy {
	struct page *dst;
	struct page *src;
	struct vm_area_struct *vma;
	unsigned long base;
	unsigned long pages;
	unsigned long hot;
};

static int bulkmem_copy_one(const struct bulkmem_copy *copy, unsigned long i)
{
	unsigned long addr = copy->base + (i << PAGE_SHIFT);

	cond_resched();
#if BULKMEM_COPY_IS_SAFE
	if (copy_mc_user_highpage(copy->dst + i, copy->src + i, addr, copy->vma)) {
		bulkmem_memory_failed(copy->src + i);
		return -EHWPOISON;
	}
#else
	copy_user_highpage(copy->dst + i, copy->src + i, addr, copy->vma);
#endif
	return BULKMEM_COPY_IS_SAFE && i == copy_poison ? -EHWPOISON : 0;
}

/*
 * Copies the pages from @low up to @high, which may contain the hot page, with the
 * kernel's function and in its order: gigantic pages from their start; others from
 * the end that is farther from the hot page, then alternately from both ends.
 */
static int bulkmem_copy_pages(const struct bulkmem_copy *copy, unsigned long low,
			      unsigned long high)
{
	bool ascending = high - low > MAX_ORDER_NR_PAGES;

	while (low < high) {
		bool lower = ascending || copy->hot - low > high - 1 - copy->hot;
		int err = bulkmem_copy_one(copy, lower ? low++ : --high);

		if (err)
			return err;
	}
	return 0;
}

int bulkmem_copy_huge(struct page *dst, struct page *src, unsigned long addr_hint,
		      struct vm_area_struct *vma, unsigned long pages)
{
	const struct bulkmem_copy_policy *policy = &bulkmem_copy_policy;
	u64 size = (u64)pages << PAGE_SHIFT;
	bool below = size < READ_ONCE(policy->threshold);
	struct bulkmem_copy_plan plan = {
		.method = below ? READ_ONCE(policy->cached) : READ_ONCE(policy->large),
		.chunk = READ_ONCE(bulkmem_policy.chunk),
		.ahead = READ_ONCE(bulkmem_policy.ahead),
	};
	struct bulkmem_copy copy = {
		.dst = dst,
		.src = src,
		.vma = vma,
		.base = addr_hint & ~(size - 1),
		.pages = pages,
	};
	unsigned long first = 0, end = pages;
	int err;

	might_sleep();
	copy.hot = (addr_hint - copy.base) >> PAGE_SHIFT;
	bulkmem_copy_count_fault(below);
	if (plan.method->cached || plan.method->weak) {
		first = copy.hot - min(copy.hot, HOT_PAGES);
		end = min(copy.hot + HOT_PAGES + 1, pages);
		if (bulkmem_copy_around(&plan, page_address(dst), page_address(src), size,
					first << PAGE_SHIFT, end << PAGE_SHIFT)) {
			bulkmem_copy_count(plan.method, !!first + (end < pages),
					   pages - (end - first));
		} else {
			bulkmem_copy_count_redone();
			first = 0;
			end = pages;
		}
	}
	err = bulkmem_copy_pages(&copy, first, end);
	if (err)
		bulkmem_copy_count_failed();
	else
		bulkmem_copy_count(&bulkmem_copy_methods[BULKMEM_COPY_STOCK], 1, end - first);
	return err;
}
