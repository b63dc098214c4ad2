// SPDX-License-Identifier: GPL-2.0
/*
 * For the tests: copies by __memcpy_flushcache() in buffers of its own and checks
 * every byte, or executes the copy instruction by instruction and finds out which
 * bytes a power failure would lose.
 *
 * To step, the copy runs with the trap flag. After each instruction, the handler
 * looks for bytes that it has stored. It notes them and inverts them again, so that
 * a further store to the same byte is seen, too. A byte stored by MOVNTI is safe;
 * one stored by another instruction is safe once its line has been written back.
 */
#include <linux/compiler.h>
#include <linux/fs.h>
#include <linux/kdebug.h>
#include <linux/kernel.h>
#include <linux/minmax.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <asm/processor-flags.h>

#define LINE		64
#define PAGES		4
#define AREA		(PAGES * PAGE_SIZE)
/* Before and after the copy, in the buffers and in what a stepped copy may change. */
#define MARGIN		(2 * LINE)
#define MOST_STEPPED	1024
#define DIRT		0xa5

struct request {
	u64 to;		/* place of the copy and of the original in their lines */
	u64 from;
	u64 length;
	u64 last;	/* copies of every length from @length up to this */
	u64 how;	/* COMPARE, STEP, or AT_END */
	/* Filled in: */
	u64 wrong;	/* bytes that differ from what they must be */
	u64 lost;	/* bytes that are not safe; the following ones only if stepped */
	u64 movnti;	/* instructions executed */
	u64 clwb;
	u64 clflushopt;
	u64 clflush;
	u64 sfence;
};

#define COMPARE	0	/* copies, and compares */
#define STEP	1	/* and steps; only one length, not above MOST_STEPPED */
#define AT_END	2	/* both buffers end with the copy, before a page that is not mapped */

#define BULKMEM_STEPS	_IOWR('b', 0x70, struct request)

static DEFINE_MUTEX(lock);
static u8 *to_area;
static u8 *from_area;
static u8 *twin;	/* a copy of from_area */

enum instruction { OTHER, MOVNTI, CLWB, CLFLUSHOPT, CLFLUSH, SFENCE };

/* A stepped copy. */
static struct {
	struct task_struct *task;	/* NULL: none */
	struct request *request;
	u8 *window;			/* what is watched */
	size_t length;
	u8 shadow[MOST_STEPPED + 2 * MARGIN];	/* its inverted content */
	u8 value[MOST_STEPPED + 2 * MARGIN];	/* the last byte stored */
	u8 state[MOST_STEPPED + 2 * MARGIN];
	enum instruction current_one;	/* the instruction that is executed now */
	unsigned long operand;		/* of CLWB, CLFLUSHOPT, CLFLUSH */
} steps;

enum { UNTOUCHED, DIRTY, SAFE };

/* The register with this number in machine code. */
static unsigned long value_of(const struct pt_regs *regs, unsigned int number)
{
	const unsigned long values[] = {
		regs->ax, regs->cx, regs->dx, regs->bx, regs->sp, regs->bp, regs->si, regs->di,
		regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13, regs->r14,
		regs->r15,
	};

	return values[number];
}

/* The address of a memory operand, whose ModR/M byte is at @code. */
static unsigned long operand_of(const struct pt_regs *regs, const u8 *code, u8 rex)
{
	unsigned int mod = *code >> 6, rm = *code & 7;
	unsigned long address;

	code++;
	if (rm == 4) {
		unsigned int base = *code & 7, index = (*code >> 3 & 7) | (rex & 2) << 2;

		if (mod == 0 && base == 5)
			return 0;
		address = value_of(regs, base | (rex & 1) << 3);
		if (index != 4)
			address += value_of(regs, index) << (*code >> 6);
		code++;
	} else {
		if (mod == 0 && rm == 5)
			return 0;
		address = value_of(regs, rm | (rex & 1) << 3);
	}
	if (mod == 1)
		address += *(const s8 *)code;
	else if (mod == 2)
		address += *(const s32 *)code;
	return address;
}

/* Decodes the next instruction. */
static void steps_decode(const struct pt_regs *regs)
{
	const u8 *code = (const u8 *)regs->ip;
	bool wide = false;
	u8 rex = 0;

	steps.current_one = OTHER;
	for (; *code == 0x66 || *code == 0x3e; code++)
		wide |= *code == 0x66;
	if ((*code & 0xf0) == 0x40)
		rex = *code++;
	if (*code++ != 0x0f)
		return;
	if (*code == 0xc3) {
		steps.current_one = MOVNTI;
		return;
	}
	if (*code++ != 0xae)
		return;
	if (*code == 0xf8) {
		steps.current_one = SFENCE;
		return;
	}
	if (*code >> 6 == 3)
		return;
	steps.operand = operand_of(regs, code, rex);
	if ((*code >> 3 & 7) == 7)
		steps.current_one = wide ? CLFLUSHOPT : CLFLUSH;
	else if ((*code >> 3 & 7) == 6 && wide)
		steps.current_one = CLWB;
}

/* Notes what the instruction has stored, and makes it visible again. */
static void steps_note_stores(void)
{
	size_t i;

	if (!memcmp(steps.window, steps.shadow, steps.length))
		return;
	for (i = 0; i < steps.length; i++) {
		if (steps.window[i] == steps.shadow[i])
			continue;
		steps.value[i] = steps.window[i];
		steps.state[i] = steps.current_one == MOVNTI ? SAFE : DIRTY;
		steps.window[i] = steps.shadow[i];
	}
}

static void steps_write_back(void)
{
	unsigned long line = steps.operand / LINE;
	size_t i;

	for (i = 0; i < steps.length; i++)
		if ((unsigned long)(steps.window + i) / LINE == line && steps.state[i] == DIRTY)
			steps.state[i] = SAFE;
}

static int steps_after(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *args = data;

	if (event != DIE_DEBUG || !steps.task || steps.task != current || user_mode(args->regs))
		return NOTIFY_DONE;
	steps_note_stores();
	switch (steps.current_one) {
	case MOVNTI:
		steps.request->movnti++;
		break;
	case CLWB:
		steps.request->clwb++;
		steps_write_back();
		break;
	case CLFLUSHOPT:
		steps.request->clflushopt++;
		steps_write_back();
		break;
	case CLFLUSH:
		steps.request->clflush++;
		steps_write_back();
		break;
	case SFENCE:
		steps.request->sfence++;
		break;
	case OTHER:
		break;
	}
	steps_decode(args->regs);
	return NOTIFY_STOP;
}

static struct notifier_block steps_notifier = {
	.notifier_call = steps_after,
	/* Before others, which would not expect the trap. */
	.priority = INT_MAX,
};

static __always_inline void steps_trap(bool on)
{
	if (on)
		asm volatile("pushfq; orq %0, (%%rsp); popfq"
			     : : "i" (X86_EFLAGS_TF) : "memory", "cc");
	else
		asm volatile("pushfq; andq %0, (%%rsp); popfq"
			     : : "i" (~X86_EFLAGS_TF) : "memory", "cc");
}

static void steps_step(struct request *request, u8 *to, const u8 *from)
{
	size_t length = request->length, i;
	unsigned long flags;

	steps.request = request;
	steps.window = to - MARGIN;
	steps.length = length + 2 * MARGIN;
	steps.current_one = OTHER;
	memset(steps.state, UNTOUCHED, steps.length);
	memset(steps.shadow, DIRT, steps.length);
	for (i = 0; i < length; i++)
		steps.shadow[MARGIN + i] = ~from[i];
	memcpy(steps.window, steps.shadow, steps.length);
	local_irq_save(flags);
	WRITE_ONCE(steps.task, current);
	steps_trap(true);
	__memcpy_flushcache(to, from, length);
	steps_trap(false);
	WRITE_ONCE(steps.task, NULL);
	local_irq_restore(flags);
	for (i = 0; i < steps.length; i++) {
		bool inside = i >= MARGIN && i < MARGIN + length;

		if (!inside)
			request->wrong += steps.state[i] != UNTOUCHED;
		else if (steps.state[i] == UNTOUCHED || steps.value[i] != from[i - MARGIN])
			request->wrong++;
		else
			request->lost += steps.state[i] != SAFE;
	}
}

static void steps_compare(struct request *request, u8 *to, const u8 *from, size_t length)
{
	size_t before = min_t(size_t, MARGIN, to - to_area);
	size_t after = min_t(size_t, MARGIN, to_area + AREA - (to + length));
	size_t i;

	memset(to - before, DIRT, before + length + after);
	__memcpy_flushcache(to, from, length);
	if (!memcmp(to, from, length) && !memchr_inv(to - before, DIRT, before) &&
	    !memchr_inv(to + length, DIRT, after))
		return;
	for (i = 0; i < length; i++)
		request->wrong += to[i] != from[i];
	for (i = 0; i < before; i++)
		request->wrong += to[-1 - (ssize_t)i] != DIRT;
	for (i = 0; i < after; i++)
		request->wrong += to[length + i] != DIRT;
}

static int steps_do(struct request *request)
{
	size_t length;

	if (request->how > AT_END || request->to >= LINE || request->from >= LINE ||
	    request->length > request->last || request->last > AREA - 2 * MARGIN - LINE)
		return -EINVAL;
	if (request->how == STEP) {
		if (request->length != request->last || request->last > MOST_STEPPED)
			return -EINVAL;
		steps_step(request, to_area + MARGIN + request->to, from_area + request->from);
		return 0;
	}
	for (length = request->length; length <= request->last; length++) {
		if (request->how == AT_END)
			steps_compare(request, to_area + AREA - length,
				      from_area + AREA - length, length);
		else
			steps_compare(request, to_area + MARGIN + request->to,
				      from_area + request->from, length);
		cond_resched();
	}
	return 0;
}

static long steps_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct request request;
	int err;

	if (command != BULKMEM_STEPS)
		return -ENOTTY;
	if (copy_from_user(&request, (void __user *)argument, sizeof(request)))
		return -EFAULT;
	mutex_lock(&lock);
	err = steps_do(&request);
	/* The original is as it was. */
	request.wrong += !!memcmp(from_area, twin, AREA);
	mutex_unlock(&lock);
	if (err)
		return err;
	return copy_to_user((void __user *)argument, &request, sizeof(request)) ? -EFAULT : 0;
}

static const struct file_operations steps_operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = steps_ioctl,
};

static struct miscdevice steps_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "bulkmem_steps",
	.fops = &steps_operations,
	.mode = 0600,
};

static int __init steps_init(void)
{
	int err = -ENOMEM;
	size_t i;

	/* vmalloc() leaves a page unmapped after each area. */
	to_area = vzalloc(AREA);
	from_area = vmalloc(AREA);
	twin = vmalloc(AREA);
	if (!to_area || !from_area || !twin)
		goto out;
	/* No two neighbouring bytes and no two words are the same. */
	for (i = 0; i < AREA; i++)
		from_area[i] = i * 167 + (i >> 8) * 13 + 1;
	memcpy(twin, from_area, AREA);
	err = register_die_notifier(&steps_notifier);
	if (err)
		goto out;
	err = misc_register(&steps_device);
	if (err)
		unregister_die_notifier(&steps_notifier);
out:
	if (err) {
		vfree(to_area);
		vfree(from_area);
		vfree(twin);
	}
	return err;
}

static void __exit steps_exit(void)
{
	misc_deregister(&steps_device);
	unregister_die_notifier(&steps_notifier);
	vfree(to_area);
	vfree(from_area);
	vfree(twin);
}

module_init(steps_init);
module_exit(steps_exit);

MODULE_DESCRIPTION("Steps through copies to persistent memory, for the tests of bulkmem");
MODULE_LICENSE("GPL");
