/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interfaces between the module's files, one section per file.
 */
#ifndef _BULKMEM_H
#define _BULKMEM_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "bulkmem_ioctl.h"
#include "incoherent.h"

/* stores.c: the instructions. Except for pages, @length is a multiple of this. */

#define BULKMEM_LINE	64

void bulkmem_store_pages(void *kaddr, size_t length, size_t ahead);
void bulkmem_store_rep_stosb(void *kaddr, size_t length, size_t ahead);
void bulkmem_store_rep_stosq(void *kaddr, size_t length, size_t ahead);
void bulkmem_store_prefetchw(void *kaddr, size_t length, size_t ahead);
void bulkmem_store_movnti(void __incoherent *kaddr, size_t length);
void bulkmem_store_clzero(void __incoherent *kaddr, size_t length);

/* method.c: the table of methods. */

enum bulkmem_method_id {
	BULKMEM_STOCK,
	BULKMEM_REP_STOSB,
	BULKMEM_REP_STOSQ,
	BULKMEM_MOVNTI,
	BULKMEM_CLZERO,
	BULKMEM_PREFETCHW,
	BULKMEM_METHODS
};

/**
 * struct bulkmem_method - one way to zero memory
 * @name: used in parameters, counters and messages
 * @lines: works on whole cache lines; otherwise only on whole pages
 * @available: true if this processor supports it
 * @cached: zeroes by ordinary stores
 * @weak: zeroes by weakly ordered stores; exactly one of @cached and @weak is set
 */
struct bulkmem_method {
	const char *name;
	bool lines;
	bool (*available)(void);
	void (*cached)(void *kaddr, size_t length, size_t ahead);
	void (*weak)(void __incoherent *kaddr, size_t length);
};

extern const struct bulkmem_method bulkmem_methods[BULKMEM_METHODS];

/* Returns the method with this name, which a line break may follow, or NULL. */
const struct bulkmem_method *bulkmem_method_find(const char *name);

static inline unsigned int bulkmem_method_id(const struct bulkmem_method *method)
{
	return method - bulkmem_methods;
}

/* quirk.c: processors on which published measurements contradict the feature bits. */

bool bulkmem_movnt_slow(void);

/* policy.c: the method for a total length. params.c: the parameters that set it. */

/**
 * struct bulkmem_plan - how to clear a range
 * @method: the method
 * @chunk: bytes between two calls of cond_resched()
 * @ahead: prefetch distance of prefetchw, in bytes
 */
struct bulkmem_plan {
	const struct bulkmem_method *method;
	size_t chunk;
	size_t ahead;
};

/**
 * struct bulkmem_policy - the parameters
 * @large: method at or above @threshold; NULL until bulkmem_policy_settle()
 * @cached: method below @threshold; NULL until bulkmem_policy_settle()
 * @threshold: in bytes
 * @threshold_given: false if the size of the cache determines @threshold
 * @chunk: as in struct bulkmem_plan
 * @ahead: as in struct bulkmem_plan
 * @ignore_quirks: allow methods that quirk.c reports as slow
 * @settled: the defaults are filled in
 *
 * Written under kernel_param_lock(), read without a lock.
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

/* Fills in the defaults; -EOPNOTSUPP if a quirk forbids the method that was set. */
int bulkmem_policy_settle(void);
/* True if a quirk forbids @method for large extents. */
bool bulkmem_policy_forbids(const struct bulkmem_method *method, bool ignore_quirks);
struct bulkmem_plan bulkmem_policy_plan(u64 extent, bool *below);

/* clear.c: clearing by the policy, and the replacement of the kernel's function. */

/* No page of the range is known to be touched before the others. */
#define BULKMEM_NO_HOT	ULONG_MAX

/**
 * struct bulkmem_part - a contiguous range that was cleared
 * @bytes: its length; 0: there was none
 * @ns: the time that it took, including interruptions
 */
struct bulkmem_part {
	size_t bytes;
	u64 ns;
};

/**
 * struct bulkmem_parts - what bulkmem_clear_around() cleared
 * @head: the range before the hot pages, or all of it
 * @tail: the range after the hot pages
 * @hot: the hot pages, by the method "stock"
 */
struct bulkmem_parts {
	struct bulkmem_part head;
	struct bulkmem_part tail;
	struct bulkmem_part hot;
};

/*
 * Zeroes @pages pages of directly mapped, write-back memory at @kaddr by @plan.
 * Clears the pages around page number @hot last and through the cache, unless
 * it is BULKMEM_NO_HOT. Fenced on return. May sleep.
 */
void bulkmem_clear_around(const struct bulkmem_plan *plan, void *kaddr, unsigned long pages,
			  unsigned long hot, struct bulkmem_parts *parts);

/*
 * Zeroes @length bytes of directly mapped, write-back memory at @kaddr (both
 * page-aligned) by the policy's method for a total length of @extent bytes.
 * Fenced on return. May sleep.
 */
void bulkmem_clear(void *kaddr, size_t length, u64 extent);

/*
 * Zeroes a huge page of @pages pages in place of the kernel's @function; the page
 * fault was at @addr_hint.
 */
void bulkmem_clear_huge(const char *function, struct page *page, unsigned long addr_hint,
			unsigned long pages);

/* stats.c: counters of what each method cleared. */

extern const struct attribute_group *bulkmem_stats_groups[];

void bulkmem_stats_init(void);
/* The function of extents that are cleared for /dev/bulkmem-memory. */
#define BULKMEM_DEVICE	"device"

/*
 * Counts an extent, and traces it. Kernels that trace no livepatch have a kprobe
 * here, so the documentation names these parameters.
 */
void bulkmem_stats_count(const char *function, const struct bulkmem_method *method,
			 u64 bytes, u64 ns, bool hinted);
void bulkmem_stats_fault(bool below);
/* Counts @bytes that @method cleared without a reschedule point between them. */
void bulkmem_stats_stretch(const struct bulkmem_method *method, size_t bytes);

/* A reschedule point, after @bytes that @method cleared since the last one. */
static inline void bulkmem_reschedule(const struct bulkmem_method *method, size_t bytes)
{
	bulkmem_stats_stretch(method, bytes);
	cond_resched();
}

/* selftest.c: tests every method before it clears memory of others. */

int bulkmem_selftest(void);

/* hint.c: the ranges that page faults are parts of. */

/* An open file of /dev/bulkmem. */
struct bulkmem_file {
	struct list_head hints;		/* protected by the lock in hint.c */
};

int bulkmem_hint_init(void);
void bulkmem_hint_exit(void);
long bulkmem_hint_add(struct bulkmem_file *file, const struct bulkmem_hint *hint);
void bulkmem_hint_drop_all(struct bulkmem_file *file);
/*
 * Returns the length of the range that a huge page of @size bytes, which current
 * faults in at @addr, is a part of because of a hint, or 0.
 */
u64 bulkmem_hint_extent(unsigned long addr, u64 size);
/* Returns the number of hints of all live processes. */
unsigned long bulkmem_hint_count(void);

/* process.c: processes of which all huge pages count as parts of large extents. */

/* Marks the calling process. */
long bulkmem_process_add(const struct bulkmem_hint_process *asked);
void bulkmem_process_forget_all(void);
/* True if current is a thread of such a process. */
bool bulkmem_process_is_hinted(void);
/* Returns the number of such processes now. */
unsigned long bulkmem_process_count(void);
/* Returns the number of children that should have been marked and were not. */
unsigned long bulkmem_process_unhinted(void);

/* cgroup.c: cgroups of which all huge pages count as parts of large extents. */

/* Declares or withdraws a cgroup. */
long bulkmem_cgroup_request(const struct bulkmem_hint_cgroup *asked);
void bulkmem_cgroup_forget_all(void);
/* True if current is in such a cgroup or below one. */
bool bulkmem_cgroup_is_hinted(void);
/* Writes their numbers to a page, one in each line. Returns the length. */
ssize_t bulkmem_cgroup_list(char *buffer);

/* automatic.c: ranges that one call faults in, if the parameter is set. */

/* Allows the parameter to take effect. */
void bulkmem_automatic_start(void);
void bulkmem_automatic_stop(void);
/* Returns the length of the extent of current's call, if @addr is in its range, or 0. */
u64 bulkmem_automatic_extent(unsigned long addr);

/* device.c: /dev/bulkmem, and what both devices have in common. */

int bulkmem_device_register(void);
void bulkmem_device_unregister(void);
/* Allows the devices to be opened. */
void bulkmem_device_ready(void);
bool bulkmem_device_is_ready(void);

/*
 * Copies the argument of an ioctl, whose first member is its size. -EINVAL if it
 * is shorter than @known, -E2BIG if it is longer and the rest is not 0.
 */
int bulkmem_device_argument(void *argument, size_t known, const void __user *user);

/* memory.c: /dev/bulkmem-memory. unit.c: its memory. */

struct miscdevice;
extern struct miscdevice bulkmem_memory_device;

/* Releases the memory that is kept for reuse. */
void bulkmem_unit_exit(void);

#endif /* _BULKMEM_H */
