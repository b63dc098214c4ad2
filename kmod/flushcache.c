// SPDX-License-Identifier: GPL-2.0
/*
 * Copies to persistent memory in place of __memcpy_flushcache(): past the cache by
 * non-temporal stores, or through it with each line written back after its last
 * store. Which is faster depends on the length, the processor and the memory.
 *
 * What does not fill a word or a line at either end is stored by memcpy() and
 * written back, as in the kernel. Copies of a constant 4, 8 or 16 bytes do not get
 * here: the kernel inlines them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kasan-checks.h>
#include <linux/kernel.h>
#include <linux/libnvdimm.h>
#include <linux/minmax.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/processor.h>

#include "bulkmem.h"
#include "flushcache.h"

#define WORD	sizeof(u64)

static bool bulkmem_flushcache_always(void)
{
	return true;
}

/* The store functions write back one line for each BULKMEM_LINE bytes. */
static bool bulkmem_flushcache_has_clwb(void)
{
	return boot_cpu_has(X86_FEATURE_CLWB) && boot_cpu_data.x86_clflush_size == BULKMEM_LINE;
}

static bool bulkmem_flushcache_has_clflushopt(void)
{
	return boot_cpu_has(X86_FEATURE_CLFLUSHOPT) &&
	       boot_cpu_data.x86_clflush_size == BULKMEM_LINE;
}

const struct bulkmem_flushcache_method
bulkmem_flushcache_methods[BULKMEM_FLUSHCACHE_METHODS] = {
	[BULKMEM_FLUSHCACHE_STOCK] = {
		.name = "stock",
		.available = bulkmem_flushcache_always,
		.weak = bulkmem_flushcache_store_stock,
		.unit = BULKMEM_LINE / 2,
		.align = WORD,
	},
	[BULKMEM_FLUSHCACHE_MOVNTI] = {
		.name = "movnti",
		.available = bulkmem_flushcache_always,
		.weak = bulkmem_flushcache_store_movnti,
		.unit = BULKMEM_LINE,
		.align = BULKMEM_LINE,
	},
	[BULKMEM_FLUSHCACHE_CLWB] = {
		.name = "clwb",
		.available = bulkmem_flushcache_has_clwb,
		.cached = bulkmem_flushcache_store_clwb,
		.flush = bulkmem_flushcache_clwb,
	},
	[BULKMEM_FLUSHCACHE_CLFLUSHOPT] = {
		.name = "clflushopt",
		.available = bulkmem_flushcache_has_clflushopt,
		.cached = bulkmem_flushcache_store_clflushopt,
		.flush = bulkmem_flushcache_clflushopt,
	},
};

const struct bulkmem_flushcache_method *bulkmem_flushcache_method_find(const char *name)
{
	unsigned int i;

	for (i = 0; i < BULKMEM_FLUSHCACHE_METHODS; i++)
		if (sysfs_streq(name, bulkmem_flushcache_methods[i].name))
			return &bulkmem_flushcache_methods[i];
	return NULL;
}

/*
 * The threshold has no effect until a method is set. From as many bytes on,
 * dm-writecache has CLFLUSHOPT loops of its own: its authors measured MOVNTI to be
 * faster for 512 bytes, and CLFLUSHOPT for 1024 and more.
 */
struct bulkmem_flushcache_policy bulkmem_flushcache_policy = {
	.large = &bulkmem_flushcache_methods[BULKMEM_FLUSHCACHE_STOCK],
	.small = &bulkmem_flushcache_methods[BULKMEM_FLUSHCACHE_STOCK],
	.threshold = 768,
};

module_param_named(flushcache, bulkmem_flushcache_policy.replaced, bool, 0444);
MODULE_PARM_DESC(flushcache,
		 "Replace __memcpy_flushcache(), which copies to persistent memory (at load only, default: N)");

int bulkmem_flushcache_settle(void)
{
	const struct bulkmem_flushcache_method *stock =
		&bulkmem_flushcache_methods[BULKMEM_FLUSHCACHE_STOCK];
	struct bulkmem_flushcache_policy *policy = &bulkmem_flushcache_policy;
	int err = 0;

	kernel_param_lock(THIS_MODULE);
	if (!policy->replaced && (policy->large != stock || policy->small != stock)) {
		pr_err("flushcache_method and flushcache_small_method need flushcache=1\n");
		err = -EINVAL;
	}
	policy->settled = true;
	kernel_param_unlock(THIS_MODULE);
	return err;
}

/* Copies less than a word; or, by @flush, less than a line that does not cross one. */
static void bulkmem_flushcache_part(void (*flush)(void *in_line), void *to, const void *from,
				    size_t size)
{
	memcpy(to, from, size);
	if (flush)
		flush(to);
	else
		arch_wb_cache_pmem(to, size);
}

static void bulkmem_flushcache_cached(const struct bulkmem_flushcache_method *method, void *to,
				      const void *from, size_t size)
{
	size_t now = min_t(size_t, size, -(unsigned long)to % BULKMEM_LINE);

	if (now)
		bulkmem_flushcache_part(method->flush, to, from, now);
	to += now;
	from += now;
	size -= now;
	now = round_down(size, BULKMEM_LINE);
	if (now)
		method->cached(to, from, now);
	if (size > now)
		bulkmem_flushcache_part(method->flush, to + now, from + now, size - now);
}

static void bulkmem_flushcache_weak(const struct bulkmem_flushcache_method *method, void *to,
				    const void *from, size_t size)
{
	void __incoherent *weak = incoherent_unfenced(to);
	size_t now = min_t(size_t, size, -(unsigned long)to % WORD), done = now;

	if (now)
		bulkmem_flushcache_part(NULL, to, from, now);
	now = min_t(size_t, round_down(size - done, WORD),
		    -((unsigned long)to + done) % method->align);
	if (now)
		bulkmem_flushcache_store_words(weak + done, from + done, now);
	done += now;
	now = round_down(size - done, method->unit);
	if (now)
		method->weak(weak + done, from + done, now);
	done += now;
	now = round_down(size - done, WORD);
	if (now)
		bulkmem_flushcache_store_words(weak + done, from + done, now);
	done += now;
	if (size - done >= sizeof(u32)) {
		bulkmem_flushcache_store_half(weak + done, from + done);
		done += sizeof(u32);
	}
	if (size > done)
		bulkmem_flushcache_part(NULL, to + done, from + done, size - done);
}

void bulkmem_flushcache_by(const struct bulkmem_flushcache_method *method, void *to,
			   const void *from, size_t size)
{
	/* KASAN does not see the instructions. */
	kasan_check_read(from, size);
	kasan_check_write(to, size);
	if (method->cached)
		bulkmem_flushcache_cached(method, to, from, size);
	else
		bulkmem_flushcache_weak(method, to, from, size);
}

void bulkmem_flushcache(void *to, const void *from, size_t size)
{
	const struct bulkmem_flushcache_policy *policy = &bulkmem_flushcache_policy;
	bool small = size < READ_ONCE(policy->threshold);
	const struct bulkmem_flushcache_method *method =
		small ? READ_ONCE(policy->small) : READ_ONCE(policy->large);

	bulkmem_flushcache_by(method, to, from, size);
	bulkmem_flushcache_count(method, size);
}
