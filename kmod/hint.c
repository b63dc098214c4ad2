// SPDX-License-Identifier: GPL-2.0
/*
 * Hints: ranges of an address space that their process is about to fault in as
 * a whole.
 *
 * The hints of an mm are a list of their own, which a page fault finds by a hash
 * table of the mms that have hints. Each mm has a limit, so that list is short,
 * whatever other processes do. There is no limit for all processes together:
 * the memory is charged to their memory cgroups.
 *
 * The entry of an mm holds it by mmgrab(), so that no other mm can get its
 * address while the entry exists. A hint ends with its file, by
 * BULKMEM_IOC_UNHINT, or with the mm. If the file outlives the process, because
 * a forked child holds it, the next hint through this file removes those whose
 * mm has no users. An mmu notifier would remove them earlier, but no fault can
 * look up the hints of a dead mm, and without a notifier unloading does not have
 * to wait for a callback.
 */
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/rculist.h>
#include <linux/rhashtable.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "bulkmem.h"

/* Bounds the length of the list that each page fault of the process searches. */
#define HINTS_PER_PROCESS	64

/**
 * struct hinted - an mm that has hints
 * @mm: the key
 * @node: in the table of all
 * @of_all: in the list of all
 * @hints: its hints, at least one
 * @count: their number
 * @rcu: frees it
 */
struct hinted {
	struct mm_struct *mm;
	struct rhash_head node;
	struct list_head of_all;
	struct list_head hints;
	unsigned int count;
	struct rcu_head rcu;
};

struct hint {
	struct hinted *hinted;
	unsigned long addr;
	u64 length;
	struct list_head of_file;
	struct list_head of_mm;
	struct rcu_head rcu;
};

static const struct rhashtable_params by_mm = {
	.key_len = sizeof_field(struct hinted, mm),
	.key_offset = offsetof(struct hinted, mm),
	.head_offset = offsetof(struct hinted, node),
	.automatic_shrinking = true,
};

/* Written under hints_lock. The table and the lists of hints are read under RCU. */
static struct rhashtable table;
static LIST_HEAD(all);
static DEFINE_MUTEX(hints_lock);

int bulkmem_hint_init(void)
{
	return rhashtable_init(&table, &by_mm);
}

/* No file is open, so there are no hints, and no page fault looks for one. */
void bulkmem_hint_exit(void)
{
	rhashtable_destroy(&table);
}

/* Removes the entry of an mm without hints. */
static void bulkmem_hint_forget(struct hinted *hinted)
{
	rhashtable_remove_fast(&table, &hinted->node, by_mm);
	list_del(&hinted->of_all);
	/* Lookups only compare the mm's address; they do not dereference it. */
	mmdrop(hinted->mm);
	kfree_rcu(hinted, rcu);
}

static void bulkmem_hint_drop(struct hint *hint)
{
	lockdep_assert_held(&hints_lock);
	list_del_rcu(&hint->of_mm);
	list_del(&hint->of_file);
	if (!--hint->hinted->count)
		bulkmem_hint_forget(hint->hinted);
	kfree_rcu(hint, rcu);
}

static bool bulkmem_hint_is_dead(const struct hinted *hinted)
{
	return !atomic_read(&hinted->mm->mm_users);
}

/* Finds or creates the entry of an mm, which may still be without hints. */
static struct hinted *bulkmem_hint_enter(struct mm_struct *mm)
{
	struct hinted *hinted = rhashtable_lookup_fast(&table, &mm, by_mm);
	int err;

	if (hinted)
		return hinted;
	hinted = kzalloc(sizeof(*hinted), GFP_KERNEL_ACCOUNT);
	if (!hinted)
		return ERR_PTR(-ENOMEM);
	hinted->mm = mm;
	INIT_LIST_HEAD(&hinted->hints);
	err = rhashtable_insert_fast(&table, &hinted->node, by_mm);
	if (err) {
		kfree(hinted);
		return ERR_PTR(err);
	}
	mmgrab(mm);
	list_add(&hinted->of_all, &all);
	return hinted;
}

long bulkmem_hint_add(struct bulkmem_file *file, const struct bulkmem_hint *asked)
{
	struct mm_struct *mm = current->mm;
	struct hint *hint, *old, *next;
	struct hinted *hinted;
	long err = 0;
	u64 end;

	if (asked->flags || !asked->length || !PAGE_ALIGNED(asked->addr) ||
	    !PAGE_ALIGNED(asked->length) ||
	    check_add_overflow(asked->addr, asked->length, &end) || end > mm->task_size)
		return -EINVAL;
	hint = kmalloc(sizeof(*hint), GFP_KERNEL_ACCOUNT);
	if (!hint)
		return -ENOMEM;
	hint->addr = asked->addr;
	hint->length = asked->length;

	mutex_lock(&hints_lock);
	list_for_each_entry_safe(old, next, &file->hints, of_file)
		if (bulkmem_hint_is_dead(old->hinted))
			bulkmem_hint_drop(old);
	hinted = bulkmem_hint_enter(mm);
	if (IS_ERR(hinted)) {
		err = PTR_ERR(hinted);
	} else if (hinted->count == HINTS_PER_PROCESS) {
		err = -ENOSPC;
	} else {
		hint->hinted = hinted;
		hinted->count++;
		list_add(&hint->of_file, &file->hints);
		list_add_rcu(&hint->of_mm, &hinted->hints);
	}
	mutex_unlock(&hints_lock);
	if (err)
		kfree(hint);
	return err;
}

void bulkmem_hint_drop_all(struct bulkmem_file *file)
{
	struct hint *hint, *next;

	mutex_lock(&hints_lock);
	list_for_each_entry_safe(hint, next, &file->hints, of_file)
		bulkmem_hint_drop(hint);
	mutex_unlock(&hints_lock);
}

unsigned long bulkmem_hint_count(void)
{
	unsigned long count = 0;
	struct hinted *hinted;

	mutex_lock(&hints_lock);
	list_for_each_entry(hinted, &all, of_all)
		if (!bulkmem_hint_is_dead(hinted))
			count += hinted->count;
	mutex_unlock(&hints_lock);
	return count;
}

/* If several hints contain the address, the longest counts. */
static u64 bulkmem_hint_range(unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	struct hinted *hinted;
	struct hint *hint;
	u64 extent = 0;

	/* Lets faults skip the search while there are no hints. */
	if (!atomic_read(&table.nelems) || !mm)
		return 0;
	rcu_read_lock();
	hinted = rhashtable_lookup(&table, &mm, by_mm);
	if (hinted)
		list_for_each_entry_rcu(hint, &hinted->hints, of_mm)
			if (addr - hint->addr < hint->length)
				extent = max(extent, hint->length);
	rcu_read_unlock();
	return extent;
}

/*
 * What is hinted as a whole is as long as can be, so that any threshold is below.
 * Smaller transparent pages are not part of it, nor of the automatic rule: programs
 * usually read them soon.
 */
u64 bulkmem_hint_extent(unsigned long addr, u64 size)
{
	if (size < PMD_SIZE)
		return bulkmem_hint_range(addr);
	if (bulkmem_process_is_hinted() || bulkmem_cgroup_is_hinted())
		return U64_MAX;
	return max(bulkmem_hint_range(addr), bulkmem_automatic_extent(addr));
}
