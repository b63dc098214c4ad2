//! The functions of `libpmem.so.1`, found when the program runs, as in a program that uses PMDK.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use libloading::Library;

pub(crate) const PMEM_FILE_CREATE: c_int = 1 << 0;
pub(crate) const PMEM_FILE_EXCL: c_int = 1 << 1;
pub(crate) const PMEM_FILE_SPARSE: c_int = 1 << 2;

/// Copies, from `memcpy` to `memmove`.
type Copy = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;
type Fill = unsafe extern "C" fn(*mut u8, c_int, usize) -> *mut u8;
/// Of a range; those that can fail return -1 then.
type Flush = unsafe extern "C" fn(*const u8, usize);
type Sync = unsafe extern "C" fn(*const u8, usize) -> c_int;

#[allow(dead_code, reason = "the other program that shares this file uses the rest")]
pub(crate) struct Functions {
    map_file: unsafe extern "C" fn(*const c_char, usize, c_int, c_uint, *mut usize, *mut c_int) -> *mut u8,
    errormsg: unsafe extern "C" fn() -> *const c_char,
    pub(crate) unmap: Sync,
    pub(crate) is_pmem: Sync,
    pub(crate) has_auto_flush: unsafe extern "C" fn() -> c_int,
    pub(crate) memcpy_persist: Copy,
    pub(crate) memmove_persist: Copy,
    pub(crate) memset_persist: Fill,
    pub(crate) memcpy_nodrain: Copy,
    pub(crate) memmove_nodrain: Copy,
    pub(crate) memset_nodrain: Fill,
    pub(crate) memcpy: unsafe extern "C" fn(*mut u8, *const u8, usize, c_uint) -> *mut u8,
    pub(crate) memmove: unsafe extern "C" fn(*mut u8, *const u8, usize, c_uint) -> *mut u8,
    pub(crate) memset: unsafe extern "C" fn(*mut u8, c_int, usize, c_uint) -> *mut u8,
    pub(crate) persist: Flush,
    pub(crate) flush: Flush,
    pub(crate) drain: unsafe extern "C" fn(),
    pub(crate) msync: Sync,
    pub(crate) deep_flush: Flush,
    pub(crate) deep_drain: Sync,
    pub(crate) deep_persist: Sync,
    /// Last, so that it is unloaded last.
    _library: Library,
}

/// A mapping, as `pmem_map_file` reports it.
pub(crate) struct Mapped {
    pub(crate) bytes: &'static mut [u8],
    pub(crate) is_pmem: c_int,
}

impl Functions {
    /// # Errors
    /// If the library or a function is missing.
    pub(crate) fn load() -> Result<Functions, libloading::Error> {
        // SAFETY: its initialization only reads the environment, the policy file and sysfs.
        let library = unsafe { Library::new("libpmem.so.1") }?;
        macro_rules! find {
            ($name:literal) => {
                // SAFETY: the fields have the functions' types in libpmem.h.
                *unsafe { library.get(concat!("pmem_", $name, "\0").as_bytes()) }?
            };
        }
        Ok(Functions {
            map_file: find!("map_file"),
            errormsg: find!("errormsg"),
            unmap: find!("unmap"),
            is_pmem: find!("is_pmem"),
            has_auto_flush: find!("has_auto_flush"),
            memcpy_persist: find!("memcpy_persist"),
            memmove_persist: find!("memmove_persist"),
            memset_persist: find!("memset_persist"),
            memcpy_nodrain: find!("memcpy_nodrain"),
            memmove_nodrain: find!("memmove_nodrain"),
            memset_nodrain: find!("memset_nodrain"),
            memcpy: find!("memcpy"),
            memmove: find!("memmove"),
            memset: find!("memset"),
            persist: find!("persist"),
            flush: find!("flush"),
            drain: find!("drain"),
            msync: find!("msync"),
            deep_flush: find!("deep_flush"),
            deep_drain: find!("deep_drain"),
            deep_persist: find!("deep_persist"),
            _library: library,
        })
    }

    /// Maps a file or device. The caller must not use the bytes after `unmap`.
    ///
    /// # Errors
    /// Those of `pmem_map_file`.
    pub(crate) fn map(&self, path: &Path, length: usize, flags: c_int) -> Result<Mapped, Box<dyn Error>> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let (mut mapped, mut is_pmem) = (0, -1);
        // SAFETY: the path is a string, and there is room for the results.
        let start =
            unsafe { (self.map_file)(path.as_ptr(), length, flags, 0o600, &mut mapped, &mut is_pmem) };
        if start.is_null() {
            let error = io::Error::last_os_error();
            // SAFETY: it is a string, until this thread's next call.
            let text = unsafe { CStr::from_ptr((self.errormsg)()) };
            return Err(format!("pmem_map_file of {path:?}: {error} ({text:?})").into());
        }
        // SAFETY: it is mapped, readable and writable, and only this program uses the file.
        let bytes = unsafe { slice::from_raw_parts_mut(start, mapped) };
        Ok(Mapped { bytes, is_pmem })
    }
}
