// SPDX-License-Identifier: GPL-2.0
/*
 * The devices: /dev/bulkmem, which accepts hints, and its registration together
 * with /dev/bulkmem-memory of memory.c.
 */
#include <linux/device.h>
#include <linux/err.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>

#include "bulkmem.h"

static bool hint_device = true;
module_param(hint_device, bool, 0444);
MODULE_PARM_DESC(hint_device, "Provide /dev/bulkmem, for hints (default: Y)");

static bool memory_device = true;
module_param(memory_device, bool, 0444);
MODULE_PARM_DESC(memory_device,
		 "Provide /dev/bulkmem-memory, for memory with a cache attribute (default: Y)");

/* An open file holds a reference, so none may exist while loading can still fail. */
static bool ready;

bool bulkmem_device_is_ready(void)
{
	return READ_ONCE(ready);
}

void bulkmem_device_ready(void)
{
	WRITE_ONCE(ready, true);
}

int bulkmem_device_argument(void *argument, size_t known, const void __user *user)
{
	u32 size;

	if (get_user(size, (const u32 __user *)user))
		return -EFAULT;
	/* All structures have the members of their first version only. */
	if (size < known)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	return copy_struct_from_user(argument, known, user, size);
}

static int bulkmem_hint_open(struct inode *inode, struct file *filp)
{
	struct bulkmem_file *file;

	if (!bulkmem_device_is_ready())
		return -ENODEV;
	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	INIT_LIST_HEAD(&file->hints);
	filp->private_data = file;
	return nonseekable_open(inode, filp);
}

static int bulkmem_hint_release(struct inode *inode, struct file *filp)
{
	struct bulkmem_file *file = filp->private_data;

	bulkmem_hint_drop_all(file);
	kfree(file);
	return 0;
}

static long bulkmem_hint_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	struct bulkmem_file *file = filp->private_data;
	void __user *user = (void __user *)argument;
	struct bulkmem_hint_process process;
	struct bulkmem_hint_cgroup cgroup;
	struct bulkmem_hint hint;
	int err;

	switch (command) {
	case BULKMEM_IOC_ABI:
		return put_user(BULKMEM_ABI, (__u32 __user *)user);
	case BULKMEM_IOC_HINT:
		err = bulkmem_device_argument(&hint, sizeof(hint), user);
		return err ?: bulkmem_hint_add(file, &hint);
	case BULKMEM_IOC_UNHINT:
		bulkmem_hint_drop_all(file);
		return 0;
	case BULKMEM_IOC_HINT_PROCESS:
		err = bulkmem_device_argument(&process, sizeof(process), user);
		return err ?: bulkmem_process_add(&process);
	case BULKMEM_IOC_HINT_CGROUP:
		err = bulkmem_device_argument(&cgroup, sizeof(cgroup), user);
		return err ?: bulkmem_cgroup_request(&cgroup);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations hint_operations = {
	.owner = THIS_MODULE,
	.open = bulkmem_hint_open,
	.release = bulkmem_hint_release,
	.unlocked_ioctl = bulkmem_hint_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice hint_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "bulkmem",
	.fops = &hint_operations,
	.groups = bulkmem_stats_groups,
	.mode = 0600,
};

/* Has the counters while there is no /dev/bulkmem: /sys/devices/bulkmem. */
static struct device *without_node;

static int bulkmem_register_counters(void)
{
	int err;

	without_node = root_device_register("bulkmem");
	if (IS_ERR(without_node))
		return PTR_ERR(without_node);
	err = sysfs_create_groups(&without_node->kobj, bulkmem_stats_groups);
	if (err)
		root_device_unregister(without_node);
	return err;
}

static void bulkmem_unregister_hints(void)
{
	if (hint_device) {
		misc_deregister(&hint_misc);
	} else {
		sysfs_remove_groups(&without_node->kobj, bulkmem_stats_groups);
		root_device_unregister(without_node);
	}
}

int bulkmem_device_register(void)
{
	int err;

	err = bulkmem_hint_init();
	if (err)
		return err;
	bulkmem_stats_init();
	err = hint_device ? misc_register(&hint_misc) : bulkmem_register_counters();
	if (err)
		goto exit_hints;
	if (memory_device) {
		err = misc_register(&bulkmem_memory_device);
		if (err)
			goto unregister_hints;
	}
	return 0;

unregister_hints:
	bulkmem_unregister_hints();
exit_hints:
	bulkmem_hint_exit();
	return err;
}

/* No file is open, and nothing is mapped. */
void bulkmem_device_unregister(void)
{
	if (memory_device)
		misc_deregister(&bulkmem_memory_device);
	bulkmem_unregister_hints();
	bulkmem_process_forget_all();
	bulkmem_cgroup_forget_all();
	bulkmem_hint_exit();
	bulkmem_unit_exit();
}
