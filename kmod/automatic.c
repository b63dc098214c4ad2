// SPDX-License-Identifier: GPL-2.0
/*
 * The automatic rule: huge pages that one call faults in are parts of an extent of
 * the call's length, without a hint. The calls are MAP_POPULATE and mlock,
 * MADV_POPULATE_READ and MADV_POPULATE_WRITE, and long-term pins (io_uring's
 * registered buffers, RDMA, VFIO).
 *
 * The livepatch replaces a function that knows one page. A replacement for one
 * that knows the range could not call the original, so it would be a copy for each
 * kernel. Return probes need no copy: one handler notes the range when the call
 * starts, another forgets it when the call ends. The call's page faults happen in
 * the same task, so only current writes and reads its note, without a lock.
 *
 * VFIO and RDMA pin a long range by calls for 2 MiB, which do not know its length.
 * So a pin of 2 MiB or more counts as part of a large extent, whatever its length:
 * the processor does not read soon what it pins for a device.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/hash.h>
#include <linux/kprobes.h>
#include <linux/minmax.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sysfs.h>
#include <linux/version.h>

#include "bulkmem.h"

#ifndef CONFIG_KRETPROBES
# error "bulkmem needs a kernel with CONFIG_KRETPROBES=y, as all distributions' are"
#endif

/* Calls at a time. Beyond, a call has no effect on the extent. */
#define NOTES		256
/* Notes that are searched for one task. */
#define NEAR		32

/**
 * struct note - a call in progress
 * @task: the task that makes the call, or NULL; another task only ever sets NULL
 * @born: its start time: a task that dies in a call leaves its note, and the next
 *        task may have its address
 * @start: first address
 * @length: in bytes
 * @extent: the length of the extent
 */
struct note {
	struct task_struct *task;
	u64 born;
	unsigned long start;
	u64 length;
	u64 extent;
};

static struct note notes[NOTES];
/* Lets faults skip the search while no call is in progress. */
static atomic_t calls;

static struct note *bulkmem_automatic_near(unsigned int i)
{
	return &notes[(hash_ptr(current, ilog2(NOTES)) + i) % NOTES];
}

static struct note *bulkmem_automatic_find(void)
{
	unsigned int i;

	for (i = 0; i < NEAR; i++) {
		struct note *note = bulkmem_automatic_near(i);

		if (READ_ONCE(note->task) == current && note->born == current->start_time)
			return note;
	}
	return NULL;
}

/* Returns 0 if the end of the call must be noticed, as an entry handler does. */
static int bulkmem_automatic_note(unsigned long start, u64 length, u64 extent)
{
	unsigned int i;

	/* The outer call counts. */
	if (length < PMD_SIZE || bulkmem_automatic_find())
		return 1;
	for (i = 0; i < NEAR; i++) {
		struct note *note = bulkmem_automatic_near(i);

		/* One that a task at the same address has left counts as a call already. */
		if (READ_ONCE(note->task) == current)
			atomic_dec(&calls);
		else if (cmpxchg(&note->task, NULL, current))
			continue;
		note->born = current->start_time;
		note->start = start & PAGE_MASK;
		note->length = length + offset_in_page(start);
		note->extent = extent;
		atomic_inc(&calls);
		return 0;
	}
	return 1;
}

static int bulkmem_automatic_end(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct note *note = bulkmem_automatic_find();

	if (note) {
		WRITE_ONCE(note->task, NULL);
		atomic_dec(&calls);
	}
	return 0;
}

/* __mm_populate(start, length, ...); mlockall() passes the whole address space. */
static int bulkmem_automatic_populate(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	u64 length = regs_get_kernel_argument(regs, 1);
	u64 mapped = current->mm ? (u64)READ_ONCE(current->mm->total_vm) << PAGE_SHIFT : 0;

	return bulkmem_automatic_note(regs_get_kernel_argument(regs, 0), length,
				      min(length, mapped));
}

/* The functions of MADV_POPULATE, which 5.10 does not have. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
# define MADVISE	"faultin_page_range"
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(5, 14, 0)
# define MADVISE	"faultin_vma_page_range"
#endif

#ifdef MADVISE
/* faultin_page_range(mm, start, end, ...), before 6.10 faultin_vma_page_range(vma, ...) */
static int bulkmem_automatic_madvise(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	unsigned long start = regs_get_kernel_argument(regs, 1);
	u64 length = regs_get_kernel_argument(regs, 2) - start;

	return bulkmem_automatic_note(start, length, length);
}
#endif

static int bulkmem_automatic_long_term(unsigned long start, unsigned long pages,
				       unsigned int flags)
{
	if (!(flags & FOLL_LONGTERM))
		return 1;
	return bulkmem_automatic_note(start, (u64)pages << PAGE_SHIFT, U64_MAX);
}

/* pin_user_pages(unsigned long start, unsigned long pages, unsigned int flags, ...) */
static int bulkmem_automatic_pin(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return bulkmem_automatic_long_term(regs_get_kernel_argument(regs, 0),
					   regs_get_kernel_argument(regs, 1),
					   regs_get_kernel_argument(regs, 2));
}

/* pin_user_pages_fast(unsigned long start, int pages, unsigned int flags, ...) */
static int bulkmem_automatic_fast(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return bulkmem_automatic_long_term(regs_get_kernel_argument(regs, 0),
					   (u32)regs_get_kernel_argument(regs, 1),
					   regs_get_kernel_argument(regs, 2));
}

/* pin_user_pages_remote(mm, start, pages, flags, ...) */
static int bulkmem_automatic_remote(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return bulkmem_automatic_long_term(regs_get_kernel_argument(regs, 1),
					   regs_get_kernel_argument(regs, 2),
					   regs_get_kernel_argument(regs, 3));
}

#define RETURN_PROBE(_name, _start) {			\
	.kp.symbol_name = _name,			\
	.entry_handler = _start,			\
	.handler = bulkmem_automatic_end,		\
	.maxactive = NOTES,				\
}

static struct kretprobe probes[] = {
	RETURN_PROBE("__mm_populate", bulkmem_automatic_populate),
#ifdef MADVISE
	RETURN_PROBE(MADVISE, bulkmem_automatic_madvise),
#endif
	RETURN_PROBE("pin_user_pages", bulkmem_automatic_pin),
	RETURN_PROBE("pin_user_pages_fast", bulkmem_automatic_fast),
	RETURN_PROBE("pin_user_pages_remote", bulkmem_automatic_remote),
};

/* Written under kernel_param_lock(). */
static bool automatic;
static bool registered;
/* Neither while loading can still fail, nor while unloading. */
static bool allowed;

static void bulkmem_automatic_unregister(unsigned int count)
{
	unsigned int i;

	while (count--) {
		unregister_kretprobe(&probes[count]);
		/* Registering again refuses the address that the kernel has found. */
		probes[count].kp.addr = NULL;
		probes[count].kp.flags = 0;
	}
	/* The ends of calls in progress are not noticed any more. */
	for (i = 0; i < NOTES; i++)
		WRITE_ONCE(notes[i].task, NULL);
	atomic_set(&calls, 0);
	registered = false;
}

static int bulkmem_automatic_register(void)
{
	unsigned int i;
	int err;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		err = register_kretprobe(&probes[i]);
		if (err) {
			pr_err("cannot watch %s: %d\n", probes[i].kp.symbol_name, err);
			bulkmem_automatic_unregister(i);
			return err;
		}
	}
	registered = true;
	return 0;
}

static int bulkmem_automatic_set(const char *value, const struct kernel_param *param)
{
	bool on;
	int err = kstrtobool(value, &on);

	if (err)
		return err;
	/* While loading, bulkmem_automatic_start() follows. */
	if (allowed && on != registered) {
		if (on)
			err = bulkmem_automatic_register();
		else
			bulkmem_automatic_unregister(ARRAY_SIZE(probes));
	}
	if (!err)
		automatic = on;
	return err;
}

static int bulkmem_automatic_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%c\n", automatic ? 'Y' : 'N');
}

static const struct kernel_param_ops automatic_ops = {
	.set = bulkmem_automatic_set,
	.get = bulkmem_automatic_get,
};
module_param_cb(automatic, &automatic_ops, NULL, 0644);
MODULE_PARM_DESC(automatic,
		 "Count MAP_POPULATE, MADV_POPULATE and long-term pins as one extent (bool, default: N)");

void bulkmem_automatic_start(void)
{
	kernel_param_lock(THIS_MODULE);
	allowed = true;
	if (automatic && bulkmem_automatic_register())
		automatic = false;
	kernel_param_unlock(THIS_MODULE);
}

void bulkmem_automatic_stop(void)
{
	kernel_param_lock(THIS_MODULE);
	allowed = false;
	if (registered)
		bulkmem_automatic_unregister(ARRAY_SIZE(probes));
	kernel_param_unlock(THIS_MODULE);
}

u64 bulkmem_automatic_extent(unsigned long addr)
{
	const struct note *note;

	if (!atomic_read(&calls))
		return 0;
	note = bulkmem_automatic_find();
	return note && addr - note->start < note->length ? note->extent : 0;
}
