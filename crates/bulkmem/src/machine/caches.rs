//! How large the caches are that one thread sees: from the kernel's files, where those are silent from CPUID.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Sizes of the data and unified caches that one thread sees, bytes; 0 where unknown.
///
/// Virtual machines show zeroed, missing and absurd sizes. The fields hold what was found; whoever decides by them
/// takes [`Caches::sane`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caches {
    /// First level, data.
    pub l1d: u64,
    /// Second level.
    pub l2: u64,
    /// Third level, as far as one thread shares in it.
    pub l3: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Caches {
    /// What stands in for a size that is unknown or absurd: those of a common server.
    pub const FALLBACK: Caches = Caches { l1d: 32 * KIB, l2: MIB, l3: 32 * MIB };

    /// The smallest and the largest that is believed, level by level. No x86-64 processor is outside.
    const BELIEVED: [(u64, u64); 3] = [(4 * KIB, MIB), (64 * KIB, 128 * MIB), (64 * KIB, 2048 * MIB)];

    /// The same, with every size that is unknown or absurd replaced by that of [`Caches::FALLBACK`]: none is 0.
    pub fn sane(self) -> Caches {
        self.sane_or(Caches::FALLBACK)
    }

    /// The same, with every size that is unknown or absurd replaced by another.
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

    /// The sizes by level, the first level first.
    pub fn levels(self) -> [u64; 3] {
        [self.l1d, self.l2, self.l3]
    }

    /// Those of one processor, from the kernel's files below `root`; a level that these do not tell from CPUID.
    pub(super) fn read(root: &Path, processor: usize) -> Caches {
        let mut levels = from_kernel(root, processor).levels();
        for (level, size) in levels.iter_mut().zip(from_cpuid().levels()) {
            if *level == 0 {
                *level = size;
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

/// From `/sys/devices/system/cpu/cpuN/cache` below `root`.
fn from_kernel(root: &Path, processor: usize) -> Caches {
    let mut levels = [0; 3];
    let folder = root.join(format!("sys/devices/system/cpu/cpu{processor}/cache"));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let holds_data = matches!(read("type").trim(), "Data" | "Unified");
        let level = read("level").trim().parse::<usize>().unwrap_or_default();
        if let (true, Some(slot)) = (holds_data, level.checked_sub(1).and_then(|at| levels.get_mut(at))) {
            *slot = (*slot).max(size(&read("size")));
        }
    }
    Caches::from(levels)
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

#[cfg(target_arch = "x86_64")]
fn from_cpuid() -> Caches {
    use raw_cpuid::CacheType;

    let mut levels = [0; 3];
    for cache in raw_cpuid::CpuId::new().get_cache_parameters().into_iter().flatten() {
        let holds_data = matches!(cache.cache_type(), CacheType::Data | CacheType::Unified);
        let level = usize::from(cache.level());
        if let (true, Some(slot)) = (holds_data, level.checked_sub(1).and_then(|at| levels.get_mut(at))) {
            let parts = [
                cache.associativity(),
                cache.physical_line_partitions(),
                cache.coherency_line_size(),
                cache.sets(),
            ];
            *slot = parts.into_iter().try_fold(1u64, |size, part| size.checked_mul(part as u64)).unwrap_or(0);
        }
    }
    Caches::from(levels)
}

#[cfg(not(target_arch = "x86_64"))]
fn from_cpuid() -> Caches {
    Caches::default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    fn a_level_without_a_file_comes_from_the_processor() {
        let root = tree(&[("3", "Unified", "7M")]);
        let found = Caches::read(root.path(), 3);
        assert_eq!(found.l3, 7 * MIB);
        assert_eq!((found.l1d, found.l2), (from_cpuid().l1d, from_cpuid().l2));
    }

    #[test]
    fn both_ways_tell_the_same_first_level_here() {
        let (kernel, cpuid) = (from_kernel(Path::new("/"), 0), from_cpuid());
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
