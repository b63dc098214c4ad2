//! The address at which a file is mapped: one that allows huge pages, or one after PMEM_MMAP_HINT.

use std::fs;
use std::ptr::null_mut;

use crate::failure::{Failed, system};
use crate::settings::settings;

/// The alignment for a mapping of that length.
fn alignment(length: usize, page: usize) -> usize {
    match length {
        0x8000_0000.. => 1 << 30,
        0x40_0000.. => 2 << 20,
        _ => page,
    }
}

pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf has no precondition.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Returns an address where `length` bytes were free a moment ago. The kernel chooses another if they no longer are.
///
/// # Errors
/// If the address space has no such room, or the list of mappings cannot be read.
pub(crate) fn find(length: usize) -> Result<usize, Failed> {
    let page = page_size();
    let align = alignment(length, page);
    if let Some(hint) = settings().mmap_hint {
        let maps = fs::read_to_string("/proc/self/maps");
        let maps = maps.map_err(|_| system(format_args!("/proc/self/maps")))?;
        return Ok(first_free(&maps, hint, length, align));
    }
    let reserved = length.saturating_add(align);
    let (protection, flags) =
        (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping where the kernel likes touches nothing that exists.
    let start = unsafe { libc::mmap(null_mut(), reserved, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(system(format_args!("mmap of {length} bytes")));
    }
    // SAFETY: it is the mapping from above, and there is no other pointer to it.
    unsafe { libc::munmap(start, reserved) };
    Ok(start.addr().next_multiple_of(align))
}

/// The lowest aligned address from `from` on with `length` free bytes, by the text of /proc/self/maps; 0, for the kernel
/// to choose, if there is none.
fn first_free(maps: &str, from: usize, length: usize, align: usize) -> usize {
    let mut at = from.checked_next_multiple_of(align).unwrap_or(0);
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        let Some((start, end)) = range.and_then(|(start, end)| number(start).zip(number(end))) else {
            continue;
        };
        if at.checked_add(length).is_some_and(|last| last <= start) {
            break;
        }
        if end > at {
            at = end.checked_next_multiple_of(align).unwrap_or(0);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_mappings_fit_huge_pages() {
        let page = 4096;
        for (length, align) in [
            (0, page),
            ((4 << 20) - 1, page),
            (4 << 20, 2 << 20),
            ((2 << 30) - 1, 2 << 20),
            (2 << 30, 1 << 30),
            (usize::MAX, 1 << 30),
        ] {
            assert_eq!(alignment(length, page), align, "{length}");
        }
        assert_eq!(find(5 << 20).unwrap() % (2 << 20), 0);
    }

    #[test]
    fn the_first_gap_is_found() {
        let maps = "10000-20000 rw-p 0 00:00 0 \n30000-38000 r--p 0 00:00 0 /a b\n\nnonsense\n100000-200000 rw-p 0\n";
        for (from, length, found) in [
            (0, 0x1000, 0),
            (0x10000, 0x1000, 0x20000),
            (0x10800, 0x1000, 0x20000),
            (0x20800, 0x1000, 0x21000),
            (0x20000, 0x10000, 0x20000),
            (0x20000, 0x10001, 0x38000),
            (0x20000, 0x100_0000, 0x200000),
            (0x30_0000, 0x1000, 0x30_0000),
            (usize::MAX, 0x1000, 0),
        ] {
            assert_eq!(first_free(maps, from, length, 0x1000), found, "{from:#x} {length:#x}");
        }
        assert_eq!(first_free(maps, 0x10000, 0x1000, 0x10000), 0x20000);
    }
}
