// SPDX-License-Identifier: GPL-2.0
/*
 * The parameters in /sys/module/bulkmem/parameters and on the command line of
 * insmod. Each value is checked before it changes anything. The kernel holds
 * kernel_param_lock() around every set and get.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kernel.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/sizes.h>
#include <linux/sysfs.h>

#include "bulkmem.h"
#include "copy.h"
#include "flushcache.h"

static int bulkmem_find_available(const char *value, const struct bulkmem_method **method)
{
	*method = bulkmem_method_find(value);
	if (!*method)
		return -EINVAL;
	return (*method)->available() ? 0 : -EOPNOTSUPP;
}

static int bulkmem_get_method(char *buffer, const struct kernel_param *param)
{
	const struct bulkmem_method *method = *(const struct bulkmem_method **)param->arg;

	/* Still loading: the defaults are not filled in. */
	if (!method)
		return -EAGAIN;
	return sysfs_emit(buffer, "%s\n", method->name);
}

static int bulkmem_set_large(const char *value, const struct kernel_param *param)
{
	const struct bulkmem_method *method;
	int err = bulkmem_find_available(value, &method);

	if (err)
		return err;
	/* While loading, ignore_quirks=1 may follow. */
	if (bulkmem_policy.settled &&
	    bulkmem_policy_forbids(method, bulkmem_policy.ignore_quirks))
		return -EOPNOTSUPP;
	WRITE_ONCE(bulkmem_policy.large, method);
	return 0;
}

static int bulkmem_set_cached(const char *value, const struct kernel_param *param)
{
	const struct bulkmem_method *method;
	int err = bulkmem_find_available(value, &method);

	if (err)
		return err;
	if (!method->cached)
		return -EINVAL;
	WRITE_ONCE(bulkmem_policy.cached, method);
	return 0;
}

static int bulkmem_set_threshold(const char *value, const struct kernel_param *param)
{
	u64 bytes;
	int err = kstrtou64(value, 0, &bytes);

	if (err)
		return -EINVAL;
	WRITE_ONCE(bulkmem_policy.threshold, bytes);
	bulkmem_policy.threshold_given = true;
	return 0;
}

static int bulkmem_get_threshold(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%llu\n", bulkmem_policy.threshold);
}

static int bulkmem_set_size(const char *value, const struct kernel_param *param, u64 unit, u64 max)
{
	u64 bytes;
	int err = kstrtou64(value, 0, &bytes);

	if (err || !bytes || bytes % unit || bytes > max)
		return -EINVAL;
	WRITE_ONCE(*(size_t *)param->arg, bytes);
	return 0;
}

static int bulkmem_get_size(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%zu\n", *(size_t *)param->arg);
}

static int bulkmem_set_chunk(const char *value, const struct kernel_param *param)
{
	return bulkmem_set_size(value, param, PAGE_SIZE, SZ_1G);
}

static int bulkmem_set_ahead(const char *value, const struct kernel_param *param)
{
	return bulkmem_set_size(value, param, BULKMEM_LINE, SZ_64K);
}

static int bulkmem_set_ignore_quirks(const char *value, const struct kernel_param *param)
{
	bool ignore;
	int err = kstrtobool(value, &ignore);

	if (err)
		return err;
	if (bulkmem_policy.settled && bulkmem_policy_forbids(bulkmem_policy.large, ignore))
		return -EOPNOTSUPP;
	bulkmem_policy.ignore_quirks = ignore;
	return 0;
}

static int bulkmem_get_ignore_quirks(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%c\n", bulkmem_policy.ignore_quirks ? 'Y' : 'N');
}

static int bulkmem_get_available(char *buffer, const struct kernel_param *param)
{
	unsigned int i;
	int length = 0;

	for (i = 0; i < BULKMEM_METHODS; i++)
		if (bulkmem_methods[i].available())
			length += sysfs_emit_at(buffer, length, "%s%s", length ? " " : "",
						bulkmem_methods[i].name);
	return length + sysfs_emit_at(buffer, length, "\n");
}

static int bulkmem_get_copy_method(char *buffer, const struct kernel_param *param)
{
	const struct bulkmem_copy_method *method =
		*(const struct bulkmem_copy_method **)param->arg;

	return sysfs_emit(buffer, "%s\n", method->name);
}

static int bulkmem_set_copy_method(const char *value, const struct kernel_param *param)
{
	const struct bulkmem_copy_method *method = bulkmem_copy_method_find(value);

	if (!method)
		return -EINVAL;
	if (!method->available())
		return -EOPNOTSUPP;
	if (method->weak && param->arg == &bulkmem_copy_policy.cached)
		return -EINVAL;
	WRITE_ONCE(*(const struct bulkmem_copy_method **)param->arg, method);
	return 0;
}

static int bulkmem_set_bytes(const char *value, const struct kernel_param *param)
{
	u64 bytes;
	int err = kstrtou64(value, 0, &bytes);

	if (err)
		return -EINVAL;
	WRITE_ONCE(*(u64 *)param->arg, bytes);
	return 0;
}

static int bulkmem_get_bytes(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%llu\n", *(u64 *)param->arg);
}

static int bulkmem_get_copy_available(char *buffer, const struct kernel_param *param)
{
	unsigned int i;
	int length = 0;

	for (i = 0; i < BULKMEM_COPY_METHODS; i++)
		if (bulkmem_copy_methods[i].available())
			length += sysfs_emit_at(buffer, length, "%s%s", length ? " " : "",
						bulkmem_copy_methods[i].name);
	return length + sysfs_emit_at(buffer, length, "\n");
}

static int bulkmem_get_flushcache_method(char *buffer, const struct kernel_param *param)
{
	const struct bulkmem_flushcache_method *method =
		*(const struct bulkmem_flushcache_method **)param->arg;

	return sysfs_emit(buffer, "%s\n", method->name);
}

static int bulkmem_set_flushcache_method(const char *value, const struct kernel_param *param)
{
	const struct bulkmem_flushcache_method *method = bulkmem_flushcache_method_find(value);

	if (!method)
		return -EINVAL;
	if (!method->available())
		return -EOPNOTSUPP;
	/* While loading, flushcache=1 may follow. */
	if (bulkmem_flushcache_policy.settled && !bulkmem_flushcache_policy.replaced &&
	    bulkmem_flushcache_method_id(method) != BULKMEM_FLUSHCACHE_STOCK)
		return -EOPNOTSUPP;
	WRITE_ONCE(*(const struct bulkmem_flushcache_method **)param->arg, method);
	return 0;
}

static int bulkmem_get_flushcache_available(char *buffer, const struct kernel_param *param)
{
	unsigned int i;
	int length = 0;

	for (i = 0; i < BULKMEM_FLUSHCACHE_METHODS; i++)
		if (bulkmem_flushcache_methods[i].available())
			length += sysfs_emit_at(buffer, length, "%s%s", length ? " " : "",
						bulkmem_flushcache_methods[i].name);
	return length + sysfs_emit_at(buffer, length, "\n");
}

/* sysfs refuses writes by the permissions; this refuses them in insmod. */
static int bulkmem_set_available(const char *value, const struct kernel_param *param)
{
	return -EINVAL;
}

#define SETTING(_name, _set, _get, _arg, _perm, _description)		\
	static const struct kernel_param_ops ops_##_name = {		\
		.set = _set,						\
		.get = _get,						\
	};								\
	module_param_cb(_name, &ops_##_name, _arg, _perm);		\
	MODULE_PARM_DESC(_name, _description)

SETTING(method, bulkmem_set_large, bulkmem_get_method, &bulkmem_policy.large, 0644,
	"Method for extents at or above the threshold, one of those in available");
SETTING(cached_method, bulkmem_set_cached, bulkmem_get_method, &bulkmem_policy.cached, 0644,
	"Method for extents below the threshold: stock, rep_stosb, rep_stosq or prefetchw");
SETTING(threshold, bulkmem_set_threshold, bulkmem_get_threshold, NULL, 0644,
	"Smallest large extent in bytes; 2097152: every huge page (default: size of the last-level cache)");
SETTING(chunk, bulkmem_set_chunk, bulkmem_get_size, &bulkmem_policy.chunk, 0644,
	"Bytes between two points where the kernel may reschedule: a multiple of 4096, up to 1 GiB (default: 2 MiB)");
SETTING(prefetch_distance, bulkmem_set_ahead, bulkmem_get_size, &bulkmem_policy.ahead, 0644,
	"Prefetch distance of prefetchw, and of copies by movnti, in bytes: a multiple of 64, up to 65536 (default: 4096)");
SETTING(ignore_quirks, bulkmem_set_ignore_quirks, bulkmem_get_ignore_quirks, NULL, 0644,
	"Allow method=movnti on processors where it is known to be slow (bool)");
SETTING(copy_method, bulkmem_set_copy_method, bulkmem_get_copy_method, &bulkmem_copy_policy.large,
	0644,
	"Method for copies of copy_threshold bytes and more, one of those in copy_available (default: stock)");
SETTING(copy_cached_method, bulkmem_set_copy_method, bulkmem_get_copy_method,
	&bulkmem_copy_policy.cached, 0644,
	"Method for smaller copies: stock or rep_movsb (default: stock)");
SETTING(copy_threshold, bulkmem_set_bytes, bulkmem_get_bytes, &bulkmem_copy_policy.threshold, 0644,
	"Smallest large copy in bytes (default: 2097152, every huge page)");
SETTING(copy_available, bulkmem_set_available, bulkmem_get_copy_available, NULL, 0444,
	"Methods of copying that this processor supports (read only)");
SETTING(available, bulkmem_set_available, bulkmem_get_available, NULL, 0444,
	"Methods that this processor supports (read only)");
SETTING(flushcache_method, bulkmem_set_flushcache_method, bulkmem_get_flushcache_method,
	&bulkmem_flushcache_policy.large, 0644,
	"Method for copies of flushcache_threshold bytes and more to persistent memory, one of those in flushcache_available; needs flushcache=1 (default: stock)");
SETTING(flushcache_small_method, bulkmem_set_flushcache_method, bulkmem_get_flushcache_method,
	&bulkmem_flushcache_policy.small, 0644,
	"Method for smaller copies to persistent memory, as above (default: stock)");
SETTING(flushcache_threshold, bulkmem_set_bytes, bulkmem_get_bytes,
	&bulkmem_flushcache_policy.threshold, 0644,
	"Smallest large copy to persistent memory in bytes (default: 768)");
SETTING(flushcache_available, bulkmem_set_available, bulkmem_get_flushcache_available, NULL, 0444,
	"Methods of copying to persistent memory that this processor supports (read only)");
