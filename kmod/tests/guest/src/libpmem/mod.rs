//! Tests which memory our `libpmem.so.1` takes for persistent: files on DAX mapped with MAP_SYNC, and device DAX.
//!
//! `kmod/tests/pmem.sh` boots a machine with ext4 on DAX at `/pmem`, and device DAX in a region of its own.

use std::ffi::{CString, c_int};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::pmem::{Map, Scratch, smaps_flags};
use functions::{Functions, Mapped, PMEM_FILE_CREATE, PMEM_FILE_EXCL, PMEM_FILE_SPARSE};

mod functions;

const DEVICE: &str = "/dev/dax1.0";
const LENGTH: usize = 1 << 20;

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("libpmem::caches_do_not_survive_here", caches_do_not_survive);
    suite.test("libpmem::a_file_mapped_with_map_sync_is_persistent", a_file_on_dax);
    suite.test("libpmem::a_file_in_the_page_cache_is_not_persistent", a_file_in_the_page_cache);
    suite.test("libpmem::what_others_mapped_is_not_persistent", what_others_mapped);
    suite.test("libpmem::device_dax_is_persistent", device_dax);
    suite.test("libpmem::deep_functions_flush_the_region_of_device_dax", the_region_is_flushed);
}

/// Safe calls.
impl Functions {
    fn says_pmem(&self, part: *const u8, length: usize) -> c_int {
        // SAFETY: it does not access the memory.
        unsafe { (self.is_pmem)(part, length) }
    }

    fn unmapped(&self, mapped: Mapped) -> c_int {
        // SAFETY: no reference to the bytes remains.
        unsafe { (self.unmap)(mapped.bytes.as_ptr(), mapped.bytes.len()) }
    }

    /// Writes the first half by a copy that persists, the second by stores, and returns the results of the functions that make
    /// those durable.
    fn write(&self, to: &mut [u8], from: &[u8]) -> [c_int; 2] {
        let (first, second) = to.split_at_mut(from.len() / 2);
        second.copy_from_slice(&from[first.len()..]);
        // SAFETY: the ranges are mapped, and have these lengths.
        unsafe {
            (self.memcpy_persist)(first.as_mut_ptr(), from.as_ptr(), first.len());
            let (start, length) = (second.as_ptr(), second.len());
            [(self.deep_persist)(start, length), (self.deep_drain)(start, length)]
        }
    }
}

fn is_synchronous(bytes: &[u8]) -> Result<bool, Failed> {
    Ok(smaps_flags(bytes.as_ptr().addr())?.iter().any(|flag| flag == "sf"))
}

fn caches_do_not_survive() -> Result<(), Failed> {
    // SAFETY: it has no preconditions.
    assert_eq!(unsafe { (Functions::load()?.has_auto_flush)() }, 0);
    Ok(())
}

fn a_file_on_dax() -> Result<(), Failed> {
    let pmem = Functions::load()?;
    let path = Path::new("/pmem/libpmem");
    for (flags, length) in [
        (PMEM_FILE_CREATE | PMEM_FILE_EXCL | PMEM_FILE_SPARSE, LENGTH),
        (PMEM_FILE_CREATE, LENGTH + 100),
        (0, 0),
    ] {
        let mapped = pmem.map(path, length, flags)?;
        let expected = if length == 0 { LENGTH + 100 } else { length };
        assert_eq!((mapped.bytes.len(), mapped.is_pmem), (expected, 1), "flags {flags}");
        assert!(is_synchronous(mapped.bytes)?, "flags {flags}");
        let start = mapped.bytes.as_ptr();
        assert_eq!(pmem.says_pmem(start, expected), 1);
        assert_eq!(pmem.says_pmem(start.wrapping_add(4097), 100), 1);
        assert_eq!(pmem.says_pmem(start, 2 * LENGTH), 0, "beyond the end");
        let mut content = vec![0; expected];
        fastrand::Rng::with_seed(length as u64).fill(&mut content);
        assert_eq!(pmem.write(mapped.bytes, &content), [0, 0]);
        // SAFETY: it is mapped.
        assert_eq!(unsafe { (pmem.msync)(start, expected) }, 0);
        assert!(fs::read(path)? == content, "flags {flags}");
        assert_eq!(pmem.unmapped(mapped), 0);
        assert_eq!(pmem.says_pmem(start, 1), 0, "unmapped");
    }
    Ok(fs::remove_file(path)?)
}

fn a_file_in_the_page_cache() -> Result<(), Failed> {
    let pmem = Functions::load()?;
    for folder in ["/tmp", "/"] {
        let path = Path::new(folder).join("libpmem");
        let mapped = pmem.map(&path, LENGTH, PMEM_FILE_CREATE)?;
        assert_eq!((mapped.bytes.len(), mapped.is_pmem), (LENGTH, 0), "{folder}");
        assert!(!is_synchronous(mapped.bytes)?, "{folder}");
        assert_eq!(pmem.says_pmem(mapped.bytes.as_ptr(), LENGTH), 0, "{folder}");
        assert_eq!(pmem.unmapped(mapped), 0);
        fs::remove_file(path)?;
    }
    Ok(())
}

/// On DAX, even with MAP_SYNC: as in PMDK, the library knows only its own mappings.
fn what_others_mapped() -> Result<(), Failed> {
    let pmem = Functions::load()?;
    let scratch = Scratch::new("/pmem", "others", LENGTH)?;
    for mut map in [Map::synchronous(&scratch.file, LENGTH)?, Map::ordinary(&scratch.file, LENGTH)?] {
        assert_eq!(pmem.says_pmem(map.bytes_mut().as_ptr(), LENGTH), 0);
    }
    let local = 0;
    assert_eq!(pmem.says_pmem(&local, 1), 0);
    Ok(())
}

fn device_dax() -> Result<(), Failed> {
    let pmem = Functions::load()?;
    let size: usize = fs::read_to_string("/sys/bus/dax/devices/dax1.0/size")?.trim().parse()?;
    let mut content = vec![0; LENGTH + 100];
    fastrand::Rng::with_seed(9).fill(&mut content);
    // The other tests need its start.
    let range = size - content.len()..size;
    for length in [0, size] {
        let mapped = pmem.map(Path::new(DEVICE), length, 0)?;
        assert_eq!((mapped.bytes.len(), mapped.is_pmem), (size, 1));
        assert_eq!(pmem.says_pmem(mapped.bytes.as_ptr(), size), 1);
        assert_eq!(pmem.says_pmem(mapped.bytes[LENGTH..].as_ptr(), 1), 1);
        assert_eq!(pmem.says_pmem(mapped.bytes.as_ptr(), size + 1), 0);
        if length == 0 {
            assert_eq!(pmem.write(&mut mapped.bytes[range.clone()], &content), [0, 0]);
        }
        assert!(mapped.bytes[range.clone()] == content);
        let start = mapped.bytes.as_ptr();
        assert_eq!(pmem.unmapped(mapped), 0);
        assert_eq!(pmem.says_pmem(start, size), 0);
    }
    assert!(
        Map::ordinary(&File::options().read(true).write(true).open(DEVICE)?, size)?.bytes_mut()[range]
            == content
    );
    assert!(pmem.map(Path::new(DEVICE), size - 4096, 0).is_err());
    assert!(pmem.map(Path::new(DEVICE), size, PMEM_FILE_CREATE | PMEM_FILE_EXCL).is_err());
    Ok(())
}

/// Mounts a file over another one of sysfs; undone when dropped.
struct Covered(CString);

impl Covered {
    fn new(file: &Path, by: &Path) -> Result<Covered, Failed> {
        let (by, file) =
            (CString::new(by.as_os_str().as_bytes())?, CString::new(file.as_os_str().as_bytes())?);
        // SAFETY: both are strings.
        let done =
            unsafe { libc::mount(by.as_ptr(), file.as_ptr(), ptr::null(), libc::MS_BIND, ptr::null()) };
        if done == 0 { Ok(Covered(file)) } else { Err(std::io::Error::last_os_error().into()) }
    }
}

impl Drop for Covered {
    fn drop(&mut self) {
        // SAFETY: it is a string.
        unsafe { libc::umount2(self.0.as_ptr(), 0) };
    }
}

/// The emulated NVDIMM has no queue to flush: `deep_flush` is 0. So files with 1, as on hardware with one, are mounted there.
fn the_region_is_flushed() -> Result<(), Failed> {
    let pmem = Functions::load()?;
    let mapped = pmem.map(Path::new(DEVICE), 0, 0)?;
    let (end, length) = (mapped.bytes.as_ptr_range().end.wrapping_sub(100), 100);
    for deep in [pmem.deep_drain, pmem.deep_persist] {
        let mut covered = Vec::new();
        for region in 0..2 {
            let file = PathBuf::from(format!("/sys/bus/nd/devices/region{region}/deep_flush"));
            assert_eq!(fs::read_to_string(&file)?.trim(), "0");
            let by = PathBuf::from(format!("/tmp/region{region}"));
            fs::write(&by, "1\n")?;
            covered.push(Covered::new(&file, &by)?);
        }
        // SAFETY: the range is mapped.
        assert_eq!(unsafe { deep(end, length) }, 0);
        // Writing 1 also truncates the file.
        let left = [0, 1].map(|region| fs::read_to_string(format!("/tmp/region{region}")).unwrap());
        assert_eq!(left, ["1\n", "1"], "only the region of the device is flushed");
    }
    assert_eq!(pmem.unmapped(mapped), 0);
    Ok(())
}
