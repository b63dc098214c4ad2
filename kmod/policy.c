// SPDX-License-Identifier: GPL-2.0
/*
 * The choice of a method by total length: below the threshold one that leaves
 * the memory in the cache, from there on any. Defaults depend on the processor's
 * instructions, its cache and quirk.c.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/sizes.h>
#include <asm/cpufeature.h>
#include <asm/processor.h>

#include "bulkmem.h"
#include "compat.h"

struct bulkmem_policy bulkmem_policy = {
	.chunk = SZ_2M,
	.ahead = SZ_4K,
};

/* If the processor does not report the size, or a hypervisor reports nonsense. */
#define UNKNOWN_CACHE	SZ_8M

/* The size of the last level in CPUID leaf @leaf (Intel 4, AMD 0x8000001d), or 0. */
static u64 bulkmem_last_level(u32 leaf)
{
	u32 eax, ebx, ecx, edx, level, highest = 0;
	unsigned int i;
	u64 size = 0;

	/* No processor has as many; a hypervisor's table may have no end. */
	for (i = 0; i < 16; i++) {
		cpuid_count(leaf, i, &eax, &ebx, &ecx, &edx);
		if (!(eax & 0x1f))
			break;
		level = (eax >> 5) & 0x7;
		/* 2: instruction cache */
		if ((eax & 0x1f) == 2 || level < highest)
			continue;
		highest = level;
		/* ways, partitions, line size, sets: each minus one */
		size = ((ebx >> 22) + 1ULL) * (((ebx >> 12) & 0x3ff) + 1ULL) *
		       ((ebx & 0xfff) + 1ULL) * (ecx + 1ULL);
	}
	return size;
}

static u64 bulkmem_last_level_cache(void)
{
	u64 size = 0;

	switch (boot_cpu_data.x86_vendor) {
	case X86_VENDOR_AMD:
	case X86_VENDOR_HYGON:
		if (boot_cpu_has(X86_FEATURE_TOPOEXT))
			size = bulkmem_last_level(0x8000001d);
		break;
	default:
		if (boot_cpu_data.cpuid_level >= 4)
			size = bulkmem_last_level(4);
	}
	return size >= SZ_1M && size <= SZ_2G ? size : UNKNOWN_CACHE;
}

bool bulkmem_policy_forbids(const struct bulkmem_method *method, bool ignore_quirks)
{
	return method == &bulkmem_methods[BULKMEM_MOVNTI] && !ignore_quirks &&
	       bulkmem_movnt_slow();
}

static const struct bulkmem_method *bulkmem_default_cached(void)
{
	return &bulkmem_methods[boot_cpu_has(X86_FEATURE_ERMS) ?
				BULKMEM_REP_STOSB : BULKMEM_STOCK];
}

static const struct bulkmem_method *bulkmem_default_large(void)
{
	static const enum bulkmem_method_id best[] = {
		BULKMEM_CLZERO, BULKMEM_MOVNTI, BULKMEM_PREFETCHW,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(best); i++) {
		const struct bulkmem_method *method = &bulkmem_methods[best[i]];

		/* ignore_quirks allows a method, but does not make it the default. */
		if (method->available() && !bulkmem_policy_forbids(method, false))
			return method;
	}
	return bulkmem_default_cached();
}

int bulkmem_policy_settle(void)
{
	struct bulkmem_policy *policy = &bulkmem_policy;
	int err = 0;

	kernel_param_lock(THIS_MODULE);
	if (policy->large && bulkmem_policy_forbids(policy->large, policy->ignore_quirks)) {
		pr_err("%s is slow on this processor; ignore_quirks=1 if it was measured here to be fast\n",
		       policy->large->name);
		err = -EOPNOTSUPP;
		goto out;
	}
	if (!policy->large)
		policy->large = bulkmem_default_large();
	if (!policy->cached)
		policy->cached = bulkmem_default_cached();
	if (!policy->threshold_given)
		policy->threshold = bulkmem_last_level_cache();
	policy->settled = true;
	pr_info("extents of %llu bytes and more are cleared by %s, others by %s\n",
		policy->threshold, policy->large->name, policy->cached->name);
out:
	kernel_param_unlock(THIS_MODULE);
	return err;
}

struct bulkmem_plan bulkmem_policy_plan(u64 extent, bool *below)
{
	const struct bulkmem_policy *policy = &bulkmem_policy;

	*below = extent < READ_ONCE(policy->threshold);
	return (struct bulkmem_plan) {
		.method = *below ? READ_ONCE(policy->cached) : READ_ONCE(policy->large),
		.chunk = READ_ONCE(policy->chunk),
		.ahead = READ_ONCE(policy->ahead),
	};
}
