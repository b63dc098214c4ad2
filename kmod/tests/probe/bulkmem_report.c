// SPDX-License-Identifier: GPL-2.0
/*
 * For the tests: a fault, when it is loaded, that a debug kernel must report. The
 * parameter says which.
 */
#include <linux/compiler.h>
#include <linux/mmdebug.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

static char *fault = "none";
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "none, freed, beyond, order, sleep, rcu or vm");

static DEFINE_SPINLOCK(first);
static DEFINE_SPINLOCK(second);
static void __rcu *protected;

static void access(size_t at, bool freed)
{
	char *memory = kmalloc(64, GFP_KERNEL);
	char *hidden = memory;

	if (!memory)
		return;
	OPTIMIZER_HIDE_VAR(hidden);
	if (freed)
		kfree(memory);
	WRITE_ONCE(hidden[at], 1);
	if (!freed)
		kfree(memory);
}

static void lock_both(spinlock_t *one, spinlock_t *other)
{
	spin_lock(one);
	spin_lock(other);
	spin_unlock(other);
	spin_unlock(one);
}

static int __init bulkmem_report_init(void)
{
	pr_info("bulkmem_report: %s\n", fault);
	if (!strcmp(fault, "freed")) {
		access(8, true);
	} else if (!strcmp(fault, "beyond")) {
		access(64, false);
	} else if (!strcmp(fault, "order")) {
		lock_both(&first, &second);
		lock_both(&second, &first);
	} else if (!strcmp(fault, "sleep")) {
		spin_lock(&first);
		might_sleep();
		spin_unlock(&first);
	} else if (!strcmp(fault, "rcu")) {
		(void)rcu_dereference(protected);
	} else if (!strcmp(fault, "vm")) {
		VM_WARN_ON(true);
	} else if (strcmp(fault, "none")) {
		return -EINVAL;
	}
	return 0;
}

static void __exit bulkmem_report_exit(void)
{
}

module_init(bulkmem_report_init);
module_exit(bulkmem_report_exit);

MODULE_DESCRIPTION("Faults for the tests of bulkmem's debug kernel");
MODULE_LICENSE("GPL");
