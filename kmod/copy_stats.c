// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of copies in /sys/class/misc/bulkmem/copies. They are exact: one set per
 * processor, added up when read.
 *
 * METHOD_extents counts the contiguous ranges that the method copied, METHOD_bytes
 * their bytes. The pages around the written one are an extent of "stock". faults
 * counts the huge pages copied, skipped those of them below copy_threshold, redone
 * those that the kernel's functions copied because the method met an exception,
 * failed those that could not be copied because of a hardware error.
 */
#include <linux/device.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>

#include "bulkmem.h"
#include "copy.h"

struct copy_counts {
	struct {
		u64 extents;
		u64 bytes;
	} method[BULKMEM_COPY_METHODS];
	u64 faults;
	u64 skipped;
	u64 redone;
	u64 failed;
};

static DEFINE_PER_CPU(struct copy_counts, copy_counts);

void bulkmem_copy_count(const struct bulkmem_copy_method *method, unsigned int extents,
			u64 pages)
{
	unsigned int id = bulkmem_copy_method_id(method);

	this_cpu_add(copy_counts.method[id].extents, extents);
	this_cpu_add(copy_counts.method[id].bytes, pages << PAGE_SHIFT);
}

void bulkmem_copy_count_fault(bool below)
{
	this_cpu_inc(copy_counts.faults);
	if (below)
		this_cpu_inc(copy_counts.skipped);
}

void bulkmem_copy_count_redone(void)
{
	this_cpu_inc(copy_counts.redone);
}

void bulkmem_copy_count_failed(void)
{
	this_cpu_inc(copy_counts.failed);
}

/* @offset is that of the counter in struct copy_counts. */
struct copy_counter {
	struct device_attribute attribute;
	size_t offset;
};

static ssize_t bulkmem_show_copy(struct device *device, struct device_attribute *attribute,
				 char *buffer)
{
	size_t offset = container_of(attribute, struct copy_counter, attribute)->offset;
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*(u64 *)((char *)per_cpu_ptr(&copy_counts, cpu) + offset));
	return sysfs_emit(buffer, "%llu\n", sum);
}

#define COUNTER(_name, _member) {					\
	.attribute = __ATTR(_name, 0444, bulkmem_show_copy, NULL),	\
	.offset = offsetof(struct copy_counts, _member),		\
}

/* Those of a method begin with its name in bulkmem_copy_methods. */
static struct copy_counter counters[] = {
	COUNTER(faults, faults),
	COUNTER(skipped, skipped),
	COUNTER(redone, redone),
	COUNTER(failed, failed),
	COUNTER(stock_extents, method[BULKMEM_COPY_STOCK].extents),
	COUNTER(stock_bytes, method[BULKMEM_COPY_STOCK].bytes),
	COUNTER(rep_movsb_extents, method[BULKMEM_COPY_REP_MOVSB].extents),
	COUNTER(rep_movsb_bytes, method[BULKMEM_COPY_REP_MOVSB].bytes),
	COUNTER(movnti_extents, method[BULKMEM_COPY_MOVNTI].extents),
	COUNTER(movnti_bytes, method[BULKMEM_COPY_MOVNTI].bytes),
};

/* Filled in by bulkmem_copy_stats_init(); the last element stays NULL. */
static struct attribute *attributes[ARRAY_SIZE(counters) + 1];

const struct attribute_group bulkmem_copy_group = {
	.name = "copies",
	.attrs = attributes,
};

void bulkmem_copy_stats_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(counters); i++)
		attributes[i] = &counters[i].attribute.attr;
}
