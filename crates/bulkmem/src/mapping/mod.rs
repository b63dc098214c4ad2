//! Anonymous memory mappings with a chosen page size.
//!
//! Clearing or copying large memory spends much of its time in address translation and page faults. Huge pages reduce
//! the first, prefaulting the second. Use a [`Mapping`] for memory that is large and lives long. For small memory use a
//! `Vec`: a mapping occupies whole pages and costs a system call to create and another to release.

mod error;
mod smaps;

use std::ffi::c_void;
use std::fmt;
use std::fs;
use std::hint;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::machine::Machine;

pub use error::MappingError;

/// The kind of pages of a [`Mapping`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub enum Pages {
    /// Pages of the smallest size, and no transparent huge ones.
    #[default]
    Base,
    /// Transparent huge pages, if the kernel has some free. The mapping is aligned to their size. They need no
    /// reservation and are not guaranteed; [`Mapping::backing_page_size`] returns the size in use.
    Transparent,
    /// Explicit huge pages (hugetlb) of this many bytes, which the administrator must have reserved.
    Explicit(u64),
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pages::Base => f.write_str("base"),
            Pages::Transparent => f.write_str("transparent huge"),
            Pages::Explicit(size) => write!(f, "explicit huge {size}-byte"),
        }
    }
}

/// Private, zeroed memory in pages of the chosen kind. Unmapped when dropped.
///
/// ```
/// use bulkmem::{Pages, Mapping};
///
/// let mut mapping = Mapping::new(3 << 20, Pages::Transparent)?;
/// mapping.prefault()?;
/// bulkmem::fill(&mut mapping, 0xA5);
/// assert!(mapping.iter().all(|&byte| byte == 0xA5));
/// # Ok::<(), bulkmem::MappingError>(())
/// ```
#[derive(Debug)]
pub struct Mapping {
    /// First usable byte.
    start: NonNull<u8>,
    /// Bytes requested.
    length: usize,
    /// Bytes in whole pages from `start` on.
    whole: usize,
    /// The range to unmap: the pages and the guards around them.
    mapped: (NonNull<c_void>, usize),
    pages: Pages,
}

// SAFETY: a mapping owns its memory exclusively, like a `Box<[u8]>`; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: shared references to a mapping only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of zeroed memory, rounded up to whole pages.
    ///
    /// Mappings of base and transparent pages have an inaccessible guard page before and after them, so that overruns
    /// fault.
    ///
    /// # Errors
    /// If `bytes` is 0 or more than an address space holds, or if the kernel has too little memory, no pages of that size,
    /// or too few reserved ones.
    pub fn new(bytes: usize, pages: Pages) -> Result<Mapping, MappingError> {
        if bytes == 0 {
            return Err(MappingError::Empty);
        }
        match pages {
            Pages::Base => Mapping::guarded(bytes, rustix::param::page_size(), pages),
            Pages::Transparent => Mapping::guarded(bytes, transparent_page_size(), pages),
            Pages::Explicit(size) => Mapping::explicit(bytes, size),
        }
    }

    fn guarded(bytes: usize, page: usize, pages: Pages) -> Result<Mapping, MappingError> {
        let whole = whole_pages(bytes, page)?;
        let guard = rustix::param::page_size();
        // One page to align within, a guard on either side.
        let slack = page + 2 * guard;
        let length = whole
            .checked_add(slack)
            .filter(|&length| length <= isize::MAX as usize)
            .ok_or(MappingError::TooLong { bytes })?;
        let refused = |source| refused("map memory", source, bytes, pages);
        // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), MapFlags::PRIVATE)
        }
        .map_err(refused)?;
        let first = mapped.cast::<u8>().wrapping_add(guard);
        let start = first.wrapping_add(first.addr().next_multiple_of(page) - first.addr());
        // From here on dropping it unmaps.
        let mapping = Mapping {
            start: not_null(start),
            length: bytes,
            whole,
            mapped: (not_null(mapped), length),
            pages,
        };
        // SAFETY: start..start+whole lies within the mapping just made, which nothing else uses.
        unsafe { rustix::mm::mprotect(start.cast(), whole, MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(refused)?;
        let advice = if pages == Pages::Base { Advice::LinuxNoHugepage } else { Advice::LinuxHugepage };
        // SAFETY: as above; this advice changes no contents.
        match unsafe { rustix::mm::madvise(start.cast(), whole, advice) } {
            // A kernel without transparent huge pages gives base pages in any case.
            Err(Errno::INVAL) if pages == Pages::Base => Ok(mapping),
            Err(Errno::INVAL) => Err(MappingError::NoTransparent(Errno::INVAL.into())),
            Err(source) => Err(refused(source)),
            Ok(()) => Ok(mapping),
        }
    }

    fn explicit(bytes: usize, size: u64) -> Result<Mapping, MappingError> {
        let available = &Machine::current().huge_page_sizes;
        let page = match usize::try_from(size) {
            Ok(page) if page.is_power_of_two() && available.contains(&size) => page,
            _ => return Err(MappingError::PageSize { size, available: available.clone() }),
        };
        let whole = whole_pages(bytes, page)?;
        // The logarithm of the page size stands in the flags from MAP_HUGE_SHIFT on.
        let size_flag = MapFlags::from_bits_retain(page.trailing_zeros() << libc::MAP_HUGE_SHIFT);
        // SAFETY: as in `guarded`.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                whole,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::HUGETLB | size_flag,
            )
        }
        .map_err(|source| match source {
            Errno::NOMEM => not_reserved(size, (whole / page) as u64),
            other => refused("map explicit huge pages", other, bytes, Pages::Explicit(size)),
        })?;
        Ok(Mapping {
            start: not_null(mapped.cast()),
            length: bytes,
            whole,
            mapped: (not_null(mapped), whole),
            pages: Pages::Explicit(size),
        })
    }

    /// Returns the kind of pages that was requested.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Returns a pointer to the first byte, for [raw operations](crate::raw_memory).
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Maps every page now (`MADV_POPULATE_WRITE`), so that later operations take no page faults. Keeps the contents.
    ///
    /// # Errors
    /// If memory runs out. On Linux before 5.14, which does not have `MADV_POPULATE_WRITE`, this function touches every page
    /// instead, and if memory runs out the kernel kills the process.
    pub fn prefault(&mut self) -> Result<(), MappingError> {
        let start = self.start.as_ptr();
        // SAFETY: start..start+whole is mapped, readable and writable, and ours; populating changes no contents.
        match unsafe { rustix::mm::madvise(start.cast(), self.whole, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => {
                self.touch();
                Ok(())
            }
            Err(source) => Err(refused("prefault a mapping", source, self.length, self.pages)),
        }
    }

    /// Writes to a byte of every page what it holds, by one atomic access, because others may write to it through a pointer.
    /// Without a load before: that would map the huge zero page, which many kernels replace by base pages at the first write.
    fn touch(&mut self) {
        for at in (0..self.whole).step_by(rustix::param::page_size()) {
            // SAFETY: within the mapping, which is readable, writable and borrowed exclusively.
            let byte = unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(at)) };
            // Of a constant 0, the compiler would make a load.
            byte.fetch_or(hint::black_box(0), Relaxed);
        }
    }

    /// Returns the size in bytes of the pages that back most of the mapping, as `/proc/self/smaps` reports it. Only touched
    /// memory has pages, so call [`Mapping::prefault`] first.
    ///
    /// Does not distinguish transparent huge pages smaller than the processor's (such as 64 KiB) from base pages.
    ///
    /// # Errors
    /// If `/proc` is not mounted or cannot be read.
    pub fn backing_page_size(&self) -> Result<usize, MappingError> {
        let doing = "report a mapping's pages in /proc/self/smaps";
        let text = fs::read_to_string("/proc/self/smaps")
            .map_err(|source| MappingError::System { doing, source })?;
        let start = self.start.addr().get() as u64;
        let backing = smaps::read(&text, &(start..start + self.whole as u64)).ok_or_else(|| {
            MappingError::System { doing, source: io::Error::other("the mapping is not listed") }
        })?;
        Ok(if backing.transparent > 0 && backing.transparent >= backing.resident / 2 {
            transparent_page_size()
        } else {
            usize::try_from(backing.kernel_page).unwrap_or_else(|_| rustix::param::page_size())
        })
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: start..start+length is mapped, readable, initialized by the kernel, at most isize::MAX bytes long,
        // and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; besides writable, and borrowed exclusively with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (start, length) = self.mapped;
        // SAFETY: this value owns the mapping, and no borrow from it is left.
        let unmapped = unsafe { rustix::mm::munmap(start.as_ptr(), length) };
        // The kernel refuses only invalid ranges, and this is the range that was mapped.
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

/// `bytes` rounded up to whole pages, at most `isize::MAX`.
fn whole_pages(bytes: usize, page: usize) -> Result<usize, MappingError> {
    bytes
        .checked_next_multiple_of(page)
        .filter(|&whole| whole <= isize::MAX as usize)
        .ok_or(MappingError::TooLong { bytes })
}

/// The kernel maps nothing at address 0 unless that address is requested.
fn not_null<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).expect("no mapping at address 0 was requested")
}

fn refused(doing: &'static str, source: Errno, bytes: usize, pages: Pages) -> MappingError {
    match source {
        Errno::NOMEM | Errno::AGAIN => MappingError::OutOfMemory { bytes, pages, source: source.into() },
        _ => MappingError::System { doing, source: source.into() },
    }
}

fn sizes_in_words(sizes: &[u64]) -> String {
    if sizes.is_empty() {
        return "none at all".to_owned();
    }
    sizes.iter().map(|size| format!("{size} bytes")).collect::<Vec<_>>().join(", ")
}

/// The size of a transparent huge page, bytes.
fn transparent_page_size() -> usize {
    number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| size.is_power_of_two())
        .unwrap_or(2 << 20)
}

fn not_reserved(size: u64, needed: u64) -> MappingError {
    let folder = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size / 1024);
    let total = number(&format!("{folder}/nr_hugepages")).unwrap_or(0);
    // The kernel counts pages that are reserved for others as free.
    let free = number(&format!("{folder}/free_hugepages"))
        .unwrap_or(0)
        .saturating_sub(number(&format!("{folder}/resv_hugepages")).unwrap_or(0));
    let wanted = total + needed.saturating_sub(free);
    let remedy = if default_explicit_page_size() == Some(size) {
        format!("sysctl vm.nr_hugepages={wanted}")
    } else {
        format!("echo {wanted} > {folder}/nr_hugepages")
    };
    MappingError::NotReserved { size, needed, free, remedy }
}

/// The size that `vm.nr_hugepages` counts in, bytes.
fn default_explicit_page_size() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The number that a file of one line holds.
fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_zeroed_memory_of_the_length_asked_for() {
        for pages in [Pages::Base, Pages::Transparent] {
            for bytes in [1, 4095, 4096, 4097, (2 << 20) - 1, (2 << 20) + 1] {
                let mut mapping = Mapping::new(bytes, pages).unwrap();
                assert_eq!(mapping.len(), bytes);
                assert_eq!(mapping.pages(), pages);
                assert!(mapping.iter().all(|&byte| byte == 0));
                mapping[bytes - 1] = 7;
                mapping.prefault().unwrap();
                assert!(mapping[..bytes - 1].iter().all(|&byte| byte == 0));
                assert_eq!(mapping[bytes - 1], 7);
            }
        }
    }

    #[test]
    fn refuses_lengths_that_make_no_sense() {
        for pages in [Pages::Base, Pages::Transparent] {
            assert!(matches!(Mapping::new(0, pages), Err(MappingError::Empty)));
            for bytes in [usize::MAX, usize::MAX - 4096, isize::MAX as usize, isize::MAX as usize - 4095] {
                assert!(matches!(Mapping::new(bytes, pages), Err(MappingError::TooLong { .. })), "{bytes}");
            }
            // Below that, but beyond any address space.
            let error = Mapping::new(1 << 60, pages).unwrap_err();
            assert!(matches!(error, MappingError::OutOfMemory { .. }), "{error}");
        }
        assert!(matches!(Mapping::new(0, Pages::Explicit(2 << 20)), Err(MappingError::Empty)));
    }

    #[test]
    fn base_pages_are_base_pages_and_touching_keeps_contents() {
        let mut mapping = Mapping::new(8 << 20, Pages::Base).unwrap();
        mapping[4096 * 3] = 5;
        mapping.touch();
        assert_eq!(mapping.backing_page_size().unwrap(), rustix::param::page_size());
        assert!(mapping.iter().enumerate().all(|(at, &byte)| byte == if at == 4096 * 3 { 5 } else { 0 }));
    }

    /// A page fault for a load, and then another one for the store, would map the huge zero page first.
    #[test]
    fn touching_takes_one_page_fault_for_each_page() {
        let faults = || {
            let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
            // SAFETY: the kernel writes the structure.
            let usage = unsafe {
                assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
                usage.assume_init()
            };
            usage.ru_minflt
        };
        let mut mapping = Mapping::new(2 << 20, Pages::Base).unwrap();
        let before = faults();
        mapping.touch();
        let (faults, pages) = (faults() - before, (2 << 20) / rustix::param::page_size() as i64);
        assert!((pages..pages + pages / 2).contains(&faults), "{faults} for {pages} pages");
    }

    #[test]
    fn transparent_pages_start_on_their_boundary_and_are_reported_as_the_kernel_says() {
        let mut mapping = Mapping::new(16 << 20, Pages::Transparent).unwrap();
        assert!(mapping.as_mut_ptr().addr() % transparent_page_size() == 0);
        assert_eq!(
            mapping.backing_page_size().unwrap(),
            rustix::param::page_size(),
            "nothing is touched yet"
        );
        mapping.prefault().unwrap();
        let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let given = mapping.backing_page_size().unwrap();
        if enabled.contains("[madvise]") || enabled.contains("[always]") {
            assert_eq!(given, transparent_page_size(), "enabled: {enabled}");
        } else {
            assert_eq!(given, rustix::param::page_size(), "enabled: {enabled}");
        }
    }

    #[test]
    fn explicit_pages_are_given_or_the_error_tells_how_to_reserve_them() {
        let sizes = &Machine::current().huge_page_sizes;
        for &size in sizes {
            match Mapping::new(1, Pages::Explicit(size)) {
                Ok(mut mapping) => {
                    mapping.prefault().unwrap();
                    assert_eq!(mapping.backing_page_size().unwrap() as u64, size);
                    mapping[0] = 1;
                }
                Err(error @ MappingError::NotReserved { .. }) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("sysctl vm.nr_hugepages=") || text.contains("nr_hugepages`"),
                        "{text}"
                    );
                }
                Err(other) => panic!("{other}"),
            }
        }
        for size in [0, 1, 4096, 3 << 20, u64::MAX, 1 << 63] {
            match Mapping::new(1, Pages::Explicit(size)) {
                Err(MappingError::PageSize { available, .. }) => assert_eq!(available, *sizes),
                other => panic!("{size}: {other:?}"),
            }
        }
    }

    #[test]
    fn dropping_unmaps() {
        // Kept mapped, these would need more addresses than there are.
        for _ in 0..140_000 {
            Mapping::new(1 << 30, Pages::Base).unwrap();
        }
    }

    #[test]
    fn a_region_moves_between_threads() {
        let mut mapping = Mapping::new(4096, Pages::Base).unwrap();
        mapping[17] = 3;
        let mapping = std::thread::spawn(move || mapping).join().unwrap();
        assert_eq!(mapping[17], 3);
    }
}
