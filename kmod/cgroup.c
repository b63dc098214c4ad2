// SPDX-License-Identifier: GPL-2.0
/*
 * Hinted cgroups: all huge pages of the processes in them count as parts of large
 * extents, for services, containers and virtual machines that an administrator
 * cannot start with a hint. A cgroup of version 2, with all below it.
 *
 * A cgroup that was declared stays so until it is withdrawn or removed, or the
 * module is unloaded; the process that declared it may end. A reference holds its
 * memory. After its removal, when no process can enter it, the next request or
 * look at the list drops it.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "bulkmem.h"

#ifndef CONFIG_CGROUPS
# error "bulkmem needs a kernel with CONFIG_CGROUPS=y, as all distributions' are"
#endif

/* Each page fault may search them all, and a page of the list has room for them. */
#define CGROUPS		64

struct hinted_cgroup {
	struct cgroup *cgroup;
	struct list_head of_all;
};

/* Written under cgroups_lock; the list is read under RCU. */
static LIST_HEAD(all);
static unsigned int count;
static DEFINE_MUTEX(cgroups_lock);

static struct hinted_cgroup *bulkmem_cgroup_find(const struct cgroup *cgroup)
{
	struct hinted_cgroup *hinted;

	lockdep_assert_held(&cgroups_lock);
	list_for_each_entry(hinted, &all, of_all)
		if (hinted->cgroup == cgroup)
			return hinted;
	return NULL;
}

static void bulkmem_cgroup_drop(struct hinted_cgroup *hinted)
{
	lockdep_assert_held(&cgroups_lock);
	list_del_rcu(&hinted->of_all);
	WRITE_ONCE(count, count - 1);
	synchronize_rcu();
	cgroup_put(hinted->cgroup);
	kfree(hinted);
}

/* Drops those that were removed. */
static void bulkmem_cgroup_drop_dead(void)
{
	struct hinted_cgroup *hinted, *next;

	list_for_each_entry_safe(hinted, next, &all, of_all)
		if (!(hinted->cgroup->self.flags & CSS_ONLINE))
			bulkmem_cgroup_drop(hinted);
}

/* Takes over the caller's reference unless it fails. */
static int bulkmem_cgroup_add(struct cgroup *cgroup)
{
	struct hinted_cgroup *hinted;

	if (bulkmem_cgroup_find(cgroup)) {
		cgroup_put(cgroup);
		return 0;
	}
	if (count == CGROUPS)
		return -ENOSPC;
	hinted = kmalloc(sizeof(*hinted), GFP_KERNEL_ACCOUNT);
	if (!hinted)
		return -ENOMEM;
	hinted->cgroup = cgroup;
	list_add_tail_rcu(&hinted->of_all, &all);
	WRITE_ONCE(count, count + 1);
	return 0;
}

long bulkmem_cgroup_request(const struct bulkmem_hint_cgroup *asked)
{
	struct hinted_cgroup *hinted;
	struct cgroup *cgroup;
	long err;

	if (asked->flags & ~BULKMEM_CGROUP_REMOVE || asked->reserved)
		return -EINVAL;
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	cgroup = cgroup_get_from_fd(asked->fd);
	if (IS_ERR(cgroup))
		return PTR_ERR(cgroup);

	mutex_lock(&cgroups_lock);
	bulkmem_cgroup_drop_dead();
	if (asked->flags & BULKMEM_CGROUP_REMOVE) {
		hinted = bulkmem_cgroup_find(cgroup);
		if (hinted)
			bulkmem_cgroup_drop(hinted);
		cgroup_put(cgroup);
		err = hinted ? 0 : -ESRCH;
	} else {
		err = bulkmem_cgroup_add(cgroup);
		if (err)
			cgroup_put(cgroup);
	}
	mutex_unlock(&cgroups_lock);
	return err;
}

bool bulkmem_cgroup_is_hinted(void)
{
	struct hinted_cgroup *hinted;
	struct cgroup *own;
	bool found = false;

	if (!READ_ONCE(count))
		return false;
	rcu_read_lock();
	own = task_dfl_cgroup(current);
	list_for_each_entry_rcu(hinted, &all, of_all) {
		found = cgroup_is_descendant(own, hinted->cgroup);
		if (found)
			break;
	}
	rcu_read_unlock();
	return found;
}

ssize_t bulkmem_cgroup_list(char *buffer)
{
	const struct hinted_cgroup *hinted;
	ssize_t length = 0;

	mutex_lock(&cgroups_lock);
	bulkmem_cgroup_drop_dead();
	list_for_each_entry(hinted, &all, of_all)
		length += sysfs_emit_at(buffer, length, "%llu\n", cgroup_id(hinted->cgroup));
	mutex_unlock(&cgroups_lock);
	return length;
}

/* No page fault looks at the list. */
void bulkmem_cgroup_forget_all(void)
{
	struct hinted_cgroup *hinted, *next;

	mutex_lock(&cgroups_lock);
	list_for_each_entry_safe(hinted, next, &all, of_all)
		bulkmem_cgroup_drop(hinted);
	mutex_unlock(&cgroups_lock);
}
