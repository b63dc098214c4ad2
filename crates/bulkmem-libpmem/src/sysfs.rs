//! Persistent memory in sysfs: device DAX, and platforms whose caches survive a power failure.

use std::ffi::c_uint;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the regions of persistent memory.
const REGIONS: &str = "sys/bus/nd/devices";

/// A character device of device DAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Bytes, if the kernel tells.
    pub(crate) size: Option<usize>,
    /// Number of its region, if the kernel tells.
    pub(crate) region: Option<u32>,
}

impl Device {
    /// The device of that number; `None` if it is not device DAX. `root` is `/` except in tests.
    pub(crate) fn of(root: &Path, major: c_uint, minor: c_uint) -> Option<Device> {
        let folder = root.join(format!("sys/dev/char/{major}:{minor}"));
        let subsystem = fs::canonicalize(folder.join("subsystem")).ok()?;
        let dax = ["sys/bus/dax", "sys/class/dax"].iter().any(|path| subsystem == root.join(path));
        dax.then(|| Device {
            size: number(&folder.join("size")).and_then(|size| size.try_into().ok()),
            // Its parent's; `device` links to that before Linux 5.1.
            region: ["../dax_region/id", "device/dax_region/id"]
                .iter()
                .find_map(|file| number(&folder.join(file))?.try_into().ok()),
        })
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// True if there are regions of persistent memory, and the caches of all of them survive a power failure.
///
/// # Errors
/// If a region's folder cannot be read.
pub(crate) fn caches_survive(root: &Path) -> std::io::Result<bool> {
    let folder = root.join(REGIONS);
    if !folder.exists() {
        return Ok(false);
    }
    let mut some = false;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("region") {
            let domain = fs::read_to_string(entry.path().join("persistence_domain")).unwrap_or_default();
            if domain.trim() != "cpu_cache" {
                return Ok(false);
            }
            some = true;
        }
    }
    Ok(some)
}

/// Has the memory controller write its queue to the medium, if the region needs that. As in PMDK, a kernel that has no
/// such file, or refuses, is no error.
pub(crate) fn deep_flush(root: &Path, region: u32) {
    let file: PathBuf = root.join(REGIONS).join(format!("region{region}/deep_flush"));
    if number(&file) == Some(1) {
        _ = fs::write(file, "1");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = TempDir::new().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn caches_survive_only_if_every_region_says_so() {
        let domain = |number| format!("{REGIONS}/region{number}/persistence_domain");
        let (first, second) = (domain(0), domain(1));
        let other = format!("{REGIONS}/namespace0.0/size");
        for (files, survive) in [
            (&[][..], false),
            (&[(&*other, "1")], false),
            (&[(&*first, "cpu_cache\n")], true),
            (&[(&*first, "memory_controller\n")], false),
            (&[(&*first, "cpu_cache\n"), (&*second, "cpu_cache\n"), (&*other, "1")], true),
            (&[(&*first, "cpu_cache\n"), (&*second, "\n")], false),
        ] {
            assert_eq!(caches_survive(tree(files).path()).unwrap(), survive, "{files:?}");
        }
        // A region that does not tell.
        assert!(!caches_survive(tree(&[(&format!("{REGIONS}/region0/size"), "1")]).path()).unwrap());
    }

    #[test]
    fn device_dax_is_recognized_by_its_subsystem() {
        for (subsystem, region, dax) in [
            ("sys/bus/dax", "sys/devices/dax7.0/dax_region/id", true),
            ("sys/class/dax", "sys/devices/dax7.0/dax7.0/device/dax_region/id", true),
            ("sys/class/mem", "sys/devices/dax7.0/dax_region/id", false),
        ] {
            let here = "sys/devices/dax7.0/dax7.0";
            let root = tree(&[
                (&format!("{subsystem}/here"), ""),
                ("sys/dev/char/here", ""),
                (&format!("{here}/size"), "4194304\n"),
                (region, "7\n"),
            ]);
            // Links in sysfs are relative; the result is the same.
            let root = root.path().canonicalize().unwrap();
            symlink(root.join(subsystem), root.join(here).join("subsystem")).unwrap();
            symlink(root.join(here), root.join("sys/dev/char/250:3")).unwrap();
            let device = Device { size: Some(4 << 20), region: Some(7) };
            assert_eq!(Device::of(&root, 250, 3), dax.then_some(device), "{subsystem}");
            assert_eq!(Device::of(&root, 250, 4), None);
        }
    }

    #[test]
    fn a_region_is_flushed_if_it_needs_it() {
        for (before, after) in [("1\n", "1"), ("0\n", "0\n")] {
            let file = format!("{REGIONS}/region7/deep_flush");
            let root = tree(&[(&file, before)]);
            deep_flush(root.path(), 7);
            deep_flush(root.path(), 8);
            assert_eq!(fs::read_to_string(root.path().join(file)).unwrap(), after);
        }
    }
}
