// SPDX-License-Identifier: GPL-2.0
/*
 * The table of methods. Parameters, counters and the self-test iterate over it,
 * so a new method needs only its store function and an entry here.
 */
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/processor.h>

#include "bulkmem.h"

static bool bulkmem_always(void)
{
	return true;
}

static bool bulkmem_has_rep_stosb(void)
{
	return boot_cpu_has(X86_FEATURE_ERMS) || boot_cpu_has(X86_FEATURE_REP_GOOD);
}

static bool bulkmem_has_movnti(void)
{
	return boot_cpu_has(X86_FEATURE_XMM2);
}

/* CLZERO zeroes one cache line, and the store function assumes BULKMEM_LINE. */
static bool bulkmem_has_clzero(void)
{
	return boot_cpu_has(X86_FEATURE_CLZERO) &&
	       boot_cpu_data.x86_clflush_size == BULKMEM_LINE;
}

static bool bulkmem_has_prefetchw(void)
{
	return boot_cpu_has(X86_FEATURE_3DNOWPREFETCH);
}

const struct bulkmem_method bulkmem_methods[BULKMEM_METHODS] = {
	[BULKMEM_STOCK] = {
		.name = "stock",
		.available = bulkmem_always,
		.cached = bulkmem_store_pages,
	},
	[BULKMEM_REP_STOSB] = {
		.name = "rep_stosb",
		.lines = true,
		.available = bulkmem_has_rep_stosb,
		.cached = bulkmem_store_rep_stosb,
	},
	[BULKMEM_REP_STOSQ] = {
		.name = "rep_stosq",
		.lines = true,
		.available = bulkmem_always,
		.cached = bulkmem_store_rep_stosq,
	},
	[BULKMEM_MOVNTI] = {
		.name = "movnti",
		.lines = true,
		.available = bulkmem_has_movnti,
		.weak = bulkmem_store_movnti,
	},
	[BULKMEM_CLZERO] = {
		.name = "clzero",
		.lines = true,
		.available = bulkmem_has_clzero,
		.weak = bulkmem_store_clzero,
	},
	[BULKMEM_PREFETCHW] = {
		.name = "prefetchw",
		.lines = true,
		.available = bulkmem_has_prefetchw,
		.cached = bulkmem_store_prefetchw,
	},
};

const struct bulkmem_method *bulkmem_method_find(const char *name)
{
	unsigned int i;

	for (i = 0; i < BULKMEM_METHODS; i++)
		if (sysfs_streq(name, bulkmem_methods[i].name))
			return &bulkmem_methods[i];
	return NULL;
}
