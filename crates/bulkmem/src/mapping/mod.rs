//! Memory taken from the operating system, with the page size asked for.
//!
//! A clear or copy of large memory spends much of its time in address translation and page faults: huge pages and
//! prefaulting take both away. Use a region where memory is large and lives long; for anything small a `Vec` serves
//! better, as a region takes whole pages and a system call each way.

mod error;
mod smaps;

use std::ffi::c_void;
use std::fmt;
use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::machine::Machine;

pub use error::MappingError;

/// The pages that a region is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pages {
    /// Pages of the smallest size, and no transparent huge ones.
    #[default]
    Base,
    /// Transparent huge pages, where the kernel finds them: the region starts and ends on the boundary of one.
    /// Nothing needs to be reserved, and nothing is promised; [`Mapping::backing_page_size`] tells what came of it.
    Transparent,
    /// Explicit huge pages of this many bytes, which the administrator has reserved.
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

/// Private, zeroed memory in pages of the asked kind, unmapped when dropped.
///
/// ```
/// use bulkmem::{Pages, Mapping};
///
/// let mut region = Mapping::new(3 << 20, Pages::Transparent)?;
/// region.prefault()?;
/// bulkmem::fill(&mut region, 0xA5);
/// assert!(region.iter().all(|&byte| byte == 0xA5));
/// # Ok::<(), bulkmem::MappingError>(())
/// ```
#[derive(Debug)]
pub struct Mapping {
    /// First usable byte.
    start: NonNull<u8>,
    /// Bytes asked for.
    length: usize,
    /// Bytes in whole pages from `start` on.
    whole: usize,
    /// What to unmap: the pages and the guards around them.
    mapped: (NonNull<c_void>, usize),
    pages: Pages,
}

// SAFETY: a region owns its memory alone, as a `Box<[u8]>` does; nothing in it belongs to one thread.
unsafe impl Send for Mapping {}
// SAFETY: shared references to a region only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Takes `bytes` of zeroed memory, rounded up to whole pages, from the operating system.
    ///
    /// Base and transparent regions have an inaccessible page before and behind them: overruns fault, and no
    /// neighbour's pages are mistaken for the region's.
    ///
    /// # Errors
    /// Where `bytes` is 0 or absurd, where the kernel lacks memory, pages of that size or reserved ones.
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
        let region = Mapping {
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
            Err(Errno::INVAL) if pages == Pages::Base => Ok(region),
            Err(Errno::INVAL) => Err(MappingError::NoTransparent(Errno::INVAL.into())),
            Err(source) => Err(refused(source)),
            Ok(()) => Ok(region),
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

    /// The pages it was asked to be made of.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The first byte, for the raw forms.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Has the kernel find every page now, so that none is found during an operation. The contents stay.
    ///
    /// # Errors
    /// Where memory runs out. (On a kernel before 5.14, which cannot be asked, every page is touched instead, and
    /// memory running out ends the process, as any touch of memory may.)
    pub fn prefault(&mut self) -> Result<(), MappingError> {
        let start = self.start.as_ptr();
        // SAFETY: start..start+whole is mapped, readable and writable, and ours; populating changes no contents.
        match unsafe { rustix::mm::madvise(start.cast(), self.whole, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => {
                self.touch();
                Ok(())
            }
            Err(source) => Err(refused("prefault a region", source, self.length, self.pages)),
        }
    }

    /// Writes a byte of every page back to where it was read.
    fn touch(&mut self) {
        for at in (0..self.whole).step_by(rustix::param::page_size()) {
            // SAFETY: within the mapping, which is readable, writable and borrowed exclusively.
            unsafe {
                let byte = self.start.as_ptr().add(at);
                byte.write_volatile(byte.read_volatile());
            }
        }
    }

    /// The size of the pages that most of the memory touched so far really lies in, as `/proc/self/smaps` has it,
    /// bytes. Only what was touched has pages: [`Mapping::prefault`] first.
    ///
    /// Transparent huge pages smaller than the processor's (64 KiB, say) are not told apart from base pages.
    ///
    /// # Errors
    /// Where `/proc` is not mounted or cannot be read.
    pub fn backing_page_size(&self) -> Result<usize, MappingError> {
        let doing = "report a region's pages in /proc/self/smaps";
        let text = fs::read_to_string("/proc/self/smaps")
            .map_err(|source| MappingError::System { doing, source })?;
        let start = self.start.addr().get() as u64;
        let backing = smaps::read(&text, &(start..start + self.whole as u64)).ok_or_else(|| {
            MappingError::System { doing, source: io::Error::other("the region is not listed") }
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
        // SAFETY: the mapping is this region's own and nobody can borrow from it any longer.
        let unmapped = unsafe { rustix::mm::munmap(start.as_ptr(), length) };
        // Only a wrong range can be refused, and this is the range that was mapped.
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

/// A successful mapping is never at address 0 unless asked to be.
fn not_null<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).expect("the kernel maps nothing at address 0 unasked")
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
    // What is promised to others is still counted as free.
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
                let mut region = Mapping::new(bytes, pages).unwrap();
                assert_eq!(region.len(), bytes);
                assert_eq!(region.pages(), pages);
                assert!(region.iter().all(|&byte| byte == 0));
                region[bytes - 1] = 7;
                region.prefault().unwrap();
                assert!(region[..bytes - 1].iter().all(|&byte| byte == 0));
                assert_eq!(region[bytes - 1], 7);
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
        let mut region = Mapping::new(8 << 20, Pages::Base).unwrap();
        region[4096 * 3] = 5;
        region.touch();
        assert_eq!(region.backing_page_size().unwrap(), rustix::param::page_size());
        assert!(region.iter().enumerate().all(|(at, &byte)| byte == if at == 4096 * 3 { 5 } else { 0 }));
    }

    #[test]
    fn transparent_pages_start_on_their_boundary_and_are_reported_as_the_kernel_says() {
        let mut region = Mapping::new(16 << 20, Pages::Transparent).unwrap();
        assert!(region.as_mut_ptr().addr() % transparent_page_size() == 0);
        assert_eq!(region.backing_page_size().unwrap(), rustix::param::page_size(), "nothing is touched yet");
        region.prefault().unwrap();
        let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let given = region.backing_page_size().unwrap();
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
                Ok(mut region) => {
                    region.prefault().unwrap();
                    assert_eq!(region.backing_page_size().unwrap() as u64, size);
                    region[0] = 1;
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
        let mut region = Mapping::new(4096, Pages::Base).unwrap();
        region[17] = 3;
        let region = std::thread::spawn(move || region).join().unwrap();
        assert_eq!(region[17], 3);
    }
}
