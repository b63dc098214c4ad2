// SPDX-License-Identifier: GPL-2.0
/*
 * Loading, unloading, and the livepatch that replaces the kernel's functions for
 * clearing and copying huge pages, and for copying to persistent memory. To unload, write 0 to
 * /sys/kernel/livepatch/bulkmem/enabled, wait until that directory is gone,
 * then rmmod.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/version.h>

#include "bulkmem.h"
#include "copy.h"
#include "flushcache.h"

#ifndef CONFIG_X86_64
# error "bulkmem is for x86-64 only"
#endif
#ifndef CONFIG_LIVEPATCH
# error "bulkmem needs a kernel with CONFIG_LIVEPATCH=y, as Debian's and most distributions' are"
#endif
/* The oldest and the newest tested version; keep in step with dkms.conf. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 10, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(7, 4, 0)
# error "bulkmem is for Linux 5.10 to 7.3"
#endif

/*
 * Declared with the type of the kernel's function, so that the definition below
 * does not compile for a kernel that has changed it.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
# define REPLACED	"folio_zero_user"
# define REPLACEMENT	bulkmem_folio_zero_user
static typeof(folio_zero_user) bulkmem_folio_zero_user;

static void bulkmem_folio_zero_user(struct folio *folio, unsigned long addr_hint)
{
	bulkmem_clear_huge(REPLACED, folio_page(folio, 0), addr_hint, folio_nr_pages(folio));
}
#else
# define REPLACED	"clear_huge_page"
# define REPLACEMENT	bulkmem_clear_huge_page
static typeof(clear_huge_page) bulkmem_clear_huge_page;

static void bulkmem_clear_huge_page(struct page *page, unsigned long addr_hint,
				    unsigned int pages_per_huge_page)
{
	bulkmem_clear_huge(REPLACED, page, addr_hint, pages_per_huge_page);
}
#endif

/* Declared as above. */
#if BULKMEM_COPY_IS_SAFE
# define COPY_REPLACED		"copy_user_large_folio"
# define COPY_REPLACEMENT	bulkmem_copy_user_large_folio
static typeof(copy_user_large_folio) bulkmem_copy_user_large_folio;

static int bulkmem_copy_user_large_folio(struct folio *dst, struct folio *src,
					 unsigned long addr_hint, struct vm_area_struct *vma)
{
	return bulkmem_copy_huge(folio_page(dst, 0), folio_page(src, 0), addr_hint, vma,
				 folio_nr_pages(dst));
}
#else
# define COPY_REPLACED		"copy_user_huge_page"
# define COPY_REPLACEMENT	bulkmem_copy_user_huge_page
static typeof(copy_user_huge_page) bulkmem_copy_user_huge_page;

static void bulkmem_copy_user_huge_page(struct page *dst, struct page *src,
					unsigned long addr_hint, struct vm_area_struct *vma,
					unsigned int pages_per_huge_page)
{
	bulkmem_copy_huge(dst, src, addr_hint, vma, pages_per_huge_page);
}
#endif

#define FLUSHCACHE_REPLACED	"__memcpy_flushcache"
static typeof(__memcpy_flushcache) bulkmem_memcpy_flushcache;

static void bulkmem_memcpy_flushcache(void *dst, const void *src, size_t size)
{
	bulkmem_flushcache(dst, src, size);
}

static struct klp_func functions[] = {
	{
		.old_name = REPLACED,
		.new_func = REPLACEMENT,
	},
	{
		.old_name = COPY_REPLACED,
		.new_func = COPY_REPLACEMENT,
	},
	{
		/* bulkmem_init() removes it unless flushcache=1. */
		.old_name = FLUSHCACHE_REPLACED,
		.new_func = bulkmem_memcpy_flushcache,
	},
	{}
};

/* The index of the last one. */
#define FLUSHCACHE_FUNCTION	(ARRAY_SIZE(functions) - 2)

static struct klp_object objects[] = {
	{
		/* no name: the kernel itself */
		.funcs = functions,
	},
	{}
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objects,
};

static int __init bulkmem_init(void)
{
	int err = bulkmem_selftest();

	if (err)
		return err;
	err = bulkmem_copy_selftest();
	if (err)
		return err;
	err = bulkmem_flushcache_selftest();
	if (err)
		return err;
	err = bulkmem_policy_settle();
	if (err)
		return err;
	err = bulkmem_flushcache_settle();
	if (err)
		return err;
	/* An entry without names ends the list. */
	if (!bulkmem_flushcache_policy.replaced)
		functions[FLUSHCACHE_FUNCTION] = (struct klp_func) {};
	err = bulkmem_device_register();
	if (err) {
		pr_err("cannot register the devices: %d\n", err);
		return err;
	}
	/* Last: only the user can disable it again. */
	err = klp_enable_patch(&patch);
	if (err) {
		pr_err("cannot replace " REPLACED " and " COPY_REPLACED "%s: %d\n",
		       bulkmem_flushcache_policy.replaced ? " and " FLUSHCACHE_REPLACED : "", err);
		bulkmem_device_unregister();
		return err;
	}
	bulkmem_device_ready();
	bulkmem_automatic_start();
	return 0;
}

/* Runs only after the livepatch is disabled, because it holds the module. */
static void __exit bulkmem_exit(void)
{
	bulkmem_automatic_stop();
	bulkmem_device_unregister();
	/* kfree_rcu() needs no code of this module, so pending frees do not matter. */
}

module_init(bulkmem_init);
module_exit(bulkmem_exit);

MODULE_DESCRIPTION("Clears and copies huge pages, and copies to persistent memory, by the methods that were measured to be best");
MODULE_AUTHOR("The bulkmem authors");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
