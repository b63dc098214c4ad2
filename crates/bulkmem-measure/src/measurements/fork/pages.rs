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

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::slice::from_raw_parts_mut;

use bulkmem::machine::Machine;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::engine::RawRange;
use crate::engine::clock::usage;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_A_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// Records both processes' page tables, in memory that they share.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Start, end, and whether a file backs it, of each range of private memory.
    spans: Vec<(usize, usize, bool)>,
    entries: usize,
    page: usize,
    shared: *mut u64,
    bytes: usize,
}

/// In words from the start of the shared memory: the child's faults, its status in 16 KiB, and then the entries before and
/// after.
const FAULTS: usize = 0;
const TEXT: usize = 1;
const ENTRIES: usize = TEXT + (16 << 10) / 8;

impl Ledger {
    /// Creates a ledger of this process's private memory.
    ///
    /// # Errors
    /// If `/proc` does not show it, or memory does not suffice.
    pub(super) fn new() -> io::Result<Ledger> {
        let page = Machine::current().page_size;
        let spans: Vec<_> = fs::read_to_string("/proc/self/maps")?.lines().filter_map(private).collect();
        let entries = spans.iter().map(|(start, end, _)| (end - start) / page).sum();
        let bytes = (ENTRIES + 2 * entries) * 8;
        // Populated immediately, so that no page is cleared later.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing.
        let shared =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?.cast();
        Ok(Ledger { spans, entries, page, shared, bytes })
    }

    /// Records this process's pages: the parent's before the fork, or the child's after it. Makes only system calls, and is
    /// free of panics.
    pub(super) fn enter(&self, child: bool) -> io::Result<()> {
        if child {
            // SAFETY: writes to shared memory within the bounds that `new` reserved, while the parent only waits.
            unsafe {
                let faults = usage(libc::RUSAGE_SELF).ru_minflt.cast_unsigned();
                self.shared.add(FAULTS).write_volatile(faults);
                // Reads the status first, before recording needs further page tables.
                let text = from_raw_parts_mut(self.shared.add(TEXT).cast::<u8>(), (ENTRIES - TEXT) * 8);
                if open(c"/proc/self/status")?.read(text)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        let pagemap = open(c"/proc/self/pagemap")?;
        let mut at = if child { ENTRIES + self.entries } else { ENTRIES };
        for (start, end, _) in &self.spans {
            let pages = (end - start) / self.page;
            // SAFETY: the entries of the span, which no other code touches.
            let entries = unsafe { from_raw_parts_mut(self.shared.add(at).cast::<u8>(), pages * 8) };
            pagemap.read_exact_at(entries, (start / self.page * 8) as u64)?;
            at += pages;
        }
        Ok(())
    }

    /// Counts the changes, those of the buffer separately, and the child's page faults that needed no disk, by name. A page
    /// of the buffer has `page` bytes and counts as one. Call only after a child has recorded its pages and ended.
    pub(super) fn count(&self, buffer: RawRange, page: usize) -> Vec<(&'static str, f64)> {
        // SAFETY: the child has ended, so nothing writes.
        let words = unsafe { std::slice::from_raw_parts(self.shared, self.bytes / 8) };
        let (before, after) = words[ENTRIES..].split_at(self.entries);
        let addresses = self.spans.iter().flat_map(|&(start, end, of_a_file)| {
            (start..end).step_by(self.page).map(move |address| (address, of_a_file))
        });
        let buffer = buffer.start.addr()..buffer.start.addr() + buffer.length;
        let (mut copied, mut buffer_copied, mut cleared) = (0, 0, 0);
        for ((address, of_a_file), (before, after)) in addresses.zip(before.iter().zip(after)) {
            match change(*before, *after, of_a_file) {
                Change::Copied => {
                    copied += 1;
                    buffer_copied += u64::from(buffer.contains(&address));
                }
                Change::Cleared => cleared += 1,
                Change::None => {}
            }
        }
        // The kernel shows a huge page as base pages, and copies all of them.
        let each = (page / self.page) as u64;
        copied -= buffer_copied - buffer_copied / each;
        buffer_copied /= each;
        let text: Vec<u8> = words[TEXT..ENTRIES].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let tables = table_bytes(&String::from_utf8_lossy(&text)) / self.page as u64;
        let counts = [
            ("buffer_pages_copied", buffer_copied),
            // Of the buffer, stack, heap and data.
            ("pages_copied", copied),
            ("pages_cleared", cleared),
            ("page_table_pages", tables),
            ("minor_faults", words[FAULTS]),
        ];
        counts.map(|(name, count)| (name, count as f64)).to_vec()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to the ledger, and no references to it remain.
        _ = unsafe { munmap(self.shared.cast(), self.bytes) };
    }
}

/// Opens a file for reading, without allocating.
fn open(path: &CStr) -> io::Result<File> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
}

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

/// Counts the pages of some memory that only this process has.
pub(super) fn own_pages(memory: &[u8]) -> io::Result<usize> {
    let page = Machine::current().page_size;
    let mut entries = vec![0; memory.len() / page * 8];
    open(c"/proc/self/pagemap")?.read_exact_at(&mut entries, (memory.as_ptr().addr() / page * 8) as u64)?;
    let entries = entries.as_chunks::<8>().0.iter().map(|entry| u64::from_ne_bytes(*entry));
    Ok(entries.filter(|entry| change(0, *entry, false) == Change::Cleared).count())
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
