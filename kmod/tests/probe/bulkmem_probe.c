// SPDX-License-Identifier: GPL-2.0
/*
 * For the tests: reports how a page is mapped in the caller's page tables and in
 * the kernel's direct map. pread() of /dev/bulkmem_probe at an address returns a
 * struct answer about that address, or ENOENT if nothing is mapped there; at
 * ANY_FRAME plus a frame number, about that frame, whichever process uses it.
 */
#include <linux/bits.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include <asm/msr.h>

#define ANY_FRAME	BIT_ULL(62)

/* A page table entry, decoded. */
struct entry {
	u64 value;
	u64 size;	/* bytes that it maps */
	u64 type;	/* as in the PAT register: 0 UC, 1 WC, 4 WT, 5 WP, 6 WB, 7 UC- */
};

struct answer {
	struct entry user;
	struct entry direct;
	u64 frame;
	u64 node;
	u64 references;	/* to the page's head */
};

static struct entry decode(u64 value, u64 size)
{
	unsigned int pat_bit = size == PAGE_SIZE ? _PAGE_BIT_PAT : _PAGE_BIT_PAT_LARGE;
	unsigned int index = (value >> _PAGE_BIT_PWT & 1) | (value >> _PAGE_BIT_PCD & 1) << 1 |
			     (value >> pat_bit & 1) << 2;
	/* Later kernels have renamed rdmsrl(). */
	u64 pat = native_read_msr(MSR_IA32_CR_PAT);

	return (struct entry) { .value = value, .size = size, .type = pat >> index * 8 & 7 };
}

/* Finds the entry and the frame of an address. The caller holds the mmap lock. */
static int look_user(unsigned long address, struct answer *answer)
{
	pgd_t *pgd;
	p4d_t *p4d;
	pud_t *pud;
	pmd_t *pmd;
	pte_t *pte;

	if (!find_vma_intersection(current->mm, address, address + 1))
		return -ENOENT;
	pgd = pgd_offset(current->mm, address);
	if (pgd_none(*pgd))
		return -ENOENT;
	p4d = p4d_offset(pgd, address);
	if (p4d_none(*p4d))
		return -ENOENT;
	pud = pud_offset(p4d, address);
	if (!pud_present(*pud) || pud_val(*pud) & _PAGE_PSE)
		return -ENOENT;
	pmd = pmd_offset(pud, address);
	if (!pmd_present(*pmd))
		return -ENOENT;
	if (pmd_val(*pmd) & _PAGE_PSE) {
		answer->user = decode(pmd_val(*pmd), PMD_SIZE);
		answer->frame = pmd_pfn(*pmd) + ((address & ~PMD_MASK) >> PAGE_SHIFT);
		return 0;
	}
	pte = pte_offset_kernel(pmd, address);
	if (!pte_present(*pte))
		return -ENOENT;
	answer->user = decode(pte_val(*pte), PAGE_SIZE);
	answer->frame = pte_pfn(*pte);
	return 0;
}

static int look_direct(struct answer *answer)
{
	unsigned int level;
	pte_t *pte;

	if (!pfn_valid(answer->frame))
		return -ENOENT;
	pte = lookup_address((unsigned long)pfn_to_kaddr(answer->frame), &level);
	if (!pte)
		return -ENOENT;
	answer->direct = decode(pte_val(*pte), page_level_size(level));
	answer->node = page_to_nid(pfn_to_page(answer->frame));
	answer->references = page_count(pfn_to_page(answer->frame));
	return 0;
}

static ssize_t probe_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	struct answer answer = {};
	int err = 0;

	if (length != sizeof(answer))
		return -EINVAL;
	if (*offset >= ANY_FRAME) {
		answer.frame = *offset - ANY_FRAME;
	} else {
		mmap_read_lock(current->mm);
		err = look_user(*offset, &answer);
		mmap_read_unlock(current->mm);
	}
	err = err ?: look_direct(&answer);
	if (err)
		return err;
	return copy_to_user(buffer, &answer, sizeof(answer)) ? -EFAULT : sizeof(answer);
}

static const struct file_operations probe_operations = {
	.owner = THIS_MODULE,
	.read = probe_read,
};

static struct miscdevice probe = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "bulkmem_probe",
	.fops = &probe_operations,
	.mode = 0600,
};
module_misc_device(probe);

MODULE_DESCRIPTION("Reports how pages are mapped, for the tests of bulkmem");
MODULE_LICENSE("GPL");
