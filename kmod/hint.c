// SPDX-License-Identifier: GPL-2.0
/*
 * Hints: ranges of an address space that their process is about to fault in as
 * a whole.
 *
 * A hint holds its mm by mmgrab(), so that no other mm can get its address while
 * the hint exists. A hint ends with its file, by BULKMEM_IOC_UNHINT, or with the
 * mm. If the file outlives the process, because a forked child holds it, the
 * next call that adds or counts hints removes those whose mm has no users. An
 * mmu notifier would remove them earlier, but no fault can look up the hints of
 * a dead mm, the limit per file bounds their memory, and without a notifier
 * unloading does not have to wait for a callback.
 */
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "bulkmem.h"

#define HINTS_PER_FILE	64
/* Bounds the length of the lists that page faults of every process search. */
#define HINTS_AT_ALL	4096

struct hint {
	struct mm_struct *mm;
	unsigned long addr;
	u64 length;
	struct bulkmem_file *file;
	struct list_head of_file;
	struct hlist_node of_mm;
	struct rcu_head rcu;
};

/* By mm. Written under hints_lock, read under RCU. */
static DEFINE_HASHTABLE(hints, 6);
static DEFINE_MUTEX(hints_lock);
/* Lets faults skip the search while there are no hints. */
static atomic_t hints_there = ATOMIC_INIT(0);

static void drop(struct hint *hint)
{
	lockdep_assert_held(&hints_lock);
	hash_del_rcu(&hint->of_mm);
	list_del(&hint->of_file);
	hint->file->hint_count--;
	atomic_dec(&hints_there);
	/* Lookups only compare the mm's address; they do not dereference it. */
	mmdrop(hint->mm);
	kfree_rcu(hint, rcu);
}

static void drop_dead(void)
{
	struct hlist_node *next;
	struct hint *hint;
	int bucket;

	hash_for_each_safe(hints, bucket, next, hint, of_mm)
		if (!atomic_read(&hint->mm->mm_users))
			drop(hint);
}

long bulkmem_hint_add(struct bulkmem_file *file, const struct bulkmem_hint *asked)
{
	struct mm_struct *mm = current->mm;
	struct hint *hint;
	u64 end;

	if (!asked->length || !PAGE_ALIGNED(asked->addr) || !PAGE_ALIGNED(asked->length) ||
	    check_add_overflow(asked->addr, asked->length, &end) || end > mm->task_size)
		return -EINVAL;
	hint = kmalloc(sizeof(*hint), GFP_KERNEL_ACCOUNT);
	if (!hint)
		return -ENOMEM;
	hint->mm = mm;
	hint->addr = asked->addr;
	hint->length = asked->length;
	hint->file = file;

	mutex_lock(&hints_lock);
	drop_dead();
	if (file->hint_count == HINTS_PER_FILE || atomic_read(&hints_there) >= HINTS_AT_ALL) {
		mutex_unlock(&hints_lock);
		kfree(hint);
		return -ENOSPC;
	}
	mmgrab(mm);
	file->hint_count++;
	list_add(&hint->of_file, &file->hints);
	hash_add_rcu(hints, &hint->of_mm, (unsigned long)mm);
	atomic_inc(&hints_there);
	mutex_unlock(&hints_lock);
	return 0;
}

void bulkmem_hint_drop_all(struct bulkmem_file *file)
{
	struct hint *hint, *next;

	mutex_lock(&hints_lock);
	list_for_each_entry_safe(hint, next, &file->hints, of_file)
		drop(hint);
	mutex_unlock(&hints_lock);
}

unsigned long bulkmem_hint_count(void)
{
	unsigned long count;

	mutex_lock(&hints_lock);
	drop_dead();
	count = atomic_read(&hints_there);
	mutex_unlock(&hints_lock);
	return count;
}

/* If several hints contain the address, the longest counts. */
u64 bulkmem_hint_extent(unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	struct hint *hint;
	u64 extent = 0;

	if (!atomic_read(&hints_there) || !mm)
		return 0;
	rcu_read_lock();
	hash_for_each_possible_rcu(hints, hint, of_mm, (unsigned long)mm)
		if (hint->mm == mm && addr - hint->addr < hint->length)
			extent = max(extent, hint->length);
	rcu_read_unlock();
	return extent;
}
