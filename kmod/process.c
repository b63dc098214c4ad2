// SPDX-License-Identifier: GPL-2.0
/*
 * Hinted processes: all their huge pages, and those of the processes that they
 * start, count as parts of large extents. For programs that cannot be changed.
 *
 * A process is marked by the struct pid of its thread group, which exec does not
 * change, also if a thread other than the first calls it. The mark holds a
 * reference, so that no other process gets the struct while the mark exists.
 *
 * Children inherit the mark at the tracepoint sched_process_fork. It comes in the
 * parent, whose mark therefore exists, and before the child runs, so that the
 * child is marked before its first fault and before its end. A process loses its
 * mark at sched_process_exit of its last thread. The other ways to inherit are
 * worse: real_parent changes when the parent ends; an open file is lost in
 * programs that close all files, and is slow to find; a cgroup needs a place in
 * the hierarchy, which systemd manages. Modules cannot hook fork otherwise.
 *
 * Before 7.0, tracepoints run their probes with preemption disabled, and on PREEMPT_RT
 * a probe can then neither allocate nor free. Therefore a declaration allocates the marks
 * of the process and all its descendants, a family, and a mark is released after
 * a grace period, which page faults that search for it need too. A child for
 * which its family has no mark left is not hinted, and neither are its children;
 * a counter shows how many. The memory is charged to the memory cgroup of the
 * process that was declared.
 *
 * The probes are registered with the first declaration, and stay until the module
 * is unloaded, which drops all marks.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/hashtable.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/version.h>
#include <trace/events/sched.h>

#include "bulkmem.h"
#include "compat.h"

/* A process and its descendants, at a time. */
#define PROCESSES_PER_FAMILY	1024
/* 4 MiB. Processes with CAP_SYS_RESOURCE only have the limit of all together. */
#define FAMILIES_PER_USER	64
/* Each declaration looks at all of them with interrupts disabled. */
#define FAMILIES		1024

/**
 * struct mark - one process
 * @pid: that of its thread group; the key in the table
 * @family: the family that it is a part of
 * @node: in the table, or in the family's list of free ones
 * @rcu: releases it
 */
struct mark {
	struct pid *pid;
	struct family *family;
	struct hlist_node node;
	struct rcu_head rcu;
};

/**
 * struct family - a process that was declared, and its descendants
 * @of_all: in the list of all
 * @user: the user who declared it
 * @used: number of marks that are not free; the family ends when it is 0
 * @free: free marks
 * @marks: all marks
 */
struct family {
	struct list_head of_all;
	kuid_t user;
	unsigned int used;
	struct hlist_head free;
	struct mark marks[PROCESSES_PER_FAMILY];
};

/*
 * Written under marks_lock; the table is read under RCU. The lock is raw because
 * probes take it with preemption disabled.
 */
static DEFINE_HASHTABLE(table, 8);
static LIST_HEAD(families);
static unsigned long processes;
static unsigned long without_mark;
static DEFINE_RAW_SPINLOCK(marks_lock);

/* Serializes the registration of the probes. */
static DEFINE_MUTEX(watch_lock);
static bool watching;

/* Under RCU or marks_lock. */
static struct mark *bulkmem_process_find(const struct pid *pid)
{
	struct mark *mark;

	hash_for_each_possible_rcu(table, mark, node, (unsigned long)pid)
		if (mark->pid == pid)
			return mark;
	return NULL;
}

/* True if the process is marked. */
static bool bulkmem_process_is_marked(const struct pid *pid)
{
	bool found;

	if (!READ_ONCE(processes))
		return false;
	rcu_read_lock();
	found = bulkmem_process_find(pid);
	rcu_read_unlock();
	return found;
}

/* Returns false if the family has no free mark. */
static bool bulkmem_process_mark(struct family *family, struct pid *pid)
{
	struct mark *mark = hlist_entry_safe(family->free.first, struct mark, node);

	lockdep_assert_held(&marks_lock);
	if (!mark)
		return false;
	hlist_del(&mark->node);
	mark->pid = get_pid(pid);
	family->used++;
	WRITE_ONCE(processes, processes + 1);
	hash_add_rcu(table, &mark->node, (unsigned long)pid);
	return true;
}

/* After a grace period: no page fault looks at the mark any more. */
static void bulkmem_process_release(struct rcu_head *rcu)
{
	struct mark *mark = container_of(rcu, struct mark, rcu);
	struct family *family = mark->family;
	unsigned long flags;
	bool last;

	put_pid(mark->pid);
	raw_spin_lock_irqsave(&marks_lock, flags);
	hlist_add_head(&mark->node, &family->free);
	last = !--family->used;
	if (last)
		list_del(&family->of_all);
	raw_spin_unlock_irqrestore(&marks_lock, flags);
	if (last)
		kvfree(family);
}

static void bulkmem_process_drop(struct mark *mark)
{
	lockdep_assert_held(&marks_lock);
	hash_del_rcu(&mark->node);
	WRITE_ONCE(processes, processes - 1);
	call_rcu_hurry(&mark->rcu, bulkmem_process_release);
}

static void bulkmem_process_fork(void *unused, struct task_struct *parent,
				 struct task_struct *child)
{
	struct mark *mark;
	unsigned long flags;

	/* A thread of the parent needs no mark of its own. */
	if (task_tgid(child) == task_tgid(parent) || !bulkmem_process_is_marked(task_tgid(parent)))
		return;
	raw_spin_lock_irqsave(&marks_lock, flags);
	mark = bulkmem_process_find(task_tgid(parent));
	if (mark && !bulkmem_process_mark(mark->family, task_tgid(child)))
		WRITE_ONCE(without_mark, without_mark + 1);
	raw_spin_unlock_irqrestore(&marks_lock, flags);
}

/*
 * Of several threads that end at the same time, each may be the last one here.
 * From 6.16 on, the tracepoint also tells whether the last thread ends.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
static void bulkmem_process_exit(void *unused, struct task_struct *task, bool group_dead)
#else
static void bulkmem_process_exit(void *unused, struct task_struct *task)
#endif
{
	struct mark *mark;
	unsigned long flags;

	if (atomic_read(&task->signal->live) || !bulkmem_process_is_marked(task_tgid(task)))
		return;
	raw_spin_lock_irqsave(&marks_lock, flags);
	mark = bulkmem_process_find(task_tgid(task));
	if (mark)
		bulkmem_process_drop(mark);
	raw_spin_unlock_irqrestore(&marks_lock, flags);
}

/* The tracepoints are not exported, but can be found by name. */
static struct probe {
	const char *name;
	void *function;
	struct tracepoint *tracepoint;
} probes[] = {
	{ "sched_process_fork", bulkmem_process_fork },
	{ "sched_process_exit", bulkmem_process_exit },
};

static void bulkmem_process_match(struct tracepoint *tracepoint, void *unused)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(tracepoint->name, probes[i].name))
			probes[i].tracepoint = tracepoint;
}

static void bulkmem_process_unregister(unsigned int count)
{
	while (count--)
		tracepoint_probe_unregister(probes[count].tracepoint, probes[count].function, NULL);
	tracepoint_synchronize_unregister();
}

static int bulkmem_process_register(void)
{
	unsigned int i;
	int err;

	/* Do not compile for a kernel with other arguments. */
	check_trace_callback_type_sched_process_fork(bulkmem_process_fork);
	check_trace_callback_type_sched_process_exit(bulkmem_process_exit);

	for_each_kernel_tracepoint(bulkmem_process_match, NULL);
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		err = probes[i].tracepoint ?
			tracepoint_probe_register(probes[i].tracepoint, probes[i].function, NULL) :
			-EOPNOTSUPP;
		if (err) {
			bulkmem_process_unregister(i);
			return err;
		}
	}
	return 0;
}

static int bulkmem_process_watch(void)
{
	int err = 0;

	mutex_lock(&watch_lock);
	if (!watching) {
		err = bulkmem_process_register();
		watching = !err;
	}
	mutex_unlock(&watch_lock);
	return err;
}

static struct family *bulkmem_process_new_family(void)
{
	struct family *family = kvzalloc(sizeof(*family), GFP_KERNEL_ACCOUNT);
	unsigned int i;

	if (!family)
		return NULL;
	family->user = current_uid();
	for (i = 0; i < PROCESSES_PER_FAMILY; i++) {
		family->marks[i].family = family;
		hlist_add_head(&family->marks[i].node, &family->free);
	}
	return family;
}

/* True if there is room for another family. */
static bool bulkmem_process_has_room(kuid_t user, bool unlimited)
{
	const struct family *family;
	unsigned int all = 0, own = 0;

	lockdep_assert_held(&marks_lock);
	list_for_each_entry(family, &families, of_all) {
		all++;
		own += uid_eq(family->user, user);
	}
	return all < FAMILIES && (unlimited || own < FAMILIES_PER_USER);
}

/* Adds the calling process with a new family. Returns false beyond the user's limit. */
static bool bulkmem_process_enter(struct family *family, bool unlimited)
{
	unsigned long flags;
	bool allowed;

	raw_spin_lock_irqsave(&marks_lock, flags);
	allowed = bulkmem_process_has_room(family->user, unlimited);
	/* Another thread may have declared the process since. */
	if (allowed && !bulkmem_process_find(task_tgid(current))) {
		list_add(&family->of_all, &families);
		bulkmem_process_mark(family, task_tgid(current));
	}
	raw_spin_unlock_irqrestore(&marks_lock, flags);
	return allowed;
}

long bulkmem_process_add(const struct bulkmem_hint_process *asked)
{
	struct family *family;
	long err;

	if (asked->flags)
		return -EINVAL;
	if (bulkmem_process_is_marked(task_tgid(current)))
		return 0;
	err = bulkmem_process_watch();
	if (err)
		return err;
	family = bulkmem_process_new_family();
	if (!family)
		return -ENOMEM;
	/* In this order, so that only processes beyond the limit need the capability. */
	if (!bulkmem_process_enter(family, false) &&
	    (!capable(CAP_SYS_RESOURCE) || !bulkmem_process_enter(family, true)))
		err = -ENOSPC;
	if (!family->used)
		kvfree(family);
	return err;
}

bool bulkmem_process_is_hinted(void)
{
	return bulkmem_process_is_marked(task_tgid(current));
}

unsigned long bulkmem_process_count(void)
{
	return READ_ONCE(processes);
}

unsigned long bulkmem_process_unhinted(void)
{
	return READ_ONCE(without_mark);
}

/* No page fault looks for a mark. */
void bulkmem_process_forget_all(void)
{
	unsigned long flags;
	struct mark *mark;
	struct hlist_node *next;
	unsigned int bucket;

	if (!watching)
		return;
	bulkmem_process_unregister(ARRAY_SIZE(probes));
	raw_spin_lock_irqsave(&marks_lock, flags);
	hash_for_each_safe(table, bucket, next, mark, node)
		bulkmem_process_drop(mark);
	raw_spin_unlock_irqrestore(&marks_lock, flags);
	/* The callbacks are code of this module. */
	rcu_barrier();
}
