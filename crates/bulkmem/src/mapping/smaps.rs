//! Parses `/proc/self/smaps` for one range of addresses.

use std::ops::Range;

/// Sums over every mapping that the range touches; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backing {
    /// Size of the pages that the mapping's kind has: larger than a base page for explicit huge pages.
    pub kernel_page: u64,
    /// Bytes in memory, without explicit huge pages.
    pub resident: u64,
    /// Bytes of those in transparent huge pages.
    pub transparent: u64,
}

/// Parses what smaps reports for `range`; `None` if no mapping touches it.
pub(super) fn read(smaps: &str, range: &Range<u64>) -> Option<Backing> {
    let mut found: Option<Backing> = None;
    let mut touched = false;
    for line in smaps.lines() {
        if let Some(mapping) = header(line) {
            touched = mapping.start < range.end && range.start < mapping.end;
            if touched {
                found.get_or_insert_default();
            }
        } else if touched {
            let Some(backing) = &mut found else { continue };
            let Some((name, value)) = line.split_once(':') else { continue };
            let Some(bytes) = kilobytes(value) else { continue };
            match name {
                "KernelPageSize" => backing.kernel_page = backing.kernel_page.max(bytes),
                "Rss" => backing.resident += bytes,
                "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => backing.transparent += bytes,
                _ => {}
            }
        }
    }
    found
}

/// The addresses of a mapping's first line: `7f00-7f10 rw-p …`.
fn header(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

/// `    4 kB` in bytes.
fn kilobytes(value: &str) -> Option<u64> {
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
Size:               2048 kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\nRss:                2048 kB\n\
AnonHugePages:      2048 kB\nShmemPmdMapped:        0 kB\nFilePmdMapped:         0 kB\nTHPeligible:           1\n\
VmFlags: rd wr mr mw me ac sd hg \n\
7f0000200000-7f0000300000 ---p 00000000 00:00 0 \n\
Size:               1024 kB\nKernelPageSize:        4 kB\nRss:                   0 kB\nAnonHugePages:         0 kB\n\
7f0000400000-7f0000600000 rw-p 00000000 00:0f 77    /anon_hugepage (deleted)\n\
Size:               2048 kB\nKernelPageSize:     2048 kB\nRss:                   0 kB\nPrivate_Hugetlb:    2048 kB\n\
7f0000600000-7f0000601000 rw-p 00000000 00:00 0    [stack]\n\
Size:                  4 kB\nKernelPageSize:        4 kB\nRss:                   4 kB\nAnonHugePages:         0 kB\n";

    #[test]
    fn reads_the_mapping_that_holds_the_range_and_no_other() {
        let transparent = read(TEXT, &(0x7f00_0000_1000..0x7f00_0000_2000)).unwrap();
        assert_eq!(transparent, Backing { kernel_page: 4096, resident: 2 << 20, transparent: 2 << 20 });
        let explicit = read(TEXT, &(0x7f00_0040_0000..0x7f00_0060_0000)).unwrap();
        assert_eq!(explicit, Backing { kernel_page: 2 << 20, resident: 0, transparent: 0 });
        let base = read(TEXT, &(0x7f00_0060_0000..0x7f00_0060_0001)).unwrap();
        assert_eq!(base, Backing { kernel_page: 4096, resident: 4096, transparent: 0 });
    }

    #[test]
    fn sums_over_several_mappings() {
        let both = read(TEXT, &(0x7f00_0000_0000..0x7f00_0060_1000)).unwrap();
        assert_eq!(both, Backing { kernel_page: 2 << 20, resident: (2 << 20) + 4096, transparent: 2 << 20 });
    }

    #[test]
    fn knows_nothing_of_unmapped_addresses_or_nonsense() {
        assert_eq!(read(TEXT, &(0x1000..0x2000)), None);
        assert_eq!(read("", &(0..u64::MAX)), None);
        assert_eq!(read("Rss: many kB\n-\nzz-yy rw\n", &(0..u64::MAX)), None);
    }
}
