// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/bulkmem: hints and memory.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "bulkmem.h"

/* An open file holds a reference, so none may exist while loading can still fail. */
static bool ready;

static int device_open(struct inode *inode, struct file *filp)
{
	struct bulkmem_file *file;

	if (!READ_ONCE(ready))
		return -ENODEV;
	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	file->memory = (struct bulkmem_memory) {
		.attribute = BULKMEM_WB,
		.page_shift = PAGE_SHIFT,
		.node = -1,
	};
	mutex_init(&file->lock);
	INIT_LIST_HEAD(&file->hints);
	filp->private_data = file;
	return nonseekable_open(inode, filp);
}

static int device_release(struct inode *inode, struct file *filp)
{
	struct bulkmem_file *file = filp->private_data;

	bulkmem_hint_drop_all(file);
	mutex_destroy(&file->lock);
	kfree(file);
	return 0;
}

static long device_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	struct bulkmem_file *file = filp->private_data;
	void __user *user = (void __user *)argument;
	struct bulkmem_memory memory;
	struct bulkmem_hint hint;

	switch (command) {
	case BULKMEM_IOC_ABI:
		return put_user(BULKMEM_ABI, (__u32 __user *)user);
	case BULKMEM_IOC_HINT:
		if (copy_from_user(&hint, user, sizeof(hint)))
			return -EFAULT;
		return bulkmem_hint_add(file, &hint);
	case BULKMEM_IOC_UNHINT:
		bulkmem_hint_drop_all(file);
		return 0;
	case BULKMEM_IOC_MEMORY:
		if (copy_from_user(&memory, user, sizeof(memory)))
			return -EFAULT;
		return bulkmem_memory_describe(file, &memory);
	default:
		return -ENOTTY;
	}
}

static int device_mmap(struct file *filp, struct vm_area_struct *vma)
{
	return bulkmem_memory_mmap(filp->private_data, vma);
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = device_mmap,
	.get_unmapped_area = bulkmem_memory_area,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "bulkmem",
	.fops = &device_operations,
	.groups = bulkmem_stats_groups,
	.mode = 0600,
};

int bulkmem_device_register(void)
{
	bulkmem_stats_init();
	return misc_register(&device);
}

void bulkmem_device_ready(void)
{
	WRITE_ONCE(ready, true);
}

void bulkmem_device_unregister(void)
{
	misc_deregister(&device);
}
