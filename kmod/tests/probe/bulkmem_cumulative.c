// SPDX-License-Identifier: GPL-2.0
/*
 * For the tests: a livepatch that replaces all others, as vendors' livepatches
 * do. The function that it patches does not matter.
 */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/seq_file.h>

static int bulkmem_cumulative_show(struct seq_file *file, void *unused)
{
	seq_puts(file, "bulkmem_cumulative\n");
	return 0;
}

static struct klp_func functions[] = {
	{
		.old_name = "cmdline_proc_show",
		.new_func = bulkmem_cumulative_show,
	},
	{}
};

static struct klp_object objects[] = {
	{
		.funcs = functions,
	},
	{}
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objects,
	.replace = true,
};

static int __init bulkmem_cumulative_init(void)
{
	return klp_enable_patch(&patch);
}

static void __exit bulkmem_cumulative_exit(void)
{
}

module_init(bulkmem_cumulative_init);
module_exit(bulkmem_cumulative_exit);

MODULE_DESCRIPTION("A cumulative livepatch, for the tests of bulkmem");
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
