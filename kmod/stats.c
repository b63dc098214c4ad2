// SPDX-License-Identifier: GPL-2.0
/*
 * Counters in /sys/class/misc/bulkmem. They are exact: one set per processor,
 * added up when read.
 *
 * METHOD/extents counts the contiguous ranges that the method cleared,
 * METHOD/pages their 4 KiB pages, METHOD/bytes their bytes, METHOD/ns the time
 * that they took, interruptions included, METHOD/hinted the ranges whose total
 * length came from a hint. The pages around the touched one are an extent of
 * "stock". faults counts the huge pages cleared, skipped those of them below the
 * threshold, hints the live hints, hinted_processes the live processes that are
 * hinted as a whole, and unhinted_processes the children of such processes for
 * which there was no room. hinted_cgroups lists the numbers of the hinted cgroups,
 * which are the inode numbers of their folders.
 *
 * METHOD/longest is not a sum but a maximum, of all processors: the most bytes
 * between two reschedule points. Writing 0 to it starts again.
 *
 * The time is always counted: the clock is read two to four times for a huge
 * page, which is far below the noise of clearing it. The tracepoint reads no
 * clock of its own.
 */
#include <linux/atomic.h>
#include <linux/device.h>
#include <linux/kstrtox.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>

#include "bulkmem.h"
#include "copy.h"
#include "flushcache.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

struct method_counts {
	u64 extents;
	u64 pages;
	u64 bytes;
	u64 ns;
	u64 hinted;
};

struct counts {
	struct method_counts method[BULKMEM_METHODS];
	u64 faults;
	u64 skipped;
};

static DEFINE_PER_CPU(struct counts, counts);

/* The most bytes between two reschedule points, by method. */
struct longest {
	struct device_attribute attribute;
	atomic_long_t bytes;
};

static struct longest longests[BULKMEM_METHODS];

void bulkmem_stats_count(const char *function, const struct bulkmem_method *method,
			 u64 bytes, u64 ns, bool hinted)
{
	unsigned int id = bulkmem_method_id(method);

	this_cpu_inc(counts.method[id].extents);
	this_cpu_add(counts.method[id].pages, bytes >> PAGE_SHIFT);
	this_cpu_add(counts.method[id].bytes, bytes);
	this_cpu_add(counts.method[id].ns, ns);
	if (hinted)
		this_cpu_inc(counts.method[id].hinted);
	trace_bulkmem_extent(function, method->name, bytes, ns, hinted);
}

void bulkmem_stats_stretch(const struct bulkmem_method *method, size_t bytes)
{
	atomic_long_t *longest = &longests[bulkmem_method_id(method)].bytes;
	long before = atomic_long_read(longest);

	while ((long)bytes > before && !atomic_long_try_cmpxchg(longest, &before, bytes))
		;
}

void bulkmem_stats_fault(bool below)
{
	this_cpu_inc(counts.faults);
	if (below)
		this_cpu_inc(counts.skipped);
}

/* @offset is that of the counter in struct counts. */
struct counter {
	struct device_attribute attribute;
	size_t offset;
};

static ssize_t bulkmem_show_counter(struct device *device, struct device_attribute *attribute,
				    char *buffer)
{
	size_t offset = container_of(attribute, struct counter, attribute)->offset;
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*(u64 *)((char *)per_cpu_ptr(&counts, cpu) + offset));
	return sysfs_emit(buffer, "%llu\n", sum);
}

static ssize_t bulkmem_show_hints(struct device *device, struct device_attribute *attribute,
				  char *buffer)
{
	return sysfs_emit(buffer, "%lu\n", bulkmem_hint_count());
}

static ssize_t bulkmem_show_processes(struct device *device, struct device_attribute *attribute,
				      char *buffer)
{
	return sysfs_emit(buffer, "%lu\n", bulkmem_process_count());
}

static ssize_t bulkmem_show_unhinted(struct device *device, struct device_attribute *attribute,
				     char *buffer)
{
	return sysfs_emit(buffer, "%lu\n", bulkmem_process_unhinted());
}

static ssize_t bulkmem_show_cgroups(struct device *device, struct device_attribute *attribute,
				    char *buffer)
{
	return bulkmem_cgroup_list(buffer);
}

static struct device_attribute hints = __ATTR(hints, 0444, bulkmem_show_hints, NULL);
static struct device_attribute processes =
	__ATTR(hinted_processes, 0444, bulkmem_show_processes, NULL);
static struct device_attribute unhinted =
	__ATTR(unhinted_processes, 0444, bulkmem_show_unhinted, NULL);
static struct device_attribute cgroups =
	__ATTR(hinted_cgroups, 0444, bulkmem_show_cgroups, NULL);

#define COUNTER(_name, _offset) {					\
	.attribute = __ATTR(_name, 0444, bulkmem_show_counter, NULL),		\
	.offset = _offset,						\
}

static struct counter faults = COUNTER(faults, offsetof(struct counts, faults));
static struct counter skipped = COUNTER(skipped, offsetof(struct counts, skipped));

static struct attribute *common_attributes[] = {
	&faults.attribute.attr,
	&skipped.attribute.attr,
	&hints.attr,
	&processes.attr,
	&unhinted.attr,
	&cgroups.attr,
	NULL
};

static const struct attribute_group common_group = { .attrs = common_attributes };

static ssize_t bulkmem_show_longest(struct device *device, struct device_attribute *attribute,
				    char *buffer)
{
	struct longest *longest = container_of(attribute, struct longest, attribute);

	return sysfs_emit(buffer, "%ld\n", atomic_long_read(&longest->bytes));
}

static ssize_t bulkmem_store_longest(struct device *device, struct device_attribute *attribute,
				     const char *buffer, size_t length)
{
	struct longest *longest = container_of(attribute, struct longest, attribute);
	unsigned long bytes;
	int err = kstrtoul(buffer, 0, &bytes);

	if (err || bytes)
		return -EINVAL;
	atomic_long_set(&longest->bytes, 0);
	return length;
}

/* The counters of each method. */
static const struct counter method_counters[] = {
	COUNTER(extents, offsetof(struct method_counts, extents)),
	COUNTER(pages, offsetof(struct method_counts, pages)),
	COUNTER(bytes, offsetof(struct method_counts, bytes)),
	COUNTER(ns, offsetof(struct method_counts, ns)),
	COUNTER(hinted, offsetof(struct method_counts, hinted)),
};

#define PER_METHOD	ARRAY_SIZE(method_counters)

static struct counter counters[BULKMEM_METHODS][PER_METHOD];
/* The counters, longest, and NULL. */
static struct attribute *attributes[BULKMEM_METHODS][PER_METHOD + 2];
static struct attribute_group groups[BULKMEM_METHODS];

/* Filled in by bulkmem_stats_init(); the last element stays NULL. */
const struct attribute_group *bulkmem_stats_groups[BULKMEM_METHODS + 4] = { &common_group };

void bulkmem_stats_init(void)
{
	unsigned int id, i;

	for (id = 0; id < BULKMEM_METHODS; id++) {
		for (i = 0; i < PER_METHOD; i++) {
			counters[id][i] = method_counters[i];
			counters[id][i].offset += offsetof(struct counts, method[id]);
			attributes[id][i] = &counters[id][i].attribute.attr;
		}
		longests[id].attribute = (struct device_attribute)
			__ATTR(longest, 0644, bulkmem_show_longest, bulkmem_store_longest);
		/* Without what the self-test cleared. */
		atomic_long_set(&longests[id].bytes, 0);
		attributes[id][PER_METHOD] = &longests[id].attribute.attr;
		groups[id].name = bulkmem_methods[id].name;
		groups[id].attrs = attributes[id];
		bulkmem_stats_groups[id + 1] = &groups[id];
	}
	bulkmem_copy_stats_init();
	bulkmem_stats_groups[id + 1] = &bulkmem_copy_group;
	bulkmem_flushcache_stats_init();
	bulkmem_stats_groups[id + 2] = &bulkmem_flushcache_group;
}
