//! Memory to prefault: a range of addresses, or a part of a file.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::ptr::null_mut;

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::error::Cause;
use crate::mappings::{Area, areas};
use crate::pages;
use crate::supply::{Supply, free_pages};

/// Size of the steps of memory that transparent huge pages may back, bytes.
const HUGE_STEP: u64 = 2 << 20;
/// The same of files on disks, whose pages take longer.
const FILE_STEP: u64 = 128 << 10;

/// Memory that is prefaulted in steps. Offsets are in bytes from its first page.
pub(crate) trait Memory: Sync {
    /// Returns the size of the pages, bytes.
    fn page(&self) -> u64;

    /// Returns the smallest step, and the alignment of steps, bytes.
    fn unit(&self) -> u64;

    /// Returns the position of offset 0, for the alignment.
    fn origin(&self) -> u64;

    fn supply(&self) -> Supply<'_>;

    /// Maps every page of a part for writing, by touching each if `touch`.
    fn populate(&self, part: &Range<u64>, touch: bool) -> Result<(), Errno>;

    /// Returns an upper limit of the bytes of a part that need new memory.
    fn missing(&self, part: &Range<u64>) -> u64;

    /// Returns the cause of an error of [`Memory::populate`].
    fn cause(&self, error: Errno, part: &Range<u64>) -> Cause;
}

/// A range of addresses.
#[derive(Debug)]
pub(crate) struct Addresses {
    start: u64,
    pub(crate) length: u64,
    pub(crate) areas: Vec<Area>,
    page: u64,
}

impl Addresses {
    /// Widens a range to whole pages, and checks the mappings there.
    ///
    /// # Safety
    /// What is mapped at the pages of the range stays mapped, and belongs to the caller.
    pub(crate) unsafe fn new(start: *mut u8, length: usize) -> Result<Addresses, Cause> {
        let (page, start) = (page_size() as u64, start.expose_provenance() as u64);
        let end = start.checked_add(length as u64).and_then(|end| end.checked_next_multiple_of(page));
        let end = end.ok_or_else(|| {
            Cause::unsupported(
                format!("{length} bytes from {start:#x} do not fit in the address space"),
                SHORTER,
            )
        })?;
        let start = start / page * page;
        let areas = areas(&(start..end))
            .map_err(|source| Cause::System { doing: "read /proc/self/smaps", source })?;
        let mut mapped = start;
        for area in &areas {
            if area.range.start > mapped {
                break;
            }
            check(area)?;
            mapped = area.range.end;
        }
        if mapped < end && length > 0 {
            let what = format!("nothing is mapped at address {mapped:#x}");
            return Err(Cause::unsupported(what, SHORTER));
        }
        let page = areas.iter().map(|area| area.page).max().unwrap_or(page);
        Ok(Addresses { start, length: end - start, areas, page })
    }

    fn pointer(&self, offset: u64) -> *mut u8 {
        // The address space has no more than 64 bits, and the caller vouched for the range.
        std::ptr::with_exposed_provenance_mut((self.start + offset) as usize)
    }

    fn area(&self, part: &Range<u64>) -> Option<&Area> {
        let last = self.start + part.end.max(1) - 1;
        self.areas.iter().find(|area| area.range.contains(&last))
    }

    /// Returns the part of an area that lies within the range, as offsets.
    pub(crate) fn part_of(&self, area: &Area) -> Range<u64> {
        let offset = |address: u64| address.clamp(self.start, self.start + self.length) - self.start;
        offset(area.range.start)..offset(area.range.end)
    }

    /// Locks the range; see [`Locked`].
    pub(crate) fn lock(&self) -> Result<Locked<'_>, Errno> {
        let locked = Locked(self);
        // SAFETY: the caller of `new` vouched for the range.
        unsafe { pages::lock(self.pointer(0), self.length as usize) }?;
        Ok(locked)
    }

    pub(crate) fn address(&self, offset: u64) -> *const u8 {
        self.pointer(offset)
    }
}

const SHORTER: &str = "pass a range that is mapped";

fn check(area: &Area) -> Result<(), Cause> {
    let name =
        || area.file.as_ref().map_or("the range".to_owned(), |(_, _, name)| name.display().to_string());
    if !area.writable {
        let remedy = "map it with PROT_WRITE";
        return Err(Cause::unsupported(format!("{} is not mapped for writing", name()), remedy));
    }
    if area.has("io") || area.has("pf") {
        let remedy = "its pages exist already: leave it out";
        return Err(Cause::unsupported(format!("{} is memory of a device", name()), remedy));
    }
    Ok(())
}

/// Locked memory, which is unlocked when dropped, except what was locked before.
#[derive(Debug)]
pub(crate) struct Locked<'a>(&'a Addresses);

impl Locked<'_> {
    /// Leaves the memory locked.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        for area in self.0.areas.iter().filter(|area| !area.has("lo")) {
            let part = self.0.part_of(area);
            // SAFETY: a part of the range, for which the caller of `new` vouched.
            unsafe { pages::unlock(self.0.pointer(part.start), (part.end - part.start) as usize) };
        }
    }
}

impl Memory for Addresses {
    fn page(&self) -> u64 {
        self.page
    }

    fn unit(&self) -> u64 {
        let on_disk = self.areas.iter().any(|area| area.file.is_some() && area.page < HUGE_STEP);
        if on_disk { FILE_STEP } else { self.page.max(HUGE_STEP) }
    }

    fn origin(&self) -> u64 {
        self.start
    }

    fn supply(&self) -> Supply<'_> {
        match self.areas.iter().find(|area| !area.is_huge()) {
            Some(_) => Supply::Memory,
            // The kernel reserved their pages when they were mapped.
            None if !self.areas.iter().any(|area| area.has("nr")) => Supply::Reserved,
            None => Supply::HugePages(self.page),
        }
    }

    fn populate(&self, part: &Range<u64>, touch: bool) -> Result<(), Errno> {
        let stride = self.area(part).map_or(page_size() as u64, |area| area.page) as usize;
        let stride = stride.min(self.areas.iter().map(|area| area.page as usize).min().unwrap_or(stride));
        // SAFETY: the caller of `new` vouched for the range.
        unsafe { pages::populate(self.pointer(part.start), (part.end - part.start) as usize, touch, stride) }
    }

    fn missing(&self, part: &Range<u64>) -> u64 {
        let overlapping = self.areas.iter().filter_map(|area| {
            let own = self.part_of(area);
            let part = own.start.max(part.start)..own.end.min(part.end);
            (!part.is_empty()).then_some((area, part))
        });
        let missing = overlapping.map(|(area, part)| {
            // SAFETY: the caller of `new` vouched for the range.
            unsafe { pages::missing(self.pointer(part.start), (part.end - part.start) as usize, area.shared) }
        });
        missing.sum::<usize>() as u64
    }

    fn cause(&self, error: Errno, part: &Range<u64>) -> Cause {
        let area = self.area(part);
        match (error, area) {
            (Errno::FAULT, Some(area)) if area.file.is_some() || area.is_huge() => {
                let name = area.file.as_ref().map_or_else(PathBuf::new, |(_, _, name)| name.clone());
                let file = area.open();
                // Offsets within the file are not known here: the mapping's length stands for them.
                let whole = area.range.end - area.range.start;
                let known = file.as_ref().and_then(|file| lack(file.as_fd(), whole, area.page));
                match known {
                    Some(cause) => cause,
                    None if area.is_huge() => {
                        Cause::HugePages { page: area.page, free: free_pages(area.page) }
                    }
                    None => Cause::Fault { name },
                }
            }
            (Errno::FAULT, _) => Cause::Fault { name: "the range".into() },
            _ => general(error),
        }
    }
}

/// A part of a regular file.
#[derive(Debug)]
pub(crate) struct FilePart<'a> {
    file: BorrowedFd<'a>,
    /// Position of offset 0 in the file.
    start: u64,
    pub(crate) length: u64,
    /// End of the requested range in the file.
    end: u64,
    page: u64,
    kind: FileKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    HugePages,
    Shared,
    Disk,
}

const HUGETLBFS: u32 = 0x9584_58f6;
const TMPFS: u32 = 0x0102_1994;

impl<'a> FilePart<'a> {
    pub(crate) fn new(file: BorrowedFd<'a>, range: Range<u64>) -> Result<FilePart<'a>, Cause> {
        let found = fstat(file).map_err(Cause::system("look at the file"))?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind != FileType::RegularFile {
            let remedy = "pass a regular file, or map it and prefault the range of addresses";
            return Err(Cause::unsupported(format!("this is not a regular file ({kind:?})"), remedy));
        }
        let system = fstatfs(file).map_err(Cause::system("look at the file system"))?;
        let (kind, page) = match system.f_type as u32 {
            HUGETLBFS => (FileKind::HugePages, system.f_bsize as u64),
            TMPFS => (FileKind::Shared, page_size() as u64),
            _ => (FileKind::Disk, page_size() as u64),
        };
        let length = found.st_size as u64;
        if range.end > length {
            return Err(Cause::TooShort { length, end: range.end });
        }
        let start = range.start / page * page;
        let whole = range.end.next_multiple_of(page).saturating_sub(start);
        let part = FilePart { file, start, length: whole, end: range.end, page, kind };
        // A first window finds out whether the file can be mapped for writing.
        if whole > 0 {
            part.map(&(0..page)).map_err(|error| part.cause(error, &(0..page)))?;
        }
        Ok(part)
    }

    fn map(&self, part: &Range<u64>) -> Result<Window, Errno> {
        let length = (part.end - part.start) as usize;
        // Pages that others reserved stay theirs, and a file of a full pool is filled as far as possible.
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing.
        let start = unsafe { mmap(null_mut(), length, access, flags, self.file, self.start + part.start) }?;
        Ok(Window { start: start.cast(), length })
    }
}

/// A mapping of a part for one step: so that page tables of the whole file are never needed.
#[derive(Debug)]
struct Window {
    start: *mut u8,
    length: usize,
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping.
        _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}

impl Memory for FilePart<'_> {
    fn page(&self) -> u64 {
        self.page
    }

    fn unit(&self) -> u64 {
        if self.kind == FileKind::Disk { FILE_STEP } else { self.page.max(HUGE_STEP) }
    }

    fn origin(&self) -> u64 {
        self.start
    }

    fn supply(&self) -> Supply<'_> {
        match self.kind {
            FileKind::HugePages => Supply::HugePages(self.page),
            FileKind::Shared => Supply::Shared(self.file),
            FileKind::Disk => Supply::Memory,
        }
    }

    fn populate(&self, part: &Range<u64>, touch: bool) -> Result<(), Errno> {
        let window = self.map(part)?;
        // SAFETY: the window is this function's own.
        unsafe { pages::populate(window.start, window.length, touch, self.page as usize) }
    }

    fn missing(&self, part: &Range<u64>) -> u64 {
        let Ok(window) = self.map(part) else { return part.end - part.start };
        // SAFETY: the window is this function's own.
        unsafe { pages::missing(window.start, window.length, true) as u64 }
    }

    fn cause(&self, error: Errno, part: &Range<u64>) -> Cause {
        let end = (self.start + part.end).min(self.end);
        match error {
            Errno::FAULT => lack(self.file, end, self.page).unwrap_or_else(|| match self.kind {
                FileKind::HugePages => Cause::HugePages { page: self.page, free: free_pages(self.page) },
                _ => Cause::Fault { name: "the file".into() },
            }),
            Errno::PERM | Errno::ACCESS | Errno::TXTBSY => Cause::unsupported(
                format!("the file cannot be mapped for writing ({error})"),
                "open it for reading and writing, and without a seal against writing",
            ),
            Errno::NODEV => {
                Cause::unsupported("the file system has no mappings for writing", "use another file system")
            }
            _ => general(error),
        }
    }
}

/// Returns what a file lacks to have pages up to `end`, if that can be seen.
fn lack(file: BorrowedFd<'_>, end: u64, page: u64) -> Option<Cause> {
    let length = fstat(file).ok()?.st_size as u64;
    if length < end {
        return Some(Cause::TooShort { length, end });
    }
    let system = fstatfs(file).ok()?;
    if system.f_type as u32 == HUGETLBFS {
        return None;
    }
    let free = system.f_bavail.saturating_mul(system.f_bsize as u64);
    (system.f_blocks > 0 && free < page).then_some(Cause::NoSpace { free })
}

fn general(error: Errno) -> Cause {
    match error {
        Errno::NOMEM => Cause::OutOfMemory(error.into()),
        Errno::HWPOISON => Cause::Poisoned(error.into()),
        Errno::INVAL => Cause::unsupported("the kernel cannot prefault memory of this kind", "leave it out"),
        _ => Cause::System { doing: "have the kernel map pages", source: error.into() },
    }
}
