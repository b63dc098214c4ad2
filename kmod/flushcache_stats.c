// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of copies to persistent memory in /sys/class/misc/bulkmem/flushcache.
 * They are exact: one set per processor, added up when read.
 *
 * METHOD_calls counts the calls of __memcpy_flushcache() that the method copied,
 * METHOD_bytes their bytes. There is neither a time nor a trace: reading the clock
 * twice would take longer than copying a few hundred bytes.
 */
#include <linux/device.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>

#include "bulkmem.h"
#include "flushcache.h"

struct flushcache_counts {
	struct {
		u64 calls;
		u64 bytes;
	} method[BULKMEM_FLUSHCACHE_METHODS];
};

static DEFINE_PER_CPU(struct flushcache_counts, flushcache_counts);

/* In any context: the additions are single instructions. */
void bulkmem_flushcache_count(const struct bulkmem_flushcache_method *method, size_t size)
{
	unsigned int id = bulkmem_flushcache_method_id(method);

	this_cpu_inc(flushcache_counts.method[id].calls);
	this_cpu_add(flushcache_counts.method[id].bytes, size);
}

/* @offset is that of the counter in struct flushcache_counts. */
struct flushcache_counter {
	struct device_attribute attribute;
	size_t offset;
};

static ssize_t bulkmem_show_flushcache(struct device *device, struct device_attribute *attribute,
				       char *buffer)
{
	size_t offset = container_of(attribute, struct flushcache_counter, attribute)->offset;
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*(u64 *)((char *)per_cpu_ptr(&flushcache_counts, cpu) + offset));
	return sysfs_emit(buffer, "%llu\n", sum);
}

#define COUNTER(_name, _member) {					\
	.attribute = __ATTR(_name, 0444, bulkmem_show_flushcache, NULL),	\
	.offset = offsetof(struct flushcache_counts, _member),		\
}

/* Those of a method begin with its name in bulkmem_flushcache_methods. */
static struct flushcache_counter counters[] = {
	COUNTER(stock_calls, method[BULKMEM_FLUSHCACHE_STOCK].calls),
	COUNTER(stock_bytes, method[BULKMEM_FLUSHCACHE_STOCK].bytes),
	COUNTER(movnti_calls, method[BULKMEM_FLUSHCACHE_MOVNTI].calls),
	COUNTER(movnti_bytes, method[BULKMEM_FLUSHCACHE_MOVNTI].bytes),
	COUNTER(clwb_calls, method[BULKMEM_FLUSHCACHE_CLWB].calls),
	COUNTER(clwb_bytes, method[BULKMEM_FLUSHCACHE_CLWB].bytes),
	COUNTER(clflushopt_calls, method[BULKMEM_FLUSHCACHE_CLFLUSHOPT].calls),
	COUNTER(clflushopt_bytes, method[BULKMEM_FLUSHCACHE_CLFLUSHOPT].bytes),
};

/* Filled in by bulkmem_flushcache_stats_init(); the last element stays NULL. */
static struct attribute *attributes[ARRAY_SIZE(counters) + 1];

const struct attribute_group bulkmem_flushcache_group = {
	.name = "flushcache",
	.attrs = attributes,
};

void bulkmem_flushcache_stats_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(counters); i++)
		attributes[i] = &counters[i].attribute.attr;
}
