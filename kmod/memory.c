// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/bulkmem-memory: zeroed memory with a chosen page size, NUMA node and
 * cache attribute, allocated in units of 2 MiB at the first access.
 *
 * A block is the memory of one mmap(). It lives as long as a mapping of any
 * part of it in any process. Mappings are VM_PFNMAP, so their pages cannot be
 * pinned. After the last mapping is gone, only the direct map refers to the
 * pages.
 *
 * Every alias of a page has the same attribute. The direct map changes first, by
 * functions that also record the type of each page, and the kernel refuses a
 * user mapping of any other type.
 */
#include <linux/capability.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <asm/memtype.h>

#include "block.h"
#include "compat.h"

static bool memory_unprivileged;
module_param(memory_unprivileged, bool, 0644);
MODULE_PARM_DESC(memory_unprivileged,
		 "Let processes without CAP_SYS_ADMIN use /dev/bulkmem-memory, if its permissions do (default: N)");

/**
 * struct memory_file - an open file of the device
 * @memory: describes the next mmap()
 * @lock: a mutex
 * @admin: opened with CAP_SYS_ADMIN
 */
struct memory_file {
	struct bulkmem_memory memory;
	struct mutex lock;		/* protects memory */
	bool admin;
};

/* A file that was opened while the parameter was set stops working with it. */
static bool bulkmem_memory_may_map(const struct memory_file *file)
{
	return file->admin || READ_ONCE(memory_unprivileged);
}

/* Without PAT, the kernel maps write-combining memory uncached. */
static bool bulkmem_memory_has_write_combining(void)
{
	return cachemode2protval(_PAGE_CACHE_MODE_WC) !=
	       cachemode2protval(_PAGE_CACHE_MODE_UC_MINUS);
}

/*
 * Describes the memory of the next mmap() of a file. -EINVAL for an invalid
 * description, -EOPNOTSUPP for an attribute or page size that this kernel does
 * not support. Write-through is refused: no exported function changes the direct
 * map to that type, and a page must never be mapped with two types.
 */
static long bulkmem_memory_describe(struct memory_file *file, const struct bulkmem_memory *memory)
{
	if (memory->flags || memory->reserved || memory->attribute > BULKMEM_WT)
		return -EINVAL;
	if (memory->page_shift != PAGE_SHIFT && memory->page_shift != PMD_SHIFT)
		return -EINVAL;
	if (memory_is_huge(memory) && !bulkmem_maps_huge_pages())
		return -EOPNOTSUPP;
	if (memory->node != NUMA_NO_NODE &&
	    (memory->node < 0 || memory->node >= MAX_NUMNODES || !node_online(memory->node)))
		return -EINVAL;
	if (memory->attribute == BULKMEM_WT)
		return -EOPNOTSUPP;
	if (memory->attribute == BULKMEM_WC && !bulkmem_memory_has_write_combining())
		return -EOPNOTSUPP;

	mutex_lock(&file->lock);
	file->memory = *memory;
	mutex_unlock(&file->lock);
	return 0;
}

static struct bulkmem_memory bulkmem_memory_description(struct memory_file *file)
{
	struct bulkmem_memory memory;

	mutex_lock(&file->lock);
	memory = file->memory;
	mutex_unlock(&file->lock);
	return memory;
}

/* Mappings. */

static void bulkmem_block_vm_open(struct vm_area_struct *vma)
{
	struct block *block = vma->vm_private_data;

	refcount_inc(&block->references);
}

static void bulkmem_block_vm_close(struct vm_area_struct *vma)
{
	bulkmem_block_put(vma->vm_private_data);
}

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
static vm_fault_t bulkmem_memory_map_huge(struct vm_fault *vmf, unsigned long pfn)
{
	bool write = vmf->flags & FAULT_FLAG_WRITE;

	return bulkmem_insert_pmd(vmf, ALIGN_DOWN(pfn, HUGE_PAGES), write);
}
#else
/* Never called: bulkmem_memory_describe() refuses huge pages. */
static vm_fault_t bulkmem_memory_map_huge(struct vm_fault *vmf, unsigned long pfn)
{
	return VM_FAULT_SIGBUS;
}
#endif

/* True if the mapping contains the whole huge page at the address, aligned. */
static bool bulkmem_memory_fits_huge(struct vm_fault *vmf, unsigned long pfn)
{
	unsigned long start = ALIGN_DOWN(vmf->address, PMD_SIZE);
	struct vm_area_struct *vma = vmf->vma;

	return start >= vma->vm_start && vma->vm_end - start >= PMD_SIZE &&
	       (vmf->address - start) >> PAGE_SHIFT == (pfn & (HUGE_PAGES - 1));
}

/*
 * Maps small pages: the one at the address and, if the block has small pages,
 * the rest of its unit, except broken pages.
 */
static vm_fault_t bulkmem_memory_map_small(struct vm_fault *vmf, struct block *block)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long index = ALIGN_DOWN(vmf->pgoff, HUGE_PAGES);
	unsigned long end = min(index + HUGE_PAGES, vma->vm_pgoff + vma_pages(vma));
	vm_fault_t fault;

	fault = vmf_insert_pfn_prot(vma, vmf->address & PAGE_MASK,
				    page_to_pfn(block_page(block, vmf->pgoff)), vma->vm_page_prot);
	if (block_is_huge(block))
		return fault;
	for (index = max(index, vma->vm_pgoff); index < end && fault == VM_FAULT_NOPAGE; index++) {
		struct page *page = block_page(block, index);

		if (!PageHWPoison(page))
			fault = vmf_insert_pfn_prot(vma, vma->vm_start +
						    ((index - vma->vm_pgoff) << PAGE_SHIFT),
						    page_to_pfn(page), vma->vm_page_prot);
	}
	return fault;
}

/*
 * Not huge_fault(), which the kernel does not call for such mappings before
 * 6.12.
 */
static vm_fault_t bulkmem_block_vm_fault(struct vm_fault *vmf)
{
	struct block *block = vmf->vma->vm_private_data;
	unsigned long pfn;
	struct page *page;
	pmd_t pmd;

	if (vmf->pgoff >= block->length >> PAGE_SHIFT)
		return VM_FAULT_SIGBUS;
	/* Not VM_FAULT_OOM, upon which the kernel repeats the access for ever. */
	if (bulkmem_block_fill(block, vmf->pgoff >> HUGE_ORDER))
		return VM_FAULT_SIGBUS;
	page = block_page(block, vmf->pgoff);
	if (PageHWPoison(page))
		return VM_FAULT_HWPOISON;
	pfn = page_to_pfn(page);

	/*
	 * Nothing removes a page table or replaces it by a huge entry, so a
	 * table seen here stays. If another thread has just mapped the huge
	 * page, there is nothing left to do.
	 */
	pmd = READ_ONCE(*vmf->pmd);
	if (pmd_none(pmd) && block_is_huge(block) && bulkmem_memory_fits_huge(vmf, pfn) &&
	    !bulkmem_is_poisoned(pfn_to_page(ALIGN_DOWN(pfn, HUGE_PAGES)), HUGE_PAGES))
		return bulkmem_memory_map_huge(vmf, pfn);
	if (bulkmem_pmd_is_huge(pmd))
		return VM_FAULT_NOPAGE;
	return bulkmem_memory_map_small(vmf, block);
}

/* For debuggers, which cannot take references to the pages. */
static int bulkmem_block_vm_access(struct vm_area_struct *vma, unsigned long addr, void *buf,
				   int len, int write)
{
	struct block *block = vma->vm_private_data;
	unsigned long index = vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT);
	struct page *page;
	void *kaddr;

	if (write && !(vma->vm_flags & VM_WRITE))
		return -EACCES;
	if (bulkmem_block_fill(block, index >> HUGE_ORDER))
		return -EIO;
	page = block_page(block, index);
	if (PageHWPoison(page))
		return -EIO;
	len = min_t(unsigned long, len, PAGE_SIZE - offset_in_page(addr));
	kaddr = page_address(page) + offset_in_page(addr);
	if (write) {
		memcpy(kaddr, buf, len);
		wmb();	/* drain the write-combining buffers */
	} else {
		memcpy(buf, kaddr, len);
	}
	return len;
}

static const struct vm_operations_struct block_vm_ops = {
	.open = bulkmem_block_vm_open,
	.close = bulkmem_block_vm_close,
	.fault = bulkmem_block_vm_fault,
	.access = bulkmem_block_vm_access,
};

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

/*
 * Reserves memory for a new mapping, which must be shared and start at offset 0.
 * -EINVAL for other mappings; -EACCES without write access; -EPERM if
 * memory_unprivileged has been unset; -ENOMEM beyond RLIMIT_MEMLOCK or what the
 * machine has; -EAGAIN beyond the rate.
 */
static int bulkmem_memory_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct memory_file *file = filp->private_data;
	struct bulkmem_memory memory = bulkmem_memory_description(file);
	unsigned long length = vma->vm_end - vma->vm_start;
	struct block *block;

	if (!bulkmem_memory_may_map(file))
		return -EPERM;
	if (!(vma->vm_flags & VM_MAYSHARE) || vma->vm_flags & VM_EXEC || vma->vm_pgoff)
		return -EINVAL;
	if (memory_is_huge(&memory) && !IS_ALIGNED(vma->vm_start | length, PMD_SIZE))
		return -EINVAL;
	if (!(vma->vm_flags & VM_SHARED))	/* opened for reading only */
		return -EACCES;

	block = bulkmem_block_make(&memory, length,
				   memory.attribute != BULKMEM_WB && !file->admin);
	if (IS_ERR(block))
		return PTR_ERR(block);

	bulkmem_vm_flags_mod(vma, VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
	vma->vm_page_prot = protection(vma, memory.attribute);
	vma->vm_private_data = block;
	vma->vm_ops = &block_vm_ops;
	return 0;
}

/* Populates the unit at @addr, and sets *@next to the address of the next one. */
static int bulkmem_memory_populate_unit(unsigned long addr, unsigned long *next)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	unsigned int flags = 0;
	struct block *block;
	unsigned long index;
	int err;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	vma = bulkmem_vma_lookup(mm, addr);
	if (!vma || vma->vm_ops != &block_vm_ops) {
		mmap_read_unlock(mm);
		return -EFAULT;
	}
	block = vma->vm_private_data;
	refcount_inc(&block->references);
	index = vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT);
	*next = min(addr + ((HUGE_PAGES - (index & (HUGE_PAGES - 1))) << PAGE_SHIFT), vma->vm_end);
	if (vma->vm_flags & VM_WRITE)
		flags = FAULT_FLAG_WRITE;
	mmap_read_unlock(mm);

	/* Without the lock, so that the other threads can map and fault. */
	err = bulkmem_block_fill(block, index >> HUGE_ORDER);
	bulkmem_block_put(block);
	if (err)
		return err;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	err = fixup_user_fault(mm, addr, flags, NULL);
	mmap_read_unlock(mm);
	return err;
}

static long bulkmem_memory_populate(const struct bulkmem_populate *asked)
{
	unsigned long addr;
	u64 end;

	if (asked->flags || !asked->length || !PAGE_ALIGNED(asked->addr) ||
	    !PAGE_ALIGNED(asked->length) ||
	    check_add_overflow(asked->addr, asked->length, &end) || end > current->mm->task_size)
		return -EINVAL;
	for (addr = asked->addr; addr < end; ) {
		int err = bulkmem_memory_populate_unit(addr, &addr);

		if (err)
			return err;
		cond_resched();
	}
	return 0;
}

static long bulkmem_memory_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;
	struct bulkmem_populate range;
	struct bulkmem_memory memory;
	int err;

	switch (command) {
	case BULKMEM_IOC_ABI:
		return put_user(BULKMEM_ABI, (__u32 __user *)user);
	case BULKMEM_IOC_MEMORY:
		err = bulkmem_device_argument(&memory, sizeof(memory), user);
		return err ?: bulkmem_memory_describe(filp->private_data, &memory);
	case BULKMEM_IOC_POPULATE:
		err = bulkmem_device_argument(&range, sizeof(range), user);
		return err ?: bulkmem_memory_populate(&range);
	default:
		return -ENOTTY;
	}
}

/* The address is aligned to the page size described. */
static unsigned long bulkmem_memory_area(struct file *filp, unsigned long addr,
					 unsigned long length, unsigned long pgoff,
					 unsigned long flags)
{
	struct bulkmem_memory __maybe_unused memory =
		bulkmem_memory_description(filp->private_data);

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	if (memory_is_huge(&memory)) {
		if (!(flags & MAP_FIXED))
			addr = ALIGN(addr, PMD_SIZE);
		return bulkmem_huge_unmapped_area(filp, addr, length, pgoff, flags);
	}
#endif
	return bulkmem_unmapped_area(filp, addr, length, pgoff, flags);
}

static int bulkmem_memory_open(struct inode *inode, struct file *filp)
{
	struct memory_file *file;

	if (!bulkmem_device_is_ready())
		return -ENODEV;
	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	/* Nothing to log if the parameter allows it anyway. */
	file->admin = READ_ONCE(memory_unprivileged) ?
		      ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN) : capable(CAP_SYS_ADMIN);
	if (!bulkmem_memory_may_map(file)) {
		kfree(file);
		return -EPERM;
	}
	file->memory = (struct bulkmem_memory) {
		.attribute = BULKMEM_WB,
		.page_shift = PAGE_SHIFT,
		.node = NUMA_NO_NODE,
	};
	mutex_init(&file->lock);
	filp->private_data = file;
	return nonseekable_open(inode, filp);
}

static int bulkmem_memory_release(struct inode *inode, struct file *filp)
{
	struct memory_file *file = filp->private_data;

	mutex_destroy(&file->lock);
	kfree(file);
	return 0;
}

static const struct file_operations memory_operations = {
	.owner = THIS_MODULE,
	.open = bulkmem_memory_open,
	.release = bulkmem_memory_release,
	.unlocked_ioctl = bulkmem_memory_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = bulkmem_memory_mmap,
	.get_unmapped_area = bulkmem_memory_area,
};

struct miscdevice bulkmem_memory_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "bulkmem-memory",
	.fops = &memory_operations,
	.groups = bulkmem_unit_groups,
	.mode = 0600,
};
