//! Memory of the pool.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use bulkmem_pool::{Client, Kind, KindError, Memory, PATIENCE, PageSize, RUNTIME_DIR, Source, memory};

use crate::error::{Causes, Error, Failed, SOME, check_memory, explain, fail, slow_outcome};
use crate::options::read_known;
use crate::range;

/// Flag: the memory comes from the NUMA node `node`.
pub const BULKMEM_POOL_ON_NODE: u64 = 1;

/// The source of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSource {
    /// A unit of the pool: zeroed, with all its pages.
    Unit = 0,
    /// A fresh file of the requested page size, whose pages are allocated at page faults.
    Fresh = 1,
    /// A fresh file of base pages, because there are too few huge pages.
    FreshBase = 2,
}

/// Options of a request for memory of the pool. Initialize them with BULKMEM_POOL_OPTIONS_INIT, or set all bytes to 0 and then
/// `size`. A member that is 0 has its default.
#[repr(C)]
#[derive(Debug)]
pub struct PoolOptions {
    /// sizeof(struct bulkmem_pool_options). Later versions of the library add members at the end. A library that does not
    /// know a member accepts it if it is 0.
    pub size: usize,
    /// BULKMEM_POOL_ON_NODE.
    pub flags: u64,
    /// Page size in bytes: 2097152, 1073741824, or 4096 for the kernel's base pages of any size; 0 is 4096.
    pub page_size: u64,
    /// NUMA node, with BULKMEM_POOL_ON_NODE. Without the flag, any.
    pub node: u64,
    /// Time to wait for the pool, milliseconds; 0 is 50.
    pub patience_ms: u64,
    /// Path of the daemon's socket. By default, /run/bulkmem-pool/UID.socket with this user's number if it exists, else
    /// /run/bulkmem-pool/socket.
    pub socket: *const c_char,
}

/// Stores in `*fd` a descriptor of a memory file with `length` zeroed bytes, a multiple of the page size. It is a unit of the
/// pool if the pool gives one in time, and otherwise a fresh file, so that a program is never worse off than without a pool.
/// Stores in `*source`, if that is not a null pointer, an enum bulkmem_pool_source. If the memory is fresh,
/// bulkmem_last_error returns why. A null pointer stands for the default options. Fails with BULKMEM_ERROR_MEMORY or
/// BULKMEM_ERROR_SYSTEM if the kernel cannot create a memory file.
///
/// Not async-signal-safe. Map the file as shared. The descriptor is closed on exec, and the caller closes it. No one else has
/// the memory of a unit; it returns to the kernel when the last descriptor and the last mapping are gone.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_pool_memory(
    length: u64,
    options: *const PoolOptions,
    fd: *mut c_int,
    source: *mut c_int,
) -> c_int {
    slow_outcome(|| {
        range::not_null(fd, "fd")?;
        check_memory(SOME)?;
        // SAFETY: passed on from the caller.
        let (client, kind, patience) = unsafe { request(length, options)? };
        let Memory { file, source: found } =
            memory(&client, &kind, patience).map_err(|error| failed(&kind, &error))?;
        let from = match &found {
            Source::Pool(_) => PoolSource::Unit,
            Source::Fresh(reason) => {
                explain(format_args!("the memory is fresh, not from the pool: {}", Causes(reason)));
                PoolSource::Fresh
            }
            Source::FreshBase(reason, error) => {
                let (reason, page) = (Causes(reason), kind.page);
                let too_few = "the kernel has too few huge pages";
                explain(format_args!(
                    "the memory is fresh and has pages of 4K, not {page}: {reason}; {too_few}: {error}"
                ));
                PoolSource::FreshBase
            }
        };
        // SAFETY: not null; the caller vouches for the rest.
        unsafe { fd.write(file.into_raw_fd()) };
        if !source.is_null() {
            // SAFETY: not null; the caller vouches for the rest.
            unsafe { source.write(from as c_int) };
        }
        Ok(())
    })
}

/// Translates a request.
///
/// # Safety
/// `given` is null, or points to as many readable bytes as its `size` says, with a `socket` that is null or a string that ends
/// with a 0.
unsafe fn request(length: u64, given: *const PoolOptions) -> Result<(Client, Kind, Duration), Failed> {
    let default = || Client::in_folder(Path::new(RUNTIME_DIR));
    if given.is_null() {
        return Ok((default(), kind(length, PageSize::Base, None)?, PATIENCE));
    }
    // SAFETY: passed on from the caller. A null pointer is a valid `socket`.
    let given = unsafe { read_known(given, &[], "BULKMEM_POOL_OPTIONS_INIT")? };
    let unknown = given.flags & !BULKMEM_POOL_ON_NODE;
    if unknown != 0 {
        return Err(fail(Error::Argument, format_args!("unknown flags {unknown:#x} in the options")));
    }
    let node = match (given.flags & BULKMEM_POOL_ON_NODE != 0, given.node) {
        (false, 0) => None,
        (true, node) => Some(u32::try_from(node).unwrap_or(u32::MAX)),
        (false, node) => {
            let remedy = "add BULKMEM_POOL_ON_NODE to the flags";
            return Err(fail(
                Error::Argument,
                format_args!("the options have the node {node}, which is not used: {remedy}"),
            ));
        }
    };
    let page = match given.page_size {
        0 => PageSize::Base,
        bytes => PageSize::of_bytes(bytes).ok_or_else(|| {
            let remedy = "use 4096, 2097152 or 1073741824";
            fail(Error::Argument, format_args!("the pool has no pages of {bytes} bytes: {remedy}"))
        })?,
    };
    let client = if given.socket.is_null() {
        default()
    } else {
        // SAFETY: passed on from the caller.
        Client::new(OsStr::from_bytes(unsafe { CStr::from_ptr(given.socket) }.to_bytes()))
    };
    let patience = if given.patience_ms == 0 { PATIENCE } else { Duration::from_millis(given.patience_ms) };
    Ok((client, kind(length, page, node)?, patience))
}

fn kind(length: u64, page: PageSize, node: Option<u32>) -> Result<Kind, Failed> {
    Kind::new(page, length, node).map_err(|error| {
        let code = match error {
            KindError::Unit { .. } => Error::Length,
            KindError::Node(_) => Error::Argument,
        };
        fail(code, format_args!("{error}"))
    })
}

/// The code and text of an error of the kernel: it cannot create a fresh file.
fn failed(kind: &Kind, error: &io::Error) -> Failed {
    let code = match error.kind() {
        io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => Error::Memory,
        // The rest of the request is valid, so the kernel refuses the node.
        io::ErrorKind::InvalidInput if kind.node.is_some() => {
            let remedy = "/sys/devices/system/node/has_memory lists those that have some";
            return fail(Error::Argument, format_args!("no memory file of {kind}: {error}; {remedy}"));
        }
        _ => Error::System,
    };
    fail(code, format_args!("the kernel cannot create a memory file of {kind}: {error}"))
}
