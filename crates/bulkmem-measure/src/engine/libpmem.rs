//! libpmem, loaded at run time where it is installed.

use std::ffi::{CStr, OsStr, c_int, c_uint, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use libloading::Library;

/// The name of libpmem in results, and in the figures of a profile.
pub const LIBPMEM: &str = "libpmem";

/// The functions of libpmem that are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Libpmem {
    pub(super) memset: unsafe extern "C" fn(*mut c_void, c_int, usize, c_uint) -> *mut c_void,
    pub(super) memcpy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_uint) -> *mut c_void,
    pub(super) persist: unsafe extern "C" fn(*const c_void, usize),
}

static LOADED: OnceLock<Result<Libpmem, &'static str>> = OnceLock::new();

pub(super) fn load() -> Result<Libpmem, &'static str> {
    *LOADED.get_or_init(|| {
        // SAFETY: libpmem's initialization only reads the environment and the processor's features.
        let library = unsafe { Library::new("libpmem.so.1") };
        let library = library.map_err(|_| "libpmem is not installed: apt-get install libpmem1")?;
        // The functions are used as long as the process lives.
        let library = ManuallyDrop::new(library);
        // SAFETY: these are the functions' types in libpmem.h, the same since version 1.5; the library is never unloaded.
        let functions = || unsafe {
            Ok::<_, libloading::Error>(Libpmem {
                memset: *library.get(b"pmem_memset\0")?,
                memcpy: *library.get(b"pmem_memcpy\0")?,
                persist: *library.get(b"pmem_persist\0")?,
            })
        };
        functions().map_err(|_| "libpmem is older than 1.5: apt-get install libpmem1")
    })
}

/// Returns the name and version of libpmem, as its file states it (no function returns it); `None` if it is not loaded.
pub(super) fn version() -> Option<String> {
    const BEFORE: &[u8] = b"src version: ";
    let library = LOADED.get()?.as_ref().ok()?;
    let mut about = MaybeUninit::uninit();
    // SAFETY: `about` is a place for a Dl_info.
    let known = unsafe { libc::dladdr(library.persist as *const c_void, about.as_mut_ptr()) };
    // SAFETY: `dladdr` succeeded, so that it is initialized; the name belongs to the library, which is never unloaded.
    let path = (known != 0).then(|| unsafe { CStr::from_ptr(about.assume_init().dli_fname) })?;
    let bytes = std::fs::read(OsStr::from_bytes(path.to_bytes())).ok()?;
    let at = bytes.windows(BEFORE.len()).position(|part| part == BEFORE)? + BEFORE.len();
    let version = bytes[at..].split(|byte| !byte.is_ascii_graphic()).next()?;
    Some(format!("libpmem {}", String::from_utf8_lossy(version)))
}
