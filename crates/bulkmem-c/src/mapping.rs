//! Memory in huge pages.

use std::ffi::{c_int, c_void};

use bulkmem::{MappingError, Pages};

use crate::error::{Causes, Error, Failed, SOME, check_memory, fail, keeping_errno, outcome, slow_outcome};
use crate::range;

/// Kind of pages: the smallest size, and no transparent huge pages.
pub const BULKMEM_PAGES_BASE: u64 = 0;
/// Kind of pages: transparent huge pages, if the kernel has some free.
pub const BULKMEM_PAGES_TRANSPARENT: u64 = 1;

/// Private memory from the operating system.
#[derive(Debug)]
pub struct Mapping {
    mapping: bulkmem::Mapping,
    memory: *mut c_void,
}

/// Maps `length` bytes of zeroed memory and stores the mapping in `*mapping`. `pages` is BULKMEM_PAGES_BASE,
/// BULKMEM_PAGES_TRANSPARENT, or the size in bytes of explicit huge pages (hugetlb), which the administrator must have
/// reserved. Mappings of base and transparent pages have an inaccessible page before and after them.
///
/// Not async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_map(length: usize, pages: u64, mapping: *mut *mut Mapping) -> c_int {
    slow_outcome(|| {
        range::not_null(mapping, "mapping")?;
        let pages = match pages {
            BULKMEM_PAGES_BASE => Pages::Base,
            BULKMEM_PAGES_TRANSPARENT => Pages::Transparent,
            size => Pages::Explicit(size),
        };
        check_memory(SOME)?;
        let mut mapped = bulkmem::Mapping::new(length, pages).map_err(failed)?;
        let memory = mapped.as_mut_ptr().cast();
        // SAFETY: passed on from the caller.
        unsafe { mapping.write(Box::into_raw(Box::new(Mapping { mapping: mapped, memory }))) };
        Ok(())
    })
}

/// Unmaps the memory. `mapping` may be a null pointer.
///
/// Not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_unmap(mapping: *mut Mapping) {
    if !mapping.is_null() {
        // SAFETY: the caller vouches for the origin, and does not use it again.
        let mapping = unsafe { Box::from_raw(mapping) };
        keeping_errno(|| {
            outcome(|| {
                drop(mapping);
                Ok(())
            })
        });
    }
}

/// Returns the first byte of a mapping, or a null pointer if `mapping` is one.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_mapping_memory(mapping: *const Mapping) -> *mut c_void {
    if mapping.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: not null; the caller vouches for the rest. No reference is made: a signal handler may interrupt a function
    // that has one to another field.
    unsafe { (&raw const (*mapping).memory).read() }
}

/// Maps every page of a mapping now, so that later operations take no page faults. Keeps the contents. Fails with
/// BULKMEM_ERROR_MEMORY if memory runs out; before Linux 5.14 the kernel kills the process then.
///
/// Not async-signal-safe. No other thread may use the same `mapping` during the call; they may use its memory.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_mapping_prefault(mapping: *mut Mapping) -> c_int {
    slow_outcome(|| {
        range::not_null(mapping, "mapping")?;
        // SAFETY: not null; the caller vouches for the rest.
        unsafe { &mut (*mapping).mapping }.prefault().map_err(failed)
    })
}

/// Stores in `*size` the size in bytes of the pages that back most of a mapping. Call bulkmem_mapping_prefault first,
/// because only touched memory has pages.
///
/// Not async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_mapping_page_size(mapping: *const Mapping, size: *mut usize) -> c_int {
    slow_outcome(|| {
        range::not_null(mapping, "mapping")?;
        range::not_null(size, "size")?;
        check_memory(SOME)?;
        // SAFETY: not null; the caller vouches for the rest.
        let found = unsafe { &(*mapping).mapping }.backing_page_size().map_err(failed)?;
        // SAFETY: as above.
        unsafe { size.write(found) };
        Ok(())
    })
}

/// The code and text of an error, without names of the Rust interface.
fn failed(error: MappingError) -> Failed {
    let code = match error {
        MappingError::PageSize { size, .. } => {
            let remedy = "/sys/kernel/mm/hugepages lists its sizes";
            return fail(
                Error::Argument,
                format_args!("this kernel has no huge pages of {size} bytes: {remedy}"),
            );
        }
        MappingError::NoTransparent(_) => {
            let remedy = "use BULKMEM_PAGES_BASE, or a size";
            return fail(Error::System, format_args!("this kernel has no transparent huge pages: {remedy}"));
        }
        MappingError::Empty | MappingError::TooLong { .. } => Error::Length,
        MappingError::NotReserved { .. } | MappingError::OutOfMemory { .. } => Error::Memory,
        _ => Error::System,
    };
    fail(code, format_args!("{}", Causes(&error)))
}
