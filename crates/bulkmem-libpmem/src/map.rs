//! Mapping files and device DAX, and which memory is persistent.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use crate::address;
use crate::failure::{Failed, fail, guarded, system};
use crate::ranges::{self, Kind, Range};
use crate::settings::is_pmem_forced;
use crate::sysfs::Device;

/// Create the file if it is not there; set its length in any case.
pub const PMEM_FILE_CREATE: c_int = 1 << 0;
/// With PMEM_FILE_CREATE: fail if the file is there.
pub const PMEM_FILE_EXCL: c_int = 1 << 1;
/// With PMEM_FILE_CREATE: allocate no blocks.
pub const PMEM_FILE_SPARSE: c_int = 1 << 2;
/// With PMEM_FILE_CREATE: create a file without a name in the folder.
pub const PMEM_FILE_TMPFILE: c_int = 1 << 3;

/// A new mapping.
struct Mapped {
    start: *mut c_void,
    length: usize,
}

/// Opens or creates a file and maps it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_map_file(
    path: *const c_char,
    length: usize,
    flags: c_int,
    mode: libc::mode_t,
    mapped_length: *mut usize,
    is_pmem: *mut c_int,
) -> *mut c_void {
    guarded(null_mut(), || {
        if path.is_null() {
            return Err(fail(libc::EINVAL, format_args!("the path is a null pointer")));
        }
        // SAFETY: it is a string, as the caller promises.
        let path = unsafe { CStr::from_ptr(path) };
        let Mapped { start, length } = map_file(path, length, flags, mode)?;
        // SAFETY: the caller passes valid pointers or null.
        unsafe {
            if !mapped_length.is_null() {
                *mapped_length = length;
            }
            if !is_pmem.is_null() {
                *is_pmem = persistent(start.addr(), length).into();
            }
        }
        Ok(start)
    })
}

/// Unmaps what `pmem_map_file` mapped, or pages of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_unmap(start: *mut c_void, length: usize) -> c_int {
    guarded(-1, || {
        let end = page_end(start.addr().saturating_add(length));
        // Locked, because another thread can map a file at the same address as soon as it is free.
        let mut ranges = ranges::write();
        ranges.reserve()?;
        // SAFETY: the caller no longer uses the memory.
        if unsafe { libc::munmap(start, length) } != 0 {
            return Err(system(format_args!("munmap")));
        }
        ranges.remove(start.addr(), end);
        Ok(0)
    })
}

/// Returns 1 if a whole range is persistent memory: device DAX, or mapped with MAP_SYNC, by `pmem_map_file`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_is_pmem(start: *const c_void, length: usize) -> c_int {
    guarded(0, || Ok(persistent(start.addr(), length).into()))
}

fn persistent(start: usize, length: usize) -> bool {
    let by_ranges = || start.checked_add(length).is_some_and(|end| ranges::read().contain(start, end));
    is_pmem_forced().unwrap_or_else(by_ranges) && length > 0
}

/// # Errors
/// Those of system calls; EINVAL if the arguments do not fit each other.
fn map_file(path: &CStr, length: usize, flags: c_int, mode: libc::mode_t) -> Result<Mapped, Failed> {
    let invalid = |text: &str| Err(fail(libc::EINVAL, format_args!("{text}")));
    let device = device(path)?;
    let (create, temporary) = (flags & PMEM_FILE_CREATE != 0, flags & PMEM_FILE_TMPFILE != 0);
    if flags & !(PMEM_FILE_CREATE | PMEM_FILE_EXCL | PMEM_FILE_SPARSE | PMEM_FILE_TMPFILE) != 0 {
        return Err(fail(libc::EINVAL, format_args!("flags {flags:#x} include unknown ones")));
    }
    if let Some(device) = device {
        return map_device(path, length, flags, device);
    }
    if create && libc::off_t::try_from(length).is_err() {
        return Err(fail(libc::EINVAL, format_args!("no file is {length} bytes long")));
    }
    if !create && length != 0 {
        return invalid("a length other than 0 needs PMEM_FILE_CREATE");
    }
    if create && length == 0 {
        return invalid("PMEM_FILE_CREATE needs a length other than 0");
    }
    if temporary && !create {
        return invalid("PMEM_FILE_TMPFILE needs PMEM_FILE_CREATE");
    }
    let exclusive = flags & PMEM_FILE_EXCL != 0;
    let only_new = if exclusive { libc::O_EXCL } else { 0 };
    let file = match (create, temporary) {
        (_, true) => open_temporary(path, only_new)?,
        (true, false) => open(path, libc::O_CREAT | only_new, mode)?,
        (false, false) => open(path, only_new, mode)?,
    };
    let mapped = size(&file, create.then_some((length, flags & PMEM_FILE_SPARSE != 0)))
        .and_then(|length| map(&file, length, None));
    if mapped.is_err() && create && exclusive && !temporary {
        // This call has created it.
        // SAFETY: the path is a string.
        unsafe { libc::unlink(path.as_ptr()) };
    }
    mapped
}

/// # Errors
/// As [`map_file`].
fn map_device(path: &CStr, length: usize, flags: c_int, device: Device) -> Result<Mapped, Failed> {
    if flags & !(PMEM_FILE_CREATE | PMEM_FILE_SPARSE) != 0 {
        return Err(fail(libc::EINVAL, format_args!("flags {flags:#x} are not for device DAX")));
    }
    let Some(size) = device.size else {
        return Err(fail(libc::EINVAL, format_args!("{}: the size is unknown", path.to_string_lossy())));
    };
    if length != 0 && length != size {
        return Err(fail(
            libc::EINVAL,
            format_args!("the length must be 0 or the size of the device: {size}"),
        ));
    }
    map(&open(path, 0, 0)?, size, Some(Kind::Device(device.region)))
}

/// Returns the device if the path is one of device DAX, and nothing if it is a file, a folder, or not there.
///
/// # Errors
/// EINVAL for everything else, and those of system calls.
fn device(path: &CStr) -> Result<Option<Device>, Failed> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is a string, and there is room for the result.
    if unsafe { libc::stat(path.as_ptr(), status.as_mut_ptr()) } != 0 {
        if io::Error::last_os_error().kind() == io::ErrorKind::NotFound {
            return Ok(None);
        }
        return Err(system(format_args!("{}", path.to_string_lossy())));
    }
    // SAFETY: stat succeeded.
    let status = unsafe { status.assume_init() };
    let device = match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR => return Ok(None),
        libc::S_IFCHR => Device::of(Path::new("/"), libc::major(status.st_rdev), libc::minor(status.st_rdev)),
        _ => None,
    };
    let refused =
        || fail(libc::EINVAL, format_args!("{}: neither a file nor device DAX", path.to_string_lossy()));
    device.ok_or_else(refused).map(Some)
}

/// # Errors
/// Those of open.
fn open(path: &CStr, how: c_int, mode: libc::mode_t) -> Result<OwnedFd, Failed> {
    // SAFETY: the path is a string.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | how, mode) };
    if file < 0 {
        return Err(system(format_args!("open {}", path.to_string_lossy())));
    }
    // SAFETY: it is open, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Opens a new file without a name in a folder.
///
/// # Errors
/// Those of open, mkostemp and unlink.
fn open_temporary(folder: &CStr, how: c_int) -> Result<OwnedFd, Failed> {
    match open(folder, libc::O_TMPFILE | how, 0o600) {
        // The file system cannot do that.
        Err(Failed(libc::EOPNOTSUPP)) => create_and_remove(folder),
        opened => opened,
    }
}

/// Opens a new file in a folder, and removes its name.
///
/// # Errors
/// As [`open_temporary`].
fn create_and_remove(folder: &CStr) -> Result<OwnedFd, Failed> {
    let mut path = [folder.to_bytes(), b"/pmem.XXXXXX\0"].concat();
    let name = || folder.to_string_lossy();
    // SAFETY: the path is a string that ends with the characters that are replaced.
    let file = unsafe { libc::mkostemp(path.as_mut_ptr().cast(), libc::O_CLOEXEC) };
    if file < 0 {
        return Err(system(format_args!("create a file in {}", name())));
    }
    // SAFETY: it is open, and this is its only owner.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: the path is a string.
    if unsafe { libc::unlink(path.as_ptr().cast()) } != 0 {
        return Err(system(format_args!("remove the name of a file in {}", name())));
    }
    Ok(file)
}

/// The end of the page with the last byte: the kernel maps and unmaps whole pages.
fn page_end(end: usize) -> usize {
    end.checked_next_multiple_of(address::page_size()).unwrap_or(usize::MAX)
}

/// Sets the length of the file if there is one, and allocates its blocks unless it is sparse. Returns its length.
///
/// # Errors
/// Those of system calls.
fn size(file: &OwnedFd, wanted: Option<(usize, bool)>) -> Result<usize, Failed> {
    let Some((length, sparse)) = wanted else {
        let mut status = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the file is open, and there is room for the result.
        if unsafe { libc::fstat(file.as_raw_fd(), status.as_mut_ptr()) } != 0 {
            return Err(system(format_args!("fstat")));
        }
        // SAFETY: fstat succeeded.
        let size = unsafe { status.assume_init() }.st_size;
        return usize::try_from(size).map_err(|_| fail(libc::EINVAL, format_args!("negative length")));
    };
    // `map_file` has checked the length.
    let end = length as libc::off_t;
    // SAFETY: the file is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), end) } != 0 {
        return Err(system(format_args!("ftruncate to {length} bytes")));
    }
    if !sparse {
        // SAFETY: the file is open.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, end) };
        if error != 0 {
            let cause = io::Error::from_raw_os_error(error);
            return Err(fail(error, format_args!("posix_fallocate of {length} bytes: {cause}")));
        }
    }
    Ok(length)
}

/// Maps a file, with MAP_SYNC if it is possible, and notes if it is persistent memory.
///
/// # Errors
/// Those of mmap.
fn map(file: &OwnedFd, length: usize, kind: Option<Kind>) -> Result<Mapped, Failed> {
    let hint = with_exposed_provenance_mut(address::find(length)?);
    let map = |flags| {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED, the kernel replaces no mapping.
        unsafe { libc::mmap(hint, length, access, flags, file.as_raw_fd(), 0) }
    };
    let mut ranges = ranges::write();
    ranges.reserve()?;
    let mut start = map(libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC);
    let mut kind = kind.or(Some(Kind::Synchronous));
    if start == libc::MAP_FAILED
        && matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
    {
        start = map(libc::MAP_SHARED);
        kind = kind.filter(|kind| *kind != Kind::Synchronous);
    }
    if start == libc::MAP_FAILED {
        return Err(system(format_args!("mmap of {length} bytes")));
    }
    let (from, end) = (start.addr(), start.addr() + length);
    match kind {
        Some(kind) => {
            ranges.remove(from, page_end(end));
            ranges.add(Range { start: from, end, kind });
        }
        // What was there has been unmapped by other means.
        None => ranges.remove(from, page_end(end)),
    }
    Ok(Mapped { start, length })
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::flush::{pmem_deep_drain, pmem_deep_persist};

    /// A file in place of a device: what is persistent follows from the ranges alone.
    #[test]
    fn a_device_is_persistent_until_it_is_unmapped() {
        let file: File = tempfile::tempfile().unwrap();
        let (page, pages) = (4096, 3);
        file.set_len(pages * page as u64).unwrap();
        let length = page * pages as usize;
        let mapped = map(&file.into(), length, Some(Kind::Device(Some(u32::MAX)))).unwrap();
        let at = |offset| mapped.start.wrapping_byte_add(offset);
        // SAFETY: only whole pages of the mapping are unmapped, and nothing accesses them.
        unsafe {
            assert_eq!(pmem_is_pmem(at(0), length), 1);
            assert_eq!(pmem_is_pmem(at(1), length), 0);
            assert_eq!(pmem_is_pmem(at(0), usize::MAX), 0);
            assert_eq!(pmem_deep_persist(at(5), length - 5), 0);
            // The kernel unmaps the whole page.
            assert_eq!(pmem_unmap(at(page), 1), 0);
            assert_eq!(pmem_is_pmem(at(page + 1), 1), 0);
            let persistent = [0, page, 2 * page].map(|offset| pmem_is_pmem(at(offset), page));
            assert_eq!(persistent, [1, 0, 1]);
            // The gap is not mapped, so msync of it fails.
            assert_eq!(pmem_deep_drain(at(0), length), -1);
            assert_eq!(pmem_deep_drain(at(2 * page), page), 0);
            assert_eq!((pmem_unmap(at(0), page), pmem_unmap(at(2 * page), page)), (0, 0));
            assert_eq!(pmem_is_pmem(at(0), 1), 0);
        }
    }

    #[test]
    fn files_without_a_name_need_no_file_system_that_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let mut file = File::from(create_and_remove(&path).unwrap());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        let status = file.metadata().unwrap();
        assert_eq!((status.nlink(), status.mode() & 0o777, status.len()), (0, 0o600, 0));
        file.write_all(b"here").unwrap();
        assert_eq!(size(&file.into(), None), Ok(4));
        drop(folder);
        assert_eq!(create_and_remove(&path).unwrap_err(), Failed(libc::ENOENT));
    }

    #[test]
    fn a_mapping_without_map_sync_is_not_persistent() {
        let file: File = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let mapped = map(&file.into(), 4096, None).unwrap();
        // SAFETY: the mapping is the test's.
        unsafe {
            assert_eq!(pmem_is_pmem(mapped.start, 4096), 0);
            assert_eq!(pmem_unmap(mapped.start, 4096), 0);
        }
    }
}
