//! Sizes of the caches that one thread sees: from CPUID, and from the kernel's files if CPUID has none.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::text::Text;

/// Sizes in bytes of the data and unified caches that one thread sees; 0 if unknown.
///
/// Virtual machines report zeroed, missing and absurd sizes. The fields hold what the machine reports; use
/// [`Caches::sane`] for decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub struct Caches {
    /// First level, data.
    pub l1d: u64,
    /// Second level.
    pub l2: u64,
    /// Third level, the part that one thread can use.
    pub l3: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Caches {
    /// The sizes of a common server, which replace unknown and absurd ones.
    pub const FALLBACK: Caches = Caches { l1d: 32 * KIB, l2: MIB, l3: 32 * MIB };

    /// The smallest and largest plausible size by level. Every x86-64 processor is within.
    const BELIEVED: [(u64, u64); 3] = [(4 * KIB, MIB), (64 * KIB, 128 * MIB), (64 * KIB, 2048 * MIB)];

    /// Returns the sizes with every unknown or absurd one replaced by that of [`Caches::FALLBACK`]. None is 0.
    pub fn sane(self) -> Caches {
        self.sane_or(Caches::FALLBACK)
    }

    /// Returns the sizes with every unknown or absurd one replaced.
    pub(crate) fn sane_or(self, fallback: Caches) -> Caches {
        let fallback = fallback.levels();
        let mut levels = self.levels();
        for (level, size) in levels.iter_mut().enumerate() {
            let (least, most) = Self::BELIEVED[level];
            if !(least..=most).contains(size) {
                *size = fallback[level];
            }
        }
        Caches::from(levels)
    }

    /// Returns the sizes by level, starting with the first.
    pub fn levels(self) -> [u64; 3] {
        [self.l1d, self.l2, self.l3]
    }

    /// Completes the sizes from the level `from` on by those in the kernel's files for the current processor. Does not
    /// allocate.
    pub(super) fn completed(self, from: usize) -> Caches {
        let mut levels = self.levels();
        if !levels[from - 1..].contains(&0) {
            return self;
        }
        // SAFETY: sched_getcpu has no precondition. Where it is not implemented it returns -1.
        let processor = unsafe { libc::sched_getcpu() }.max(0) as usize;
        if let Ok(root) = openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            for (level, size) in levels.iter_mut().zip(from_kernel(root.as_fd(), processor).levels()) {
                if *level == 0 {
                    *level = size;
                }
            }
        }
        Caches::from(levels)
    }
}

impl From<[u64; 3]> for Caches {
    /// From sizes by level, the first level first.
    fn from([l1d, l2, l3]: [u64; 3]) -> Caches {
        Caches { l1d, l2, l3 }
    }
}

/// Reads `sys/devices/system/cpu/cpuN/cache` below `root`.
fn from_kernel(root: BorrowedFd, processor: usize) -> Caches {
    let mut levels = [0; 3];
    for index in 0..16 {
        let mut buffer = [0; 32];
        let Some(level) = read(root, processor, index, "level", &mut buffer) else { break };
        let level = level.parse::<usize>().unwrap_or_default();
        let mut buffer = [0; 32];
        let kind = read(root, processor, index, "type", &mut buffer);
        let holds_data = matches!(kind, Some("Data" | "Unified"));
        if let (true, Some(slot)) = (holds_data, level.checked_sub(1).and_then(|at| levels.get_mut(at))) {
            let mut buffer = [0; 32];
            *slot = (*slot).max(size(read(root, processor, index, "size", &mut buffer).unwrap_or_default()));
        }
    }
    Caches::from(levels)
}

/// The trimmed text of one file about a cache; `None` if it cannot be read.
fn read<'b>(
    root: BorrowedFd,
    processor: usize,
    index: usize,
    name: &str,
    buffer: &'b mut [u8; 32],
) -> Option<&'b str> {
    let mut path = Text::<96>::new();
    write!(path, "sys/devices/system/cpu/cpu{processor}/cache/index{index}/{name}\0").ok()?;
    let path = CStr::from_bytes_with_nul(path.as_bytes()).ok()?;
    let file = openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = rustix::io::read(&file, &mut buffer[..]).ok()?;
    Some(std::str::from_utf8(&buffer[..length]).ok()?.trim())
}

/// Bytes from a text such as `32K`; 0 where it is none, or more than 64 bits hold.
fn size(text: &str) -> u64 {
    let text = text.trim();
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return 0,
    };
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn from_kernel(root: &Path, processor: usize) -> Caches {
        super::from_kernel(File::open(root).unwrap().as_fd(), processor)
    }

    fn tree(caches: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (index, (level, kind, size)) in caches.iter().enumerate() {
            let folder = root.path().join(format!("sys/devices/system/cpu/cpu3/cache/index{index}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("level"), level).unwrap();
            fs::write(folder.join("type"), kind).unwrap();
            fs::write(folder.join("size"), size).unwrap();
        }
        root
    }

    #[test]
    fn the_kernels_files_are_read() {
        let root = tree(&[
            ("1\n", "Data\n", "48K\n"),
            ("1\n", "Instruction\n", "32K\n"),
            ("2\n", "Unified\n", "2048K\n"),
            ("3\n", "Unified\n", "36M\n"),
            ("4\n", "Unified\n", "128M\n"),
        ]);
        let found = from_kernel(root.path(), 3);
        assert_eq!(found, Caches { l1d: 48 * KIB, l2: 2 * MIB, l3: 36 * MIB });
        assert_eq!(from_kernel(root.path(), 0), Caches::default(), "another processor's files are not there");
    }

    #[test]
    fn damaged_and_absurd_files_end_in_sane_sizes() {
        for bad in ["", "0", "0K", "garbage", "-1K", "K", "12KK", "1.5M", "1152921504606846976K", "\u{fe0f}"]
        {
            let root = tree(&[("1", "Data", bad), ("2", "Unified", bad), ("3", "Unified", bad)]);
            assert_eq!(from_kernel(root.path(), 3), Caches::default(), "{bad:?}");
            assert_eq!(from_kernel(root.path(), 3).sane(), Caches::FALLBACK, "{bad:?}");
        }
        for level in ["", "0", "-1", "99999999999999999999", "one"] {
            let root = tree(&[(level, "Unified", "32K")]);
            assert_eq!(from_kernel(root.path(), 3), Caches::default(), "{level:?}");
        }
        let exbibyte = tree(&[("3", "Unified", "1125899906842624K")]);
        let found = from_kernel(exbibyte.path(), 3);
        assert_eq!(found.l3, 1 << 60, "what was found is shown");
        assert_eq!(found.sane().l3, Caches::FALLBACK.l3, "but not believed");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn both_ways_tell_the_same_first_level_here() {
        let (kernel, cpuid) = (from_kernel(Path::new("/"), 0), crate::machine::cpu::Cpu::read().caches(1));
        if kernel.l1d == 0 || cpuid.l1d == 0 {
            println!("skipped: comparing cache sizes: one of {kernel:?} and {cpuid:?} is silent here");
            return;
        }
        assert_eq!(kernel.l1d, cpuid.l1d);
    }

    proptest! {
        #[test]
        fn sane_is_sane(l1d: u64, l2: u64, l3: u64) {
            let sane = Caches { l1d, l2, l3 }.sane();
            for (size, (least, most)) in sane.levels().into_iter().zip(Caches::BELIEVED) {
                prop_assert!((least..=most).contains(&size));
            }
            prop_assert_eq!(sane.sane(), sane);
        }

        #[test]
        fn no_size_text_panics(text: String) {
            size(&text);
        }
    }
}
