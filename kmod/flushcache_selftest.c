// SPDX-License-Identifier: GPL-2.0
/*
 * The self-test of copying to persistent memory: every method must copy all bytes,
 * and change nothing on either side of the copy and nothing in the original, before
 * it copies memory of others. The module does not load if a method fails.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": self-test of flushcache: " fmt

#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "bulkmem.h"
#include "flushcache.h"

#define DIRT		0xa5
/* On each side of the copy. */
#define GUARD		(2 * BULKMEM_LINE)
#define MOST_BYTES	(PAGE_SIZE + 3)
#define AREA_ORDER	1
#define AREA		(PAGE_SIZE << AREA_ORDER)

/* The method whose result is spoiled; always NULL in production builds. */
static const struct bulkmem_flushcache_method *planted;

#ifdef BULKMEM_TESTS
static int bulkmem_set_flushcache_fault(const char *value, const struct kernel_param *param)
{
	planted = bulkmem_flushcache_method_find(value);
	return planted ? 0 : -EINVAL;
}

static const struct kernel_param_ops flushcache_fault_ops = {
	.set = bulkmem_set_flushcache_fault,
};
module_param_cb(selftest_flushcache_fault, &flushcache_fault_ops, NULL, 0);
MODULE_PARM_DESC(selftest_flushcache_fault,
		 "For tests: spoil what this method copied, so that loading is refused (at load only)");
#endif

/* Content in which neighbouring bytes differ, also at the same place of other words and lines. */
static void __init bulkmem_flushcache_fill(u8 *area, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		area[i] = i * 167 + (i >> 8) * 13 + 1;
}

static int __init bulkmem_flushcache_test(const struct bulkmem_flushcache_method *method,
					  u8 *to, const u8 *from, size_t length)
{
	const u8 *wrong;
	size_t i;

	memset(to - GUARD, DIRT, length + 2 * GUARD);
	bulkmem_flushcache_by(method, to, from, length);
	if (method == planted && length)
		to[length - 1] ^= 1;
	if (memcmp(to, from, length)) {
		for (i = 0; to[i] == from[i]; i++)
			;
		wrong = to + i;
	} else {
		wrong = memchr_inv(to - GUARD, DIRT, GUARD);
		if (!wrong)
			wrong = memchr_inv(to + length, DIRT, GUARD);
	}
	if (!wrong)
		return 0;
	pr_err("%s: of %zu bytes to %zu from %zu in a line, byte %ld is wrong; not loading\n",
	       method->name, length, (unsigned long)to % BULKMEM_LINE,
	       (unsigned long)from % BULKMEM_LINE, (long)(wrong - to));
	return -EIO;
}

/* Every place of the copy's start in a line, with the original at changing places. */
static int __init bulkmem_flushcache_test_places(const struct bulkmem_flushcache_method *method,
						 u8 *area, const u8 *original)
{
	static const size_t lengths[] __initconst = {
		0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 71, 72,
		95, 96, 97, 127, 128, 129, 191, 200, 255, 256, 512, 1000, MOST_BYTES,
	};
	unsigned int place, i;
	int err;

	for (place = 0; place < BULKMEM_LINE; place++) {
		for (i = 0; i < ARRAY_SIZE(lengths); i++) {
			err = bulkmem_flushcache_test(method, area + GUARD + place,
						      original + (place * 7 + i) % BULKMEM_LINE,
						      lengths[i]);
			if (err)
				return err;
		}
		cond_resched();
	}
	return 0;
}

int __init bulkmem_flushcache_selftest(void)
{
	u8 *areas[3] = {};
	unsigned int i;
	int err = 0;

	BUILD_BUG_ON(MOST_BYTES + 2 * GUARD + BULKMEM_LINE > AREA);
	for (i = 0; i < ARRAY_SIZE(areas) && !err; i++) {
		areas[i] = (u8 *)__get_free_pages(GFP_KERNEL, AREA_ORDER);
		if (areas[i])
			bulkmem_flushcache_fill(areas[i], AREA);
		else
			err = -ENOMEM;
	}
	for (i = 0; i < BULKMEM_FLUSHCACHE_METHODS && !err; i++) {
		const struct bulkmem_flushcache_method *method = &bulkmem_flushcache_methods[i];

		if (!method->available())
			continue;
		err = bulkmem_flushcache_test_places(method, areas[0], areas[1]);
		if (!err && memcmp(areas[1], areas[2], AREA)) {
			pr_err("%s changes the original; not loading\n", method->name);
			err = -EIO;
		}
	}
	for (i = 0; i < ARRAY_SIZE(areas); i++)
		free_pages((unsigned long)areas[i], AREA_ORDER);
	return err;
}
