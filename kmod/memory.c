// SPDX-License-Identifier: GPL-2.0
/*
 * mmap() of /dev/bulkmem: zeroed memory with a chosen page size, NUMA node and
 * cache attribute.
 *
 * A block is the memory of one mmap(). It lives as long as a mapping of any
 * part of it in any process. Mappings are VM_PFNMAP, so their pages cannot be
 * pinned (except huge ones before 6.12, see block.c). After the last mapping is
 * gone, only the direct map refers to the pages, and their attribute changes
 * back before they return to the allocator.
 *
 * Every alias of a page has the same attribute. The direct map changes first, by
 * functions that also record the type of each page, and the kernel refuses a
 * user mapping of any other type.
 */
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/pfn_t.h>
#include <linux/sched/signal.h>
#include <linux/version.h>

#include <asm/memtype.h>

#include "block.h"

/* Without PAT, the kernel maps write-combining memory uncached. */
static bool has_write_combining(void)
{
	return cachemode2protval(_PAGE_CACHE_MODE_WC) !=
	       cachemode2protval(_PAGE_CACHE_MODE_UC_MINUS);
}

/**
 * bulkmem_memory_describe() - describe the memory of the next mmap() of a file
 * @file: the open file
 * @memory: attribute, page size and node
 *
 * Write-through is refused: no exported function changes the direct map to that
 * type, and a page must never be mapped with two types.
 *
 * Return: 0, -EINVAL for an invalid description, -EOPNOTSUPP for an attribute or
 * page size that this kernel does not support.
 */
long bulkmem_memory_describe(struct bulkmem_file *file, const struct bulkmem_memory *memory)
{
	if (memory->flags || memory->attribute > BULKMEM_WT)
		return -EINVAL;
	if (memory->page_shift != PAGE_SHIFT && memory->page_shift != PMD_SHIFT)
		return -EINVAL;
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	/* Xen's paravirtual guests have no large pages. */
	if (memory_is_huge(memory) && !has_transparent_hugepage())
		return -EOPNOTSUPP;
#else
	if (memory_is_huge(memory))
		return -EOPNOTSUPP;
#endif
	if (memory->node != NUMA_NO_NODE &&
	    (memory->node < 0 || memory->node >= MAX_NUMNODES || !node_online(memory->node)))
		return -EINVAL;
	if (memory->attribute == BULKMEM_WT)
		return -EOPNOTSUPP;
	if (memory->attribute == BULKMEM_WC && !has_write_combining())
		return -EOPNOTSUPP;

	mutex_lock(&file->lock);
	file->memory = *memory;
	mutex_unlock(&file->lock);
	return 0;
}

static struct bulkmem_memory description(struct bulkmem_file *file)
{
	struct bulkmem_memory memory;

	mutex_lock(&file->lock);
	memory = file->memory;
	mutex_unlock(&file->lock);
	return memory;
}

/* Mappings. */

static void block_vm_open(struct vm_area_struct *vma)
{
	struct block *block = vma->vm_private_data;

	refcount_inc(&block->mappings);
}

static void block_vm_close(struct vm_area_struct *vma)
{
	struct block *block = vma->vm_private_data;

	if (refcount_dec_and_test(&block->mappings))
		bulkmem_block_free(block);
}

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
static vm_fault_t map_huge(struct vm_fault *vmf, unsigned long pfn)
{
	bool write = vmf->flags & FAULT_FLAG_WRITE;
	pfn_t huge = __pfn_to_pfn_t(ALIGN_DOWN(pfn, HUGE_PAGES), PFN_DEV);

	return vmf_insert_pfn_pmd(vmf, huge, write);
}
#else
/* Never called: bulkmem_memory_describe() refuses huge pages. */
static vm_fault_t map_huge(struct vm_fault *vmf, unsigned long pfn)
{
	return VM_FAULT_SIGBUS;
}
#endif

/* True if the mapping contains the whole huge page at the address, aligned. */
static bool fits_huge(struct vm_fault *vmf, unsigned long pfn)
{
	unsigned long start = ALIGN_DOWN(vmf->address, PMD_SIZE);
	struct vm_area_struct *vma = vmf->vma;

	return start >= vma->vm_start && vma->vm_end - start >= PMD_SIZE &&
	       (vmf->address - start) >> PAGE_SHIFT == (pfn & (HUGE_PAGES - 1));
}

/*
 * Maps the block's page at this address: after the first touch of a huge page,
 * in a forked child, or after munmap(), mremap() or mprotect() of a part of a
 * huge page. Not huge_fault(), which the kernel does not call for such mappings
 * before 6.12.
 */
static vm_fault_t block_vm_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct block *block = vma->vm_private_data;
	unsigned long pfn;
	pmd_t pmd;

	if (vmf->pgoff >= block->length >> PAGE_SHIFT)
		return VM_FAULT_SIGBUS;
	pfn = page_to_pfn(block_page(block, vmf->pgoff));

	/*
	 * Nothing removes a page table or replaces it by a huge entry, so a
	 * table seen here stays. If another thread has just mapped the huge
	 * page, there is nothing left to do.
	 */
	pmd = READ_ONCE(*vmf->pmd);
	if (pmd_none(pmd) && block_is_huge(block) && fits_huge(vmf, pfn))
		return map_huge(vmf, pfn);
	if (pmd_trans_huge(pmd))
		return VM_FAULT_NOPAGE;
	return vmf_insert_pfn_prot(vma, vmf->address & PAGE_MASK, pfn, vma->vm_page_prot);
}

/* For debuggers, which cannot take references to the pages. */
static int block_vm_access(struct vm_area_struct *vma, unsigned long addr, void *buf, int len,
			   int write)
{
	struct block *block = vma->vm_private_data;
	unsigned long index = vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT);
	void *kaddr;

	if (write && !(vma->vm_flags & VM_WRITE))
		return -EACCES;
	len = min_t(unsigned long, len, PAGE_SIZE - offset_in_page(addr));
	kaddr = page_address(block_page(block, index)) + offset_in_page(addr);
	if (write) {
		memcpy(kaddr, buf, len);
		wmb();	/* drain the write-combining buffers */
	} else {
		memcpy(buf, kaddr, len);
	}
	return len;
}

static const struct vm_operations_struct block_vm_ops = {
	.open = block_vm_open,
	.close = block_vm_close,
	.fault = block_vm_fault,
	.access = block_vm_access,
};

static void set_flags(struct vm_area_struct *vma)
{
	const vm_flags_t set = VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, VM_MAYEXEC);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~VM_MAYEXEC;
#endif
}

static pgprot_t protection(struct vm_area_struct *vma, u32 attribute)
{
	switch (attribute) {
	case BULKMEM_WC:
		return pgprot_writecombine(vma->vm_page_prot);
	case BULKMEM_UC:
		return pgprot_noncached(vma->vm_page_prot);
	default:
		return vma->vm_page_prot;
	}
}

/* For small pages only: huge ones are mapped at their first touch. */
static int map_small(struct block *block, struct vm_area_struct *vma)
{
	unsigned long i;

	for (i = 0; i < block->count; i++) {
		vm_fault_t fault = vmf_insert_pfn_prot(vma, vma->vm_start + i * PAGE_SIZE,
						       page_to_pfn(block->pages[i]),
						       vma->vm_page_prot);

		if (fault != VM_FAULT_NOPAGE)
			return vm_fault_to_errno(fault, 0) ?: -EFAULT;
		if (i % HUGE_PAGES)
			continue;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/**
 * bulkmem_memory_mmap() - allocate memory for a new mapping
 * @file: the open file, with the description
 * @vma: the mapping, which must be shared and start at offset 0
 *
 * Return: 0; -EINVAL for other mappings; -EACCES without write access; -ENOMEM
 * without memory or beyond RLIMIT_MEMLOCK; -EINTR if the caller was killed.
 */
int bulkmem_memory_mmap(struct bulkmem_file *file, struct vm_area_struct *vma)
{
	struct bulkmem_memory memory = description(file);
	unsigned long length = vma->vm_end - vma->vm_start;
	struct block *block;

	if (!(vma->vm_flags & VM_MAYSHARE) || vma->vm_flags & VM_EXEC || vma->vm_pgoff)
		return -EINVAL;
	if (memory_is_huge(&memory) && !IS_ALIGNED(vma->vm_start | length, PMD_SIZE))
		return -EINVAL;
	if (!(vma->vm_flags & VM_SHARED))	/* opened for reading only */
		return -EACCES;

	block = bulkmem_block_make(&memory, length);
	if (IS_ERR(block))
		return PTR_ERR(block);

	set_flags(vma);
	vma->vm_page_prot = protection(vma, memory.attribute);
	if (!memory_is_huge(&memory)) {
		int err = map_small(block, vma);

		if (err) {
			/* Before freeing: other threads can already access the pages. */
			zap_vma_ptes(vma, vma->vm_start, length);
			bulkmem_block_free(block);
			return err;
		}
	}
	vma->vm_private_data = block;
	vma->vm_ops = &block_vm_ops;
	return 0;
}

/**
 * bulkmem_memory_area() - find the address for a new mapping
 * @file: an open /dev/bulkmem
 * @addr: the preferred address, or 0
 * @length: of the mapping
 * @pgoff: of the mapping
 * @flags: of mmap()
 *
 * Return: the address, aligned to the page size described, or an error.
 */
unsigned long bulkmem_memory_area(struct file *file, unsigned long addr, unsigned long length,
				  unsigned long pgoff, unsigned long flags)
{
	struct bulkmem_memory __maybe_unused memory = description(file->private_data);

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	if (memory_is_huge(&memory)) {
		if (!(flags & MAP_FIXED))
			addr = ALIGN(addr, PMD_SIZE);
		return thp_get_unmapped_area(file, addr, length, pgoff, flags);
	}
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	return mm_get_unmapped_area(current->mm, file, addr, length, pgoff, flags);
#else
	return current->mm->get_unmapped_area(file, addr, length, pgoff, flags);
#endif
}
