//! Counts pages copied and cleared around a fork, from what the kernel shows of both processes' memory.
//!
//! A fork shares every page between parent and child. The first of them that writes to a page gets a copy, and from then
//! on each has its own page. `/proc/self/pagemap` shows that: a page that is mapped exclusively in the child (bit
//! 56), where the parent had one before the fork, has been copied once, by one of the two. A page that the child has
//! where the parent had none was cleared for it, or, in a file's private mapping, copied from the file.
//!
//! The child reads its own table while the parent does nothing but wait, so counting itself copies nothing. It
//! writes what it read to memory that both share, which is not subject to copying.
//!
//! These counts exclude memory of the kernel, such as the child's kernel stack. Its page tables are counted separately:
//! each of their pages was cleared too.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use crate::engine::arena::RawRange;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_A_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// Room for `/proc/self/status`, bytes.
const STATUS: usize = 16 << 10;

/// Pages, counted around one fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Pages of the buffer that were copied.
    pub(super) buffer_copied: u64,
    /// Pages copied in all: of the buffer, stack, heap and data.
    pub(super) copied: u64,
    /// Pages that the child got and that were cleared for it.
    pub(super) cleared: u64,
    /// Pages of the child's page tables.
    pub(super) tables: u64,
    /// The child's page faults that needed no disk.
    pub(super) faults: u64,
}

/// A range of private memory.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    pages: usize,
    /// Index of its first entry.
    at: usize,
    of_a_file: bool,
    of_the_buffer: bool,
}

/// Records both processes' page tables, in memory that they share.
#[derive(Debug)]
pub(super) struct Ledger {
    spans: Vec<Span>,
    entries: usize,
    page: usize,
    pagemap: File,
    shared: NonNull<u64>,
    bytes: usize,
}

/// In words from the start of the shared memory: the child's faults, its status, and then the entries before and after.
const FAULTS: usize = 0;
const TEXT: usize = 1;
const ENTRIES: usize = TEXT + STATUS / 8;

impl Ledger {
    /// Creates a ledger of this process's private memory, of which `buffer` is counted separately.
    ///
    /// # Errors
    /// If `/proc` does not show it, or memory does not suffice.
    pub(super) fn new(buffer: RawRange, page: usize) -> io::Result<Ledger> {
        let pagemap = File::open("/proc/self/pagemap")?;
        let buffer = buffer.start.addr()..buffer.start.addr() + buffer.length;
        let mut spans = Vec::new();
        let mut entries = 0;
        for line in fs::read_to_string("/proc/self/maps")?.lines() {
            let Some((start, end, of_a_file)) = private(line) else { continue };
            // Splits at the start and the end of the buffer.
            let cuts = [start, buffer.start.clamp(start, end), buffer.end.clamp(start, end), end];
            for part in cuts.windows(2).filter(|part| part[0] < part[1]) {
                let pages = (part[1] - part[0]) / page;
                let of_the_buffer = buffer.contains(&part[0]);
                spans.push(Span { start: part[0], pages, at: entries, of_a_file, of_the_buffer });
                entries += pages;
            }
        }
        let bytes = (ENTRIES + 2 * entries) * 8;
        // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing.
        let shared = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                // Populated immediately, so that no page is cleared later.
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        match NonNull::new(shared.cast::<u64>()) {
            Some(shared) if shared.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Ledger { spans, entries, page, pagemap, shared, bytes })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the address of a word in the shared memory.
    fn word(&self, at: usize) -> *mut u64 {
        self.shared.as_ptr().wrapping_add(at)
    }

    /// Records the parent's pages before the fork.
    pub(super) fn enter_before(&self) -> io::Result<()> {
        for span in &self.spans {
            // SAFETY: the entries of the span, which no other code touches.
            let entries = unsafe {
                std::slice::from_raw_parts_mut(self.word(ENTRIES + span.at).cast::<u8>(), span.pages * 8)
            };
            self.pagemap.read_exact_at(entries, (span.start / self.page * 8) as u64)?;
        }
        Ok(())
    }

    /// Records the child's pages; false if the kernel does not show them. Async-signal-safe, and free of panics.
    pub(super) fn enter_after(&self) -> bool {
        // SAFETY: calls only async-signal-safe functions, with their own descriptors, and writes to shared memory within
        // the bounds that `new` reserved, while the parent only waits.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            if libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) != 0 {
                return false;
            }
            // Reads the status first, before recording needs further page tables.
            let status = libc::open(c"/proc/self/status".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if status == -1 || libc::read(status, self.word(TEXT).cast(), STATUS.wrapping_sub(1)) <= 0 {
                return false;
            }
            self.word(FAULTS).write_volatile(usage.ru_minflt.cast_unsigned());
            let pagemap = libc::open(c"/proc/self/pagemap".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if pagemap == -1 {
                return false;
            }
            for span in &self.spans {
                let entries =
                    self.word(ENTRIES.wrapping_add(self.entries).wrapping_add(span.at)).cast::<u8>();
                let from = (span.start / self.page).wrapping_mul(8);
                let bytes = span.pages.wrapping_mul(8);
                let mut done = 0usize;
                while done < bytes {
                    let to = entries.wrapping_add(done).cast();
                    let offset = from.wrapping_add(done) as libc::off_t;
                    match libc::pread(pagemap, to, bytes.wrapping_sub(done), offset) {
                        read if read > 0 => done = done.wrapping_add(read.cast_unsigned()),
                        _ => return false,
                    }
                }
            }
        }
        true
    }

    /// Counts the changes. Call only after a child has recorded its pages and ended.
    pub(super) fn count(&self) -> Pages {
        // SAFETY: the child has ended, so nothing writes.
        let words = unsafe { std::slice::from_raw_parts(self.shared.as_ptr(), self.bytes / 8) };
        let (before, after) = words[ENTRIES..].split_at(self.entries);
        let mut pages = Pages { faults: words[FAULTS], ..Pages::default() };
        for span in &self.spans {
            for at in span.at..span.at + span.pages {
                match change(before[at], after[at], span.of_a_file) {
                    Change::Copied => {
                        pages.copied += 1;
                        pages.buffer_copied += u64::from(span.of_the_buffer);
                    }
                    Change::Cleared => pages.cleared += 1,
                    Change::None => {}
                }
            }
        }
        let text: Vec<u8> = words[TEXT..ENTRIES].iter().flat_map(|word| word.to_ne_bytes()).collect();
        pages.tables = table_bytes(&String::from_utf8_lossy(&text)) / self.page as u64;
        pages
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to the ledger, and no references to it remain.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), self.bytes) };
    }
}

/// Change of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Copied,
    Cleared,
}

/// Compares the parent's entry of a page before the fork with the child's after it.
fn change(before: u64, after: u64, of_a_file: bool) -> Change {
    let own = |entry: u64| entry & PRESENT != 0 && entry & OF_A_FILE == 0 && entry & EXCLUSIVE != 0;
    if !own(after) || before & SWAPPED != 0 {
        // Still shared, of a file, or absent; or read from swap, which copies nothing.
        Change::None
    } else if own(before) || of_a_file {
        Change::Copied
    } else {
        // Absent before, or the shared page of zeros.
        Change::Cleared
    }
}

/// Parses a line of `/proc/self/maps`: start, end, and whether a file backs it, for accessible private memory.
fn private(line: &str) -> Option<(usize, usize, bool)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let inode = fields.nth(2)?;
    // Pages of the kernel, such as the vDSO, are not copied.
    if !permissions.ends_with('p') || permissions.starts_with("---") || line.contains("[v") {
        return None;
    }
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?, inode != "0"))
}

/// Returns the size of the page tables from `/proc/self/status`; 0 if it is missing.
fn table_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// Counts the pages of a range that only this process has.
pub(super) fn own_pages(range: RawRange, page: usize) -> io::Result<u64> {
    let mut entries = vec![0; range.length / page * 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, (range.start.addr() / page * 8) as u64)?;
    let entries = entries.as_chunks::<8>().0.iter().map(|entry| u64::from_ne_bytes(*entry));
    Ok(entries.filter(|entry| change(0, *entry, false) == Change::Cleared).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_tell_what_happened() {
        let (own, shared, file) = (PRESENT | EXCLUSIVE, PRESENT, PRESENT | OF_A_FILE | EXCLUSIVE);
        for (before, after, of_a_file, expected) in [
            (own, own, false, Change::Copied),
            (own, shared, false, Change::None),
            (own, 0, false, Change::None),
            (0, own, false, Change::Cleared),
            // The page of zeros.
            (shared, own, false, Change::Cleared),
            (0, own, true, Change::Copied),
            (file, own, true, Change::Copied),
            (file, file, true, Change::None),
            (SWAPPED, own, false, Change::None),
        ] {
            assert_eq!(change(before, after, of_a_file), expected, "{before:x} {after:x}");
        }
    }

    #[test]
    fn private_memory_is_told_from_the_rest() {
        let line = |text: &str| private(text);
        assert_eq!(line("7f00-7fff rw-p 00000000 00:00 0 "), Some((0x7f00, 0x7fff, false)));
        assert_eq!(line("1000-2000 r-xp 00001000 fe:00 77   /bin/x"), Some((0x1000, 0x2000, true)));
        for other in [
            "1000-2000 rw-s 00000000 00:01 5 /dev/zero (deleted)",
            "1000-2000 ---p 00000000 00:00 0",
            "1000-2000 r-xp 00000000 00:00 0 [vdso]",
            "",
            "1000-2000",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
        assert_eq!(table_bytes("VmData: 1 kB\nVmPTE:\t      72 kB\n"), 72 * 1024);
        assert_eq!(table_bytes("nothing"), 0);
    }
}
