/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The differences between the kernels that the module supports, 5.10 to 7.3,
 * except for the function that it replaces, which main.c declares.
 */
#ifndef _BULKMEM_COMPAT_H
#define _BULKMEM_COMPAT_H

#include <linux/err.h>
#include <linux/huge_mm.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched.h>
#include <linux/version.h>
#include <asm/asm.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
# include <linux/kmsan-checks.h>
#else
static inline void kmsan_unpoison_memory(const void *address, size_t size)
{
}
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
# include <linux/pfn_t.h>
#endif

/* cpuid_count() */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
# include <asm/cpuid/api.h>
#endif

/* An entry of the exception table for a load that may raise a machine check. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 16, 0)
# include <asm/extable_fixup_types.h>
# define BULKMEM_EXTABLE_SAFE(from, to)	_ASM_EXTABLE_TYPE(from, to, EX_TYPE_DEFAULT_MCE_SAFE)
#else
# define BULKMEM_EXTABLE_SAFE(from, to)	_ASM_EXTABLE(from, to)
#endif

/*
 * Takes a page with a hardware error out of use, after copy_mc_user_highpage() has
 * met it. From 6.11 on, that function does so itself.
 */
static inline void bulkmem_memory_failed(struct page *page)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0) && defined(CONFIG_MEMORY_FAILURE)
	memory_failure_queue(page_to_pfn(page), 0);
#endif
}

/*
 * Frees after a grace period, without the delay of lazy RCU: its processors may
 * otherwise keep what is freed for seconds.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
# define call_rcu_hurry	call_rcu
#endif

/*
 * From 7.0 on, the kernel clears ranges of a huge page by one string instruction
 * each; before, page by page.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
# define BULKMEM_STOCK_RANGES
#endif

/* Returns the mapping that contains the address, or NULL. */
static inline struct vm_area_struct *bulkmem_vma_lookup(struct mm_struct *mm, unsigned long addr)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 14, 0)
	return vma_lookup(mm, addr);
#else
	return find_vma_intersection(mm, addr, addr + 1);
#endif
}

/* For a mapping that is being created. */
static inline void bulkmem_vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set,
					vm_flags_t clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

static inline unsigned long bulkmem_unmapped_area(struct file *filp, unsigned long addr,
						  unsigned long length, unsigned long pgoff,
						  unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
	return mm_get_unmapped_area(filp, addr, length, pgoff, flags);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	return mm_get_unmapped_area(current->mm, filp, addr, length, pgoff, flags);
#else
	return current->mm->get_unmapped_area(filp, addr, length, pgoff, flags);
#endif
}

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
/*
 * As above, aligned to PMD_SIZE; @addr is, too. 5.10 aligns only files on DAX,
 * and the kernels between it and 6.1 were not tested.
 */
static inline unsigned long bulkmem_huge_unmapped_area(struct file *filp, unsigned long addr,
						       unsigned long length,
						       unsigned long pgoff, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
	return thp_get_unmapped_area(filp, addr, length, pgoff, flags);
#else
	if (flags & MAP_FIXED)
		return bulkmem_unmapped_area(filp, addr, length, pgoff, flags);
	if (length > TASK_SIZE - PMD_SIZE)
		return -ENOMEM;
	addr = bulkmem_unmapped_area(filp, addr, length + PMD_SIZE, pgoff, flags);
	return IS_ERR_VALUE(addr) ? addr : ALIGN(addr, PMD_SIZE);
#endif
}

/*
 * Maps a huge page of VM_PFNMAP memory. From 6.12 on, the entry is special, and
 * the kernel takes no references by it. Before, it is one of device memory, and
 * the kernel finds no device to take references from.
 */
static inline vm_fault_t bulkmem_insert_pmd(struct vm_fault *vmf, unsigned long pfn, bool write)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	return vmf_insert_pfn_pmd(vmf, pfn, write);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	return vmf_insert_pfn_pmd(vmf, __pfn_to_pfn_t(pfn, PFN_DEV), write);
#else
	return vmf_insert_pfn_pmd(vmf, __pfn_to_pfn_t(pfn, PFN_DEV | PFN_MAP), write);
#endif
}
#endif

/* True if the entry maps a huge page. */
static inline bool bulkmem_pmd_is_huge(pmd_t pmd)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	return pmd_trans_huge(pmd);
#else
	return pmd_trans_huge(pmd) || pmd_devmap(pmd);
#endif
}

/*
 * False where the kernel cannot map huge pages of this memory: as a guest of
 * Xen without hardware support, and from 6.2 to 6.5, where reading
 * /proc/PID/smaps warns of huge pages without references.
 */
static inline bool bulkmem_maps_huge_pages(void)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	return has_transparent_hugepage() && (LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0) ||
					      LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0));
#else
	return false;
#endif
}

#endif /* _BULKMEM_COMPAT_H */
