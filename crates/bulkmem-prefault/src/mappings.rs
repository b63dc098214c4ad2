//! Mappings of this process, from `/proc/self/smaps`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) range: Range<u64>,
    pub(crate) writable: bool,
    pub(crate) shared: bool,
    /// Device and inode of the file, and its name; `None` for anonymous memory.
    pub(crate) file: Option<(u64, u64, PathBuf)>,
    /// Page size, bytes.
    pub(crate) page: u64,
    /// `VmFlags`, two letters each.
    flags: Vec<[u8; 2]>,
}

impl Area {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag.as_bytes())
    }

    pub(crate) fn is_huge(&self) -> bool {
        self.has("ht")
    }

    /// Opens the file that is mapped, or a descriptor of it: by its name, else among the descriptors of this process.
    pub(crate) fn open(&self) -> Option<File> {
        let (device, inode, name) = self.file.as_ref()?;
        let descriptors = fs::read_dir("/proc/self/fd").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_it = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (*device, *inode))
        };
        let path = std::iter::once(name.clone()).chain(descriptors).find(is_it)?;
        // A file, so that opening does not wait.
        fs::metadata(&path).ok().filter(fs::Metadata::is_file).and_then(|_| File::open(path).ok())
    }
}

/// Returns the mappings that a range touches, in order.
///
/// # Errors
/// If `/proc` is not mounted or cannot be read.
pub(crate) fn areas(range: &Range<u64>) -> io::Result<Vec<Area>> {
    read(BufReader::new(File::open("/proc/self/smaps")?), range)
}

/// Reads no further than the end of the range: the kernel walks the pages of each mapping that it reports.
fn read(lines: impl BufRead, range: &Range<u64>) -> io::Result<Vec<Area>> {
    let mut found: Vec<Area> = Vec::new();
    let mut inside = false;
    for line in lines.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(area) = header(&line) {
            if area.range.start >= range.end {
                break;
            }
            inside = area.range.end > range.start;
            if inside {
                found.push(area);
            }
        } else if let (true, Some(area)) = (inside, found.last_mut()) {
            match line.split_once(':') {
                Some(("KernelPageSize", value)) => area.page = kibibytes(value).unwrap_or(0),
                Some(("VmFlags", value)) => {
                    let flags = value.split_whitespace().filter_map(|flag| flag.as_bytes().try_into().ok());
                    area.flags = flags.collect();
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// The first line of a mapping: addresses, permissions, offset, device, inode, name.
fn header(line: &str) -> Option<Area> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let mut words = rest.splitn(5, ' ');
    let (permissions, device, inode, name) = (words.next()?, words.nth(1)?, words.next()?, words.next());
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode: u64 = inode.parse().ok()?;
    let name = Path::new(name.unwrap_or_default().trim_start());
    Some(Area {
        range,
        writable: permissions.as_bytes().get(1) == Some(&b'w'),
        shared: permissions.ends_with('s'),
        file: (inode != 0).then(|| (device, inode, name.to_owned())),
        page: rustix::param::page_size() as u64,
        flags: Vec::new(),
    })
}

/// `    4 kB` in bytes.
fn kibibytes(value: &str) -> Option<u64> {
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
Size:               2048 kB\nKernelPageSize:        4 kB\nVmFlags: rd wr mr mw me ac sd lo \n\
7f0000200000-7f0000300000 r--p 00000000 00:00 0                          [anon: a name]\n\
KernelPageSize:        4 kB\nVmFlags: rd mr\n\
7f0000400000-7f0000600000 rw-s 00000000 00:10 77                         /memfd:two words (deleted)\n\
KernelPageSize:     2048 kB\nVmFlags: rd wr sh ht nr\n\
7f0000600000-7f0000601000 rw-p 00000000 00:00 0    [stack]\n\
KernelPageSize:        4 kB\n";

    #[test]
    fn reads_the_mappings_that_a_range_touches() {
        let read = |range: Range<u64>| read(TEXT.as_bytes(), &range).unwrap();
        let all = read(0x7f00_0010_0000..0x7f00_0040_0001);
        assert_eq!(all.len(), 3);
        assert!(all[0].writable && !all[0].shared && all[0].file.is_none() && all[0].has("lo"));
        assert!(!all[1].writable && all[1].page == 4096);
        let (device, inode, name) = all[2].file.clone().unwrap();
        assert_eq!((device, inode), (rustix::fs::makedev(0, 0x10), 77));
        assert_eq!(name, Path::new("/memfd:two words (deleted)"));
        assert!(all[2].shared && all[2].is_huge() && all[2].has("nr") && all[2].page == 2 << 20);
        assert_eq!(read(0x7f00_0030_0000..0x7f00_0040_0000), []);
        assert_eq!(read(0..1), []);
    }

    #[test]
    fn finds_the_file_of_a_mapping_without_a_name() {
        let file = tempfile::tempfile().unwrap();
        let data = file.metadata().unwrap();
        let area = Area { file: Some((data.dev(), data.ino(), "/gone (deleted)".into())), ..Area::default() };
        let opened = area.open().unwrap().metadata().unwrap();
        assert_eq!((opened.dev(), opened.ino()), (data.dev(), data.ino()));
        let other = Area { file: Some((0, 1, "/gone".into())), ..Area::default() };
        assert!(other.open().is_none());
    }
}
