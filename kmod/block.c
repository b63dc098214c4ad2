// SPDX-License-Identifier: GPL-2.0
/*
 * The memory of one mmap() of /dev/bulkmem-memory: accounting, allocation when
 * it is first needed, and freeing.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "block.h"

/*
 * Accounting: per user, as for other pinned memory, not per process; whole
 * units, because that is what is allocated. The limit is compared first: the
 * security modules log a capability that is checked and missing.
 */

static unsigned long bulkmem_block_pages_of(struct block *block)
{
	return block->count << HUGE_ORDER;
}

static int bulkmem_block_charge(struct block *block)
{
	long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user = current_user();	/* lives as long as its credentials */
	long pages = bulkmem_block_pages_of(block);
	long charged;

	charged = atomic_long_read(&user->locked_vm);
	do {
		if (pages > limit || charged > limit - pages)
			return capable(CAP_IPC_LOCK) ? 0 : -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &charged, charged + pages));
	block->cred = get_current_cred();
	return 0;
}

static void bulkmem_block_uncharge(struct block *block)
{
	if (!block->cred)
		return;
	atomic_long_sub(bulkmem_block_pages_of(block), &block->cred->user->locked_vm);
	put_cred(block->cred);
}

struct block *bulkmem_block_make(const struct bulkmem_memory *memory, unsigned long length,
				 bool rated)
{
	unsigned long count = DIV_ROUND_UP(length, PMD_SIZE);
	struct block *block;
	int err;

	/* An attempt that cannot succeed would only evict the memory of others. */
	if (length >> PAGE_SHIFT > si_mem_available())
		return ERR_PTR(-ENOMEM);

	block = kvzalloc(struct_size(block, units, count),
			 GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (!block)
		return ERR_PTR(-ENOMEM);
	refcount_set(&block->references, 1);
	mutex_init(&block->lock);
	block->memory = *memory;
	block->length = length;
	block->count = count;

	err = bulkmem_block_charge(block);
	if (!err && rated && !bulkmem_unit_allow(count))
		err = -EAGAIN;
	if (err) {
		bulkmem_block_put(block);
		return ERR_PTR(err);
	}
	block->rated = rated;
	return block;
}

int bulkmem_block_fill(struct block *block, unsigned long index)
{
	struct unit *unit = &block->units[index];
	struct unit new;
	int got;

	/* Pairs with the release below. */
	if (smp_load_acquire(&unit->page))
		return 0;
	if (mutex_lock_killable(&block->lock))
		return -EINTR;
	got = 0;
	if (!unit->page) {
		got = bulkmem_unit_get(&block->memory, block->length, &new);
		if (!got && block->rated)
			bulkmem_unit_refund(1);
		if (got >= 0) {
			unit->of_pool = new.of_pool;
			/* After the zeroes and the attribute. */
			smp_store_release(&unit->page, new.page);
		}
	}
	mutex_unlock(&block->lock);
	return min(got, 0);
}

void bulkmem_block_put(struct block *block)
{
	unsigned long i;

	if (!refcount_dec_and_test(&block->references))
		return;
	for (i = 0; i < block->count; i++) {
		struct unit *unit = &block->units[i];

		if (unit->page)
			bulkmem_unit_put(block->memory.attribute, unit);
		else if (block->rated)
			bulkmem_unit_refund(1);
		cond_resched();
	}
	bulkmem_block_uncharge(block);
	mutex_destroy(&block->lock);
	kvfree(block);
}
