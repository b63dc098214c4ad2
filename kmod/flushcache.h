/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interfaces between the files that replace __memcpy_flushcache(), by which
 * drivers copy to persistent memory.
 *
 * Its contract: when the caller has fenced after it (pmem_wmb()), no byte of the
 * copy is in a cache that a power failure loses. It does not fence, may be called
 * in any context, and sleeps never.
 */
#ifndef _BULKMEM_FLUSHCACHE_H
#define _BULKMEM_FLUSHCACHE_H

#include <linux/types.h>

#include "incoherent.h"

/* flushcache_stores.c: the instructions. No length is 0. */

/* Non-temporal stores of 4 bytes, to aligned addresses. */
void bulkmem_flushcache_store_half(void __incoherent *to, const void *from);
/* Non-temporal stores of 8 bytes, to aligned addresses; @length is a multiple of 8. */
void bulkmem_flushcache_store_words(void __incoherent *to, const void *from, size_t length);
/* The same, four at a time, as in the kernel; @length is a multiple of 32. */
void bulkmem_flushcache_store_stock(void __incoherent *to, const void *from, size_t length);
/* The same, whole lines. */
void bulkmem_flushcache_store_movnti(void __incoherent *to, const void *from, size_t length);
/* Ordinary stores of whole lines, each written back after its last store. */
void bulkmem_flushcache_store_clwb(void *to, const void *from, size_t length);
void bulkmem_flushcache_store_clflushopt(void *to, const void *from, size_t length);
/* Write back the line that contains the address. */
void bulkmem_flushcache_clwb(void *in_line);
void bulkmem_flushcache_clflushopt(void *in_line);

/* flushcache.c: the table of methods, the policy, and the replacement of the kernel's function. */

enum bulkmem_flushcache_id {
	BULKMEM_FLUSHCACHE_STOCK,
	BULKMEM_FLUSHCACHE_MOVNTI,
	BULKMEM_FLUSHCACHE_CLWB,
	BULKMEM_FLUSHCACHE_CLFLUSHOPT,
	BULKMEM_FLUSHCACHE_METHODS
};

/**
 * struct bulkmem_flushcache_method - one way to copy past the cache or out of it
 * @name: used in parameters, counters and messages
 * @available: true if it can be used on this processor
 * @weak: copies by non-temporal stores, or NULL
 * @unit: of @weak: its length is a multiple of this
 * @align: of @weak: alignment of its destination
 * @cached: copies whole lines by ordinary stores, and writes them back; or NULL
 * @flush: of @cached: writes one line back
 *
 * Exactly one of @weak and @cached is set.
 */
struct bulkmem_flushcache_method {
	const char *name;
	bool (*available)(void);
	void (*weak)(void __incoherent *to, const void *from, size_t length);
	size_t unit;
	size_t align;
	void (*cached)(void *to, const void *from, size_t length);
	void (*flush)(void *in_line);
};

extern const struct bulkmem_flushcache_method
	bulkmem_flushcache_methods[BULKMEM_FLUSHCACHE_METHODS];

/* Returns the method with this name, which a line break may follow, or NULL. */
const struct bulkmem_flushcache_method *bulkmem_flushcache_method_find(const char *name);

static inline unsigned int
bulkmem_flushcache_method_id(const struct bulkmem_flushcache_method *method)
{
	return method - bulkmem_flushcache_methods;
}

/**
 * struct bulkmem_flushcache_policy - the parameters
 * @large: method at or above @threshold
 * @small: method below @threshold
 * @threshold: in bytes
 * @replaced: the kernel's function is replaced; constant after loading
 * @settled: loading has got past the check of the parameters
 *
 * Written under kernel_param_lock(), read without a lock.
 */
struct bulkmem_flushcache_policy {
	const struct bulkmem_flushcache_method *large;
	const struct bulkmem_flushcache_method *small;
	u64 threshold;
	bool replaced;
	bool settled;
};

extern struct bulkmem_flushcache_policy bulkmem_flushcache_policy;

/* -EINVAL if a method was set, but not that it is to be used. */
int bulkmem_flushcache_settle(void);
/* Copies by @method; not fenced on return. */
void bulkmem_flushcache_by(const struct bulkmem_flushcache_method *method, void *to,
			   const void *from, size_t size);
/* Copies by the policy in place of the kernel's function; not fenced on return. */
void bulkmem_flushcache(void *to, const void *from, size_t size);

/* flushcache_stats.c: counters of what each method copied. */

extern const struct attribute_group bulkmem_flushcache_group;

void bulkmem_flushcache_stats_init(void);
void bulkmem_flushcache_count(const struct bulkmem_flushcache_method *method, size_t size);

/* flushcache_selftest.c: tests every method before it copies memory of others. */

int bulkmem_flushcache_selftest(void);

#endif /* _BULKMEM_FLUSHCACHE_H */
