// SPDX-License-Identifier: GPL-2.0
/*
 * The self-test of copying: every method must copy all of a buffer of our own, and
 * change nothing on either side of the copy and nothing in the original, before it
 * copies memory of others. Methods with instructions of our own must also stop,
 * and say where, if a load raises an exception. The module does not load if a
 * method fails.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": self-test of copying: " fmt

#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "bulkmem.h"
#include "copy.h"

#define DIRT		0xa5
#define LINES		(PAGE_SIZE / BULKMEM_LINE)
/* The copy lies between two guard pages. */
#define MOST_PAGES	9UL
#define AREA_ORDER	4
#define AREA		(PAGE_SIZE << AREA_ORDER)

/* The method whose result is spoiled; always NULL in production builds. */
static const struct bulkmem_copy_method *planted;

#ifdef BULKMEM_TESTS
static int bulkmem_set_copy_fault(const char *value, const struct kernel_param *param)
{
	planted = bulkmem_copy_method_find(value);
	return planted ? 0 : -EINVAL;
}

static const struct kernel_param_ops copy_fault_ops = {
	.set = bulkmem_set_copy_fault,
};
module_param_cb(selftest_copy_fault, &copy_fault_ops, NULL, 0);
MODULE_PARM_DESC(selftest_copy_fault,
		 "For tests: spoil what this method copied, so that loading is refused (at load only)");
#endif

/* Content in which no two words are the same. */
static void __init bulkmem_copy_fill(u8 *area, size_t length)
{
	u32 *word = (u32 *)area;
	size_t i;

	for (i = 0; i < length / sizeof(*word); i++)
		word[i] = (u32)i * 2654435761u + 1;
}

/* Returns the offset of the first byte of @area that differs from @other, or -1. */
static long __init bulkmem_copy_differs_at(const u8 *area, const u8 *other, size_t from,
					   size_t length)
{
	size_t i;

	if (!memcmp(area + from, other + from, length))
		return -1;
	for (i = from; area[i] == other[i]; i++)
		;
	return i;
}

static long __init bulkmem_copy_written_at(const u8 *area, size_t from, size_t length)
{
	const u8 *written = memchr_inv(area + from, DIRT, length);

	return written ? written - area : -1;
}

/*
 * Checks that of the @upto bytes at @to exactly those from @from up to @end, without
 * those from @first up to @last, are as at @original.
 */
static int __init bulkmem_copy_check(const struct bulkmem_copy_method *method, u8 *to,
				     const u8 *original, size_t from, size_t first,
				     size_t last, size_t end, size_t upto)
{
	long at;

	if (method == planted)
		to[first > from ? from : end - 1] ^= 1;
	at = bulkmem_copy_differs_at(to, original, from, first - from);
	if (at < 0)
		at = bulkmem_copy_differs_at(to, original, last, end - last);
	if (at < 0)
		at = bulkmem_copy_written_at(to, 0, from);
	if (at < 0)
		at = bulkmem_copy_written_at(to, first, last - first);
	if (at < 0)
		at = bulkmem_copy_written_at(to, end, upto - end);
	if (at < 0)
		return 0;
	pr_err("%s: of %zu bytes at offset %zu, without %zu at %zu, byte %ld is wrong; not loading\n",
	       method->name, end - from, from, last - first, first, at);
	return -EIO;
}

static size_t __init bulkmem_copy_lines(const struct bulkmem_copy_method *method, void *to,
					const void *from, size_t length, size_t ahead)
{
	size_t left;

	if (method->weak) {
		void __incoherent *addr = incoherent_begin(to);

		left = method->weak(addr, from, length, ahead);
		incoherent_end(addr);
	} else {
		left = method->cached(to, from, length);
	}
	return left;
}

/* Tests the store function alone: from each line of a page, across page ends. */
static int __init bulkmem_copy_test_lines(const struct bulkmem_copy_method *method, u8 *to,
					  const u8 *original)
{
	static const size_t lines[] __initconst = {
		1, 2, 3, 4, 5, LINES - 1, LINES, LINES + 1, 2 * LINES + 1,
	};
	static const size_t aheads[] __initconst = { BULKMEM_LINE, SZ_4K, SZ_64K };
	const size_t upto = 5 * PAGE_SIZE;
	unsigned int offset, i;
	int err;

	for (offset = 0; offset < LINES; offset++) {
		for (i = 0; i < ARRAY_SIZE(lines); i++) {
			size_t from = PAGE_SIZE + offset * BULKMEM_LINE;
			size_t length = lines[i] * BULKMEM_LINE;

			memset(to, DIRT, upto);
			if (bulkmem_copy_lines(method, to + from, original + from, length,
					       aheads[(offset + i) % ARRAY_SIZE(aheads)])) {
				pr_err("%s stopped for no reason; not loading\n", method->name);
				return -EIO;
			}
			err = bulkmem_copy_check(method, to, original, from, from, from,
						 from + length, upto);
			if (err)
				return err;
		}
		cond_resched();
	}
	return 0;
}

/* Tests whole ranges: every place of the hot pages, chunks that divide the range and others. */
static int __init bulkmem_copy_test_pages(const struct bulkmem_copy_method *method, u8 *to,
					  const u8 *original)
{
	static const size_t chunks[] __initconst = { SZ_4K, 3 * SZ_4K, SZ_2M };
	static const unsigned long pages[] __initconst = { 1, 2, 3, 5, 8, MOST_PAGES };
	struct bulkmem_copy_plan plan = { .method = method, .ahead = SZ_4K };
	unsigned long first, end;
	unsigned int i, j;
	int err;

	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		size_t length = pages[i] << PAGE_SHIFT, upto = length + 2 * PAGE_SIZE;

		for (first = 0; first <= pages[i]; first++) {
			for (end = first; end <= pages[i] && end <= first + 5; end++) {
				j = (first + end) % ARRAY_SIZE(chunks);
				plan.chunk = chunks[j];
				memset(to, DIRT, upto);
				if (!bulkmem_copy_around(&plan, to + PAGE_SIZE,
							 original + PAGE_SIZE, length,
							 first << PAGE_SHIFT, end << PAGE_SHIFT)) {
					pr_err("%s stopped for no reason; not loading\n",
					       method->name);
					return -EIO;
				}
				err = bulkmem_copy_check(method, to, original, PAGE_SIZE,
							 PAGE_SIZE + (first << PAGE_SHIFT),
							 PAGE_SIZE + (end << PAGE_SHIFT),
							 PAGE_SIZE + length, upto);
				if (err)
					return err;
			}
		}
		cond_resched();
	}
	return 0;
}

/*
 * Reads past the end of vmalloc() memory, where no page is: the exception of a load
 * is handled as that of a machine check. Each of the eight loads of a line is the
 * first to fault once, with and without prefetching.
 */
static int __init bulkmem_copy_test_faults(const struct bulkmem_copy_method *method, u8 *to)
{
	u8 *source = vmalloc(PAGE_SIZE);
	int err = 0;
	size_t i;

	if (!source)
		return -ENOMEM;
	bulkmem_copy_fill(source, PAGE_SIZE);
	for (i = 0; i <= 2 * LINES && !err; i++) {
		/* Whole lines, plus part of one. */
		size_t whole = i / 2 * BULKMEM_LINE, there = whole + i % 8 * sizeof(u64);
		size_t length = whole + 2 * BULKMEM_LINE, left;

		if (there > PAGE_SIZE)
			break;
		memset(to, DIRT, length + BULKMEM_LINE);
		left = bulkmem_copy_lines(method, to, source + PAGE_SIZE - there, length,
					  i % 3 ? SZ_64K : BULKMEM_LINE);
		if (left != length - whole || memcmp(to, source + PAGE_SIZE - there, whole) ||
		    memchr_inv(to + length, DIRT, BULKMEM_LINE)) {
			pr_err("%s: %zu of %zu bytes can be read, and %zu are left; not loading\n",
			       method->name, there, length, left);
			err = -EIO;
		}
	}
	vfree(source);
	return err;
}

static int __init bulkmem_copy_test(const struct bulkmem_copy_method *method, u8 *to,
				    u8 *original, const u8 *twin)
{
	int err = bulkmem_copy_test_lines(method, to, original);

	if (!err)
		err = bulkmem_copy_test_pages(method, to, original);
	if (!err && method->weak)
		err = bulkmem_copy_test_faults(method, to);
	if (!err && memcmp(original, twin, AREA)) {
		pr_err("%s changes the original; not loading\n", method->name);
		err = -EIO;
	}
	return err;
}

int __init bulkmem_copy_selftest(void)
{
	u8 *areas[3] = {};
	unsigned int i;
	int err = 0;

	BUILD_BUG_ON((MOST_PAGES + 2) * PAGE_SIZE > AREA);
	for (i = 0; i < ARRAY_SIZE(areas) && !err; i++) {
		areas[i] = (u8 *)__get_free_pages(GFP_KERNEL, AREA_ORDER);
		if (areas[i])
			bulkmem_copy_fill(areas[i], AREA);
		else
			err = -ENOMEM;
	}
	for (i = 0; i < BULKMEM_COPY_METHODS && !err; i++) {
		const struct bulkmem_copy_method *method = &bulkmem_copy_methods[i];

		/* The stock method only calls functions of the kernel. */
		if ((method->cached || method->weak) && method->available())
			err = bulkmem_copy_test(method, areas[0], areas[1], areas[2]);
	}
	for (i = 0; i < ARRAY_SIZE(areas); i++)
		free_pages((unsigned long)areas[i], AREA_ORDER);
	return err;
}
