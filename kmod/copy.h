/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interfaces between the files that copy huge pages.
 */
#ifndef _BULKMEM_COPY_H
#define _BULKMEM_COPY_H

#include <linux/mm.h>
#include <linux/types.h>
#include <linux/version.h>

#include "incoherent.h"

/*
 * From 6.4 on, the kernel survives a hardware error in the page that it copies:
 * the fault fails with -EHWPOISON. Before, its copying was not machine-check-safe.
 */
#define BULKMEM_COPY_IS_SAFE	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0))

/*
 * copy_stores.c: the instructions. @to, @from, @length and @ahead are multiples of
 * BULKMEM_LINE. They stop if a load raises an exception, and return the number of
 * bytes that are not copied: 0 if all is well.
 */

size_t bulkmem_store_rep_movsb(void *to, const void *from, size_t length);
size_t bulkmem_store_copy_movnti(void __incoherent *to, const void *from, size_t length,
				 size_t ahead);

/* copy.c: the table of methods, the policy, and the replacement of the kernel's function. */

enum bulkmem_copy_id {
	BULKMEM_COPY_STOCK,
	BULKMEM_COPY_REP_MOVSB,
	BULKMEM_COPY_MOVNTI,
	BULKMEM_COPY_METHODS
};

/**
 * struct bulkmem_copy_method - one way to copy memory
 * @name: used in parameters, counters and messages
 * @available: true if it can be used on this processor
 * @cached: copies by ordinary stores
 * @weak: copies by weakly ordered stores
 *
 * The stock method has neither: the kernel's functions copy page by page.
 */
struct bulkmem_copy_method {
	const char *name;
	bool (*available)(void);
	size_t (*cached)(void *to, const void *from, size_t length);
	size_t (*weak)(void __incoherent *to, const void *from, size_t length, size_t ahead);
};

extern const struct bulkmem_copy_method bulkmem_copy_methods[BULKMEM_COPY_METHODS];

/* Returns the method with this name, which a line break may follow, or NULL. */
const struct bulkmem_copy_method *bulkmem_copy_method_find(const char *name);

static inline unsigned int bulkmem_copy_method_id(const struct bulkmem_copy_method *method)
{
	return method - bulkmem_copy_methods;
}

/**
 * struct bulkmem_copy_policy - the parameters
 * @large: method at or above @threshold
 * @cached: method below @threshold
 * @threshold: in bytes
 *
 * Written under kernel_param_lock(), read without a lock. The other parameters
 * are those of struct bulkmem_policy.
 */
struct bulkmem_copy_policy {
	const struct bulkmem_copy_method *large;
	const struct bulkmem_copy_method *cached;
	u64 threshold;
};

extern struct bulkmem_copy_policy bulkmem_copy_policy;

/**
 * struct bulkmem_copy_plan - how to copy a range
 * @method: the method
 * @chunk: bytes between two calls of cond_resched()
 * @ahead: prefetch distance of movnti, in bytes
 */
struct bulkmem_copy_plan {
	const struct bulkmem_copy_method *method;
	size_t chunk;
	size_t ahead;
};

/*
 * Copies @length bytes of directly mapped, write-back memory from @from to @to by
 * @plan, whose method is not stock, except for those at offsets from @first up to
 * @end. All are multiples of PAGE_SIZE. Fenced on return. May sleep. Returns false
 * if a load raised an exception: the content of @to is undefined then.
 */
bool bulkmem_copy_around(const struct bulkmem_copy_plan *plan, void *to, const void *from,
			 size_t length, size_t first, size_t end);

/*
 * Copies a huge page of @pages pages; the page fault was at @addr_hint. Returns 0,
 * or -EHWPOISON if a page of @src has a hardware error.
 */
int bulkmem_copy_huge(struct page *dst, struct page *src, unsigned long addr_hint,
		      struct vm_area_struct *vma, unsigned long pages);

/* copy_stats.c: counters of what each method copied. */

extern const struct attribute_group bulkmem_copy_group;

void bulkmem_copy_stats_init(void);
void bulkmem_copy_count(const struct bulkmem_copy_method *method, unsigned int extents,
			u64 pages);
void bulkmem_copy_count_fault(bool below);
void bulkmem_copy_count_redone(void);
void bulkmem_copy_count_failed(void);

/* copy_selftest.c: tests every method before it copies memory of others. */

int bulkmem_copy_selftest(void);

#endif /* _BULKMEM_COPY_H */
