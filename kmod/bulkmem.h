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
#include "incoherent.h"

/* stores.c: the instructions. Whole cache lines: @length a multiple of this. */

#define BULKMEM_LINE	64

void bulkmem_store_pages(void *kaddr, size_t length, size_t ahead);
void bulkmem_store_rep_stosb(void *kaddr, size_t length, size_t ahead);
void bulkmem_store_prefetchw(void *kaddr, size_t length, size_t ahead);
void bulkmem_store_movnti(void __incoherent *kaddr, size_t length);
void bulkmem_store_clzero(void __incoherent *kaddr, size_t length);

/* method.c: the table of methods. */

enum bulkmem_method_id {
	BULKMEM_STOCK,
	BULKMEM_REP_STOSB,
	BULKMEM_MOVNTI,
	BULKMEM_CLZERO,
	BULKMEM_PREFETCHW,
	BULKMEM_METHODS
};

/**
 * struct bulkmem_method - one way to zero memory
 * @name: as parameters, counters and messages call it
 * @lines: it takes whole cache lines; otherwise only whole pages
 * @available: whether this processor has all that it needs
 * @cached: zeroes by ordinary stores; or
 * @weak: zeroes by weakly ordered ones: exactly one of the two is there
 */
struct bulkmem_method {
	const char *name;
	bool lines;
	bool (*available)(void);
	void (*cached)(void *kaddr, size_t length, size_t ahead);
	void (*weak)(void __incoherent *kaddr, size_t length);
};

extern const struct bulkmem_method bulkmem_methods[BULKMEM_METHODS];

/* The method called @name (a line break after it is allowed), or NULL. */
const struct bulkmem_method *bulkmem_method_find(const char *name);

static inline unsigned int bulkmem_method_id(const struct bulkmem_method *method)
{
	return method - bulkmem_methods;
}

/* quirk.c: what is published of processors, where it contradicts their features. */

bool bulkmem_movnt_slow(void);

/* policy.c: which method, for how long an extent. params.c: how users say so. */

/**
 * struct bulkmem_plan - how an extent is cleared
 * @method: by what
 * @chunk: bytes between two chances to reschedule
 * @ahead: how far prefetchw prefetches, in bytes
 */
struct bulkmem_plan {
	const struct bulkmem_method *method;
	size_t chunk;
	size_t ahead;
};

/**
 * struct bulkmem_policy - what the parameters say
 * @large: method at or above @threshold; NULL until bulkmem_policy_settle()
 * @cached: method below it; likewise
 * @threshold: in bytes
 * @threshold_given: or else it follows the cache
 * @chunk: as in struct bulkmem_plan
 * @ahead: likewise
 * @ignore_quirks: allow what quirk.c advises against
 * @settled: the defaults are filled in
 *
 * Written under kernel_param_lock(), read without.
 */
struct bulkmem_policy {
	const struct bulkmem_method *large;
	const struct bulkmem_method *cached;
	u64 threshold;
	bool threshold_given;
	size_t chunk;
	size_t ahead;
	bool ignore_quirks;
	bool settled;
};

extern struct bulkmem_policy bulkmem_policy;

/* Fills in what no parameter has said; -EOPNOTSUPP: a quirk forbids what one said. */
int bulkmem_policy_settle(void);
/* Whether a quirk forbids @method for large extents. */
bool bulkmem_policy_forbids(const struct bulkmem_method *method, bool ignore_quirks);
struct bulkmem_plan bulkmem_policy_plan(u64 extent, bool *below);

/* clear.c: an extent by the policy, and the function that replaces the kernel's. */

/* No page of the extent will be touched sooner than the others. */
#define BULKMEM_NO_HOT	ULONG_MAX

/*
 * Zeroes @pages pages of directly mapped, write-back memory at @kaddr as @plan
 * says, those around page number @hot last and through the cache, unless it is
 * BULKMEM_NO_HOT. Fenced on return. May sleep. Returns the number of pages that
 * were cleared as hot ones, and in *@extents in how many stretches the method
 * was given the others.
 */
unsigned long bulkmem_clear_around(const struct bulkmem_plan *plan, void *kaddr,
				   unsigned long pages, unsigned long hot,
				   unsigned int *extents);

/*
 * Zeroes @length bytes of directly mapped, write-back memory at @kaddr (both
 * page-aligned) by the method that the policy has for an extent of @extent
 * bytes; fenced on return. May sleep.
 */
void bulkmem_clear(void *kaddr, size_t length, u64 extent);

/* A huge page of @pages pages, of which the one at @addr_hint was touched. */
void bulkmem_clear_huge(struct page *page, unsigned long addr_hint, unsigned long pages);

/* stats.c: what was cleared, by which method. */

extern const struct attribute_group *bulkmem_stats_groups[];

void bulkmem_stats_init(void);
void bulkmem_stats_count(const struct bulkmem_method *method, unsigned int extents,
			 u64 pages, bool hinted);
void bulkmem_stats_fault(bool below);

/* selftest.c: every method on memory of our own, before any other is trusted to them. */

int bulkmem_selftest(void);

/* hint.c: which faults are part of something larger. */

struct bulkmem_file;

long bulkmem_hint_add(struct bulkmem_file *file, const struct bulkmem_hint *hint);
void bulkmem_hint_drop_all(struct bulkmem_file *file);
/* The length of the hinted stretch of current's that holds @addr, or 0. */
u64 bulkmem_hint_extent(unsigned long addr);
/* The hints of all processes that live. */
unsigned long bulkmem_hint_count(void);

/* device.c: /dev/bulkmem. memory.c: what its mmap() gives. */

struct bulkmem_file {
	struct bulkmem_memory memory;
	struct mutex lock;		/* protects memory */
	struct list_head hints;		/* of hint.c, under its own lock */
	unsigned int hint_count;
};

int bulkmem_device_register(void);
void bulkmem_device_unregister(void);
/* From now on it can be opened. */
void bulkmem_device_ready(void);

long bulkmem_memory_describe(struct bulkmem_file *file, const struct bulkmem_memory *memory);
int bulkmem_memory_mmap(struct bulkmem_file *file, struct vm_area_struct *vma);
unsigned long bulkmem_memory_area(struct file *file, unsigned long addr, unsigned long length,
				  unsigned long pgoff, unsigned long flags);

#endif /* _BULKMEM_H */
