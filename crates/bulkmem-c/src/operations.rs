//! The operations. Each has a form without options, which is the fast one for short lengths, and a form with options.

use std::ffi::{c_int, c_void};

use bulkmem::{Operation, Options, method, pointers};

use crate::error::{Error, Failed, fail, outcome, slow_outcome};
use crate::options::{COptions, Checked};
use crate::range;

/// Sets `length` bytes from `dst` to zero, as memset does. The compiler never removes the call.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_clear(dst: *mut c_void, length: usize) -> c_int {
    outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        unsafe { pointers::clear(dst.cast(), length) }
        Ok(())
    })
}

/// As bulkmem_clear, with options. A null pointer stands for the default ones.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_clear_with(
    dst: *mut c_void,
    length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, unfenced } = unsafe { Checked::read(options, Operation::Clear)? };
        // SAFETY: passed on from the caller, who issues the fence if there is none.
        unsafe {
            if unfenced {
                options.clear_unfenced(dst.cast(), length);
            } else {
                options.clear_raw(dst.cast(), length);
            }
        }
        Ok(())
    })
}

/// Sets `length` bytes from `dst` to the lowest eight bits of `byte`, as memset does.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_fill(dst: *mut c_void, byte: c_int, length: usize) -> c_int {
    outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        unsafe { pointers::fill(dst.cast(), length, byte as u8) }
        Ok(())
    })
}

/// As bulkmem_fill, with options. A null pointer stands for the default ones.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_fill_with(
    dst: *mut c_void,
    byte: c_int,
    length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, unfenced } = unsafe { Checked::read(options, Operation::Fill)? };
        // SAFETY: passed on from the caller, who issues the fence if there is none.
        unsafe {
            if unfenced {
                options.fill_unfenced(dst.cast(), length, byte as u8);
            } else {
                options.fill_raw(dst.cast(), length, byte as u8);
            }
        }
        Ok(())
    })
}

/// Copies `length` bytes from `src` to `dst`, as memcpy does. Fails with BULKMEM_ERROR_OVERLAP if the ranges overlap;
/// nothing is copied then.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_copy(dst: *mut c_void, src: *const c_void, length: usize) -> c_int {
    outcome(|| {
        range::check_apart(dst, src, length)?;
        // SAFETY: passed on from the caller.
        unsafe { pointers::copy(dst.cast(), src.cast(), length) }
        Ok(())
    })
}

/// As bulkmem_copy, with options. A null pointer stands for the default ones.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_copy_with(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check_apart(dst, src, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, unfenced } = unsafe { Checked::read(options, Operation::Copy)? };
        // SAFETY: passed on from the caller, who issues the fence if there is none.
        unsafe {
            if unfenced {
                options.copy_unfenced(dst.cast(), src.cast(), length);
            } else {
                options.copy_raw(dst.cast(), src.cast(), length);
            }
        }
        Ok(())
    })
}

/// Copies `length` bytes from `src` to `dst`, as memmove does: the ranges may overlap. Ranges that overlap are copied by the
/// C library's memmove, whatever the options say.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_move(dst: *mut c_void, src: *const c_void, length: usize) -> c_int {
    outcome(|| {
        range::check_both(dst, src, length)?;
        // SAFETY: passed on from the caller.
        unsafe {
            if range::overlap(dst, src, length) {
                Options::new().copy_raw(dst.cast(), src.cast(), length);
            } else {
                pointers::copy(dst.cast(), src.cast(), length);
            }
        }
        Ok(())
    })
}

/// As bulkmem_move, with options. A null pointer stands for the default ones.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_move_with(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check_both(dst, src, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, unfenced } = unsafe { Checked::read(options, Operation::Copy)? };
        // SAFETY: passed on from the caller, who issues the fence if there is none.
        unsafe {
            if unfenced && !range::overlap(dst, src, length) {
                options.copy_unfenced(dst.cast(), src.cast(), length);
            } else {
                options.copy_raw(dst.cast(), src.cast(), length);
            }
        }
        Ok(())
    })
}

/// Copies `length` bytes from `src` to `dst` and makes them durable: when it returns, they have left the processor's caches,
/// as with pmem_memcpy_persist. Fails with BULKMEM_ERROR_OVERLAP if the ranges overlap; nothing is copied then.
///
/// Async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_copy_persist(dst: *mut c_void, src: *const c_void, length: usize) -> c_int {
    outcome(|| {
        range::check_apart(dst, src, length)?;
        // SAFETY: passed on from the caller.
        unsafe { Options::new().copy_persist_raw(dst.cast(), src.cast(), length) }.map_err(failed)
    })
}

/// As bulkmem_copy_persist, with options. A null pointer stands for the default ones.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_copy_persist_with(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check_apart(dst, src, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, unfenced } = unsafe { Checked::read(options, Operation::CopyPersist)? };
        // SAFETY: passed on from the caller, who issues the fence if there is none.
        unsafe {
            if unfenced {
                options.copy_persist_unfenced(dst.cast(), src.cast(), length).map_err(failed)?;
            } else {
                options.copy_persist_raw(dst.cast(), src.cast(), length).map_err(failed)?;
            }
        }
        Ok(())
    })
}

/// Sets `length` bytes from `dst` to the lowest eight bits of `byte` and makes them durable, as pmem_memset_persist does.
///
/// Async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_fill_persist(dst: *mut c_void, byte: c_int, length: usize) -> c_int {
    outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        unsafe { Options::new().fill_persist_raw(dst.cast(), length, byte as u8) }.map_err(failed)
    })
}

/// As bulkmem_fill_persist, with options. A null pointer stands for the default ones.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_fill_persist_with(
    dst: *mut c_void,
    byte: c_int,
    length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, unfenced } = unsafe { Checked::read(options, Operation::FillPersist)? };
        // SAFETY: passed on from the caller, who issues the fence if there is none.
        unsafe {
            if unfenced {
                options.fill_persist_unfenced(dst.cast(), length, byte as u8).map_err(failed)?;
            } else {
                options.fill_persist_raw(dst.cast(), length, byte as u8).map_err(failed)?;
            }
        }
        Ok(())
    })
}

/// Sets `length` bytes from `dst` to zero and makes them durable: bulkmem_fill_persist with the byte 0.
///
/// Async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_clear_persist(dst: *mut c_void, length: usize) -> c_int {
    outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        unsafe { Options::new().fill_persist_raw(dst.cast(), length, 0) }.map_err(failed)
    })
}

/// As bulkmem_clear_persist, with options. A null pointer stands for the default ones.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_clear_persist_with(
    dst: *mut c_void,
    length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, unfenced } = unsafe { Checked::read(options, Operation::FillPersist)? };
        // SAFETY: passed on from the caller, who issues the fence if there is none.
        unsafe {
            if unfenced {
                options.fill_persist_unfenced(dst.cast(), length, 0).map_err(failed)?;
            } else {
                options.fill_persist_raw(dst.cast(), length, 0).map_err(failed)?;
            }
        }
        Ok(())
    })
}

/// Makes durable what ordinary stores wrote to `length` bytes from `start`, as pmem_persist does.
///
/// Async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_persist(start: *const c_void, length: usize) -> c_int {
    outcome(|| {
        range::check("start", start, length)?;
        // SAFETY: passed on from the caller.
        unsafe { Options::new().persist_raw(start.cast(), length) }.map_err(failed)
    })
}

/// As bulkmem_persist, with options. A null pointer stands for the default ones.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_persist_with(
    start: *const c_void,
    length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check("start", start, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, unfenced } = unsafe { Checked::read(options, Operation::Persist)? };
        // SAFETY: passed on from the caller, who issues the fence if there is none.
        unsafe {
            if unfenced {
                options.persist_unfenced(start.cast(), length).map_err(failed)?;
            } else {
                options.persist_raw(start.cast(), length).map_err(failed)?;
            }
        }
        Ok(())
    })
}

/// Sets `length` bytes from `dst` to zero. `hot_length` bytes from the offset `hot_offset` are touched next: they are cleared
/// last, by the calling thread, and stay in its cache; the others bypass it. Ignores the intent of the options and
/// BULKMEM_NO_FENCE. A null pointer stands for the default options.
///
/// Async-signal-safe, unless the options have threads, workers or a method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_clear_hot(
    dst: *mut c_void,
    length: usize,
    hot_offset: usize,
    hot_length: usize,
    options: *const COptions,
) -> c_int {
    slow_outcome(|| {
        range::check("dst", dst, length)?;
        // SAFETY: passed on from the caller.
        let Checked { options, .. } = unsafe { Checked::read(options, Operation::Clear)? };
        // One that wraps is out of bounds.
        let hot = hot_offset..hot_offset.saturating_add(hot_length);
        // SAFETY: passed on from the caller.
        unsafe { options.clear_hot_raw(dst.cast(), length, hot) }.map_err(failed)
    })
}

/// Fences: the operations with BULKMEM_NO_FENCE that this thread has called become visible before its later stores, and
/// those that persist are durable when it returns. SFENCE on x86-64.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_fence() {
    method::fence();
}

/// The code and text of an error, without names of the Rust interface.
#[cold]
fn failed(error: bulkmem::Error) -> Failed {
    match error {
        bulkmem::Error::NotDurable { .. } => fail(
            Error::NotDurable,
            format_args!(
                "nothing on this machine can write cache lines back: if caches survive a power failure, use \
                 BULKMEM_DURABILITY_CACHES_INCLUDED; else map the file and use msync"
            ),
        ),
        bulkmem::Error::HotOutOfBounds { .. } => fail(Error::Length, format_args!("{error}")),
        other => fail(Error::Internal, format_args!("{other}")),
    }
}
