// SPDX-License-Identifier: GPL-2.0
/*
 * The self-test: every method must zero all of a dirty buffer of our own and
 * nothing on either side of it before it clears memory of others. The module
 * does not load if a method fails.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": self-test: " fmt

#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "bulkmem.h"

#define DIRT		0xa5
#define LINES		(PAGE_SIZE / BULKMEM_LINE)
/* The cleared pages lie between two guard pages. */
#define MOST_PAGES	17UL
#define AREA_ORDER	5
#define AREA		(PAGE_SIZE << AREA_ORDER)

/* The method whose result is spoiled; always NULL in production builds. */
static const struct bulkmem_method *planted;

#ifdef BULKMEM_TESTS
static int bulkmem_set_fault(const char *value, const struct kernel_param *param)
{
	planted = bulkmem_method_find(value);
	return planted ? 0 : -EINVAL;
}

static int bulkmem_get_fault(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", planted ? planted->name : "");
}

static const struct kernel_param_ops fault_ops = {
	.set = bulkmem_set_fault,
	.get = bulkmem_get_fault,
};
module_param_cb(selftest_fault, &fault_ops, NULL, 0400);
MODULE_PARM_DESC(selftest_fault,
		 "For tests: spoil what this method cleared, so that loading is refused (at load only)");
#endif

/* Returns the offset of the first byte that is not @expected, or -1. */
static long __init bulkmem_wrong_at(const u8 *area, size_t from, size_t length, u8 expected)
{
	const u8 *wrong = memchr_inv(area + from, expected, length);

	return wrong ? wrong - area : -1;
}

/* Checks that of the @upto bytes in @area exactly @length bytes at @from are zero. */
static int __init bulkmem_check(const struct bulkmem_method *method, u8 *area, size_t from,
				size_t length, size_t upto)
{
	long at;

	if (method == planted)
		area[from + length - 1] = DIRT;
	at = bulkmem_wrong_at(area, from, length, 0);
	if (at < 0)
		at = bulkmem_wrong_at(area, 0, from, DIRT);
	if (at < 0)
		at = bulkmem_wrong_at(area, from + length, upto - from - length, DIRT);
	if (at < 0)
		return 0;
	pr_err("%s: of %zu bytes to zero at offset %zu, byte %ld is %#04x; not loading\n",
	       method->name, length, from, at - (long)from, area[at]);
	return -EIO;
}

static void __init bulkmem_zero_lines(const struct bulkmem_method *method, void *kaddr,
				      size_t length, size_t ahead)
{
	if (method->weak) {
		void __incoherent *addr = incoherent_begin(kaddr);

		method->weak(addr, length);
		incoherent_end(addr);
	} else {
		method->cached(kaddr, length, ahead);
	}
}

/* Tests the store function alone: from each line of a page, across page ends. */
static int __init bulkmem_test_lines(const struct bulkmem_method *method, u8 *area)
{
	static const size_t lines[] __initconst = {
		1, 2, 3, 4, 5, LINES - 1, LINES, LINES + 1, 2 * LINES - 1, 2 * LINES + 1,
	};
	static const size_t aheads[] __initconst = { BULKMEM_LINE, SZ_4K, SZ_64K };
	const size_t upto = 5 * PAGE_SIZE;
	unsigned int offset, i;
	int err;

	for (offset = 0; offset < LINES; offset++) {
		for (i = 0; i < ARRAY_SIZE(lines); i++) {
			size_t from = PAGE_SIZE + offset * BULKMEM_LINE;
			size_t length = lines[i] * BULKMEM_LINE;

			memset(area, DIRT, upto);
			bulkmem_zero_lines(method, area + from, length,
					   aheads[(offset + i) % ARRAY_SIZE(aheads)]);
			err = bulkmem_check(method, area, from, length, upto);
			if (err)
				return err;
		}
		cond_resched();
	}
	return 0;
}

/* Tests whole ranges: every touched page, chunks that divide the range and others. */
static int __init bulkmem_test_pages(const struct bulkmem_method *method, u8 *area)
{
	static const size_t chunks[] __initconst = { SZ_4K, 3 * SZ_4K, SZ_2M };
	static const unsigned long pages[] __initconst = { 1, 2, 3, 4, 5, 6, 8, 16, MOST_PAGES };
	struct bulkmem_plan plan = { .method = method, .ahead = SZ_4K };
	struct bulkmem_parts parts;
	unsigned long hot, at;
	unsigned int i, j;
	int err;

	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		size_t length = pages[i] << PAGE_SHIFT;

		for (j = 0; j < ARRAY_SIZE(chunks); j++) {
			plan.chunk = chunks[j];
			/* The last iteration is without a touched page. */
			for (at = 0; at <= pages[i]; at++) {
				hot = at < pages[i] ? at : BULKMEM_NO_HOT;
				memset(area, DIRT, length + 2 * PAGE_SIZE);
				bulkmem_clear_around(&plan, area + PAGE_SIZE, pages[i], hot,
						     &parts);
				err = bulkmem_check(method, area, PAGE_SIZE, length,
						    length + 2 * PAGE_SIZE);
				if (err) {
					pr_err("chunk %zu, touched page %ld\n", plan.chunk,
					       (long)hot);
					return err;
				}
			}
		}
	}
	return 0;
}

int __init bulkmem_selftest(void)
{
	unsigned int i;
	int err = 0;
	u8 *area;

	BUILD_BUG_ON((MOST_PAGES + 2) * PAGE_SIZE > AREA);
	area = (u8 *)__get_free_pages(GFP_KERNEL, AREA_ORDER);
	if (!area)
		return -ENOMEM;
	for (i = 0; i < BULKMEM_METHODS && !err; i++) {
		const struct bulkmem_method *method = &bulkmem_methods[i];

		if (!method->available())
			continue;
		if (method->lines)
			err = bulkmem_test_lines(method, area);
		if (!err)
			err = bulkmem_test_pages(method, area);
	}
	free_pages((unsigned long)area, AREA_ORDER);
	return err;
}
