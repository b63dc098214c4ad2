//! The operations on pointers, with the contracts of `memset` and `memcpy`: for a C interface or a replacement of those
//! functions.
//!
//! Unlike a slice, the memory may be uninitialized. Unlike the operations of [`raw_memory`](crate::raw_memory), these
//! expect that no other thread or device accesses it at the same time.
//!
//! The unfenced operations of [`Options`] leave the fence to the caller, as libpmem's `pmem_memcpy_nodrain` does: until
//! the same thread has called [`method::fence`], other threads may see its later stores before these, and the bytes are
//! not durable. Operations on several threads fence on each thread before they return. [`fence_scope`](crate::fence_scope)
//! is the form that the compiler checks.

use crate::c_functions;
use crate::carried::Stream;
use crate::error::Error;
use crate::kernel::{Memory, Step};
use crate::look_switch;
use crate::machine;
use crate::method::{self, CopyFn};
use crate::operation::{Intent, Operation};
use crate::options::Options;
use crate::plan::Plan;
use crate::policy::{self, PageAliasing, Rules};
use crate::short_calls::{self, COPY_PERSIST, FILL_PERSIST, PERSIST};

/// Sets `length` bytes from `dst` to zero; see [`clear`](crate::clear).
///
/// # Safety
/// `dst..dst+length` is valid for writes. If `length` is 0, `dst` may be any pointer.
#[inline]
pub unsafe fn clear(dst: *mut u8, length: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        if short_calls::use_c_library(Operation::Clear, length) {
            c_functions::fill(dst, 0, length);
        } else {
            clear_by_policy(dst, length);
        }
    }
}

/// Sets `length` bytes from `dst` to `byte`; see [`fill`](crate::fill).
///
/// # Safety
/// As [`clear`].
#[inline]
pub unsafe fn fill(dst: *mut u8, length: usize, byte: u8) {
    // SAFETY: passed on from the caller.
    unsafe {
        if short_calls::use_c_library(Operation::Fill, length) {
            c_functions::fill(dst, byte, length);
        } else {
            fill_by_policy(dst, length, byte);
        }
    }
}

/// Copies `length` bytes from `src` to `dst`; see [`copy`](crate::copy).
///
/// # Safety
/// `src..src+length` is valid for reads and `dst..dst+length` for writes, and they do not overlap. If `length` is 0, both
/// may be any pointer.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, length: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        if short_calls::use_c_library(Operation::Copy, length) {
            c_functions::copy(dst, src, length);
        } else {
            copy_by_policy(dst, src, length);
        }
    }
}

/// As [`clear`], with options. Unlike [`Options::clear_raw`], it ends with a fence only if the method needs one: no other thread accesses the
/// memory during the call.
///
/// # Safety
/// As [`clear`].
#[inline(always)]
pub unsafe fn clear_with(options: &Options<'_>, dst: *mut u8, length: usize) {
    let memory = Memory::filled(dst, length, 0);
    // SAFETY: passed on from the caller.
    unsafe { options.plan_fill(Operation::Clear, length).fenced(memory) }
}

/// As [`fill`], with options; see [`clear_with`].
///
/// # Safety
/// As [`clear`].
#[inline(always)]
pub unsafe fn fill_with(options: &Options<'_>, dst: *mut u8, length: usize, byte: u8) {
    let memory = Memory::filled(dst, length, byte);
    // SAFETY: passed on from the caller.
    unsafe { options.plan_fill(Operation::Fill, length).fenced(memory) }
}

/// As [`copy`], with options; see [`clear_with`].
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn copy_with(options: &Options<'_>, dst: *mut u8, src: *const u8, length: usize) {
    let memory = Memory::copied(dst, src, length);
    // SAFETY: passed on from the caller.
    unsafe { options.plan_copy(&memory).fenced(memory) }
}

/// Which calls a replacement of `memset` or `memcpy` leaves to the C library, and which it executes by [`Options`]; lengths in bytes,
/// `usize::MAX` if no call is so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Shorter calls are the C library's.
    pub policy_from: usize,
    /// Calls from there on have the default intent; shorter ones, [`Intent::Reuse`].
    pub reused_below: usize,
}

/// Returns the thresholds for operations, by a policy that was measured on this machine or a variable that forces a method. Without
/// either, all calls are the C library's: the defaults do not count.
///
/// If nothing is `given`, the program is expected to use next what it wrote. Calls from a quarter of the last-level cache on have the
/// default intent, because little of what they wrote is still cached then. Shorter ones are by the policy if a look pays although the
/// bytes are used next, or with `populate` ([`Options::populate`]) if looks tell memory whose pages are not mapped yet. If a length is
/// `given`, all calls from there on have the default intent, but where another method than the C library is forced, from
/// [`SHORTEST_BY_POLICY`] on.
///
/// Loads the policy as the first operation does: without allocating or waiting. While another thread loads it, all calls are the C
/// library's.
pub fn thresholds<const N: usize>(
    operations: [Operation; N],
    given: Option<usize>,
    populate: bool,
) -> [Thresholds; N] {
    let Some(rules) = policy::rules() else {
        return [Thresholds { policy_from: usize::MAX, reused_below: usize::MAX }; N];
    };
    // Once for all: reading the sizes of the caches takes microseconds in a virtual machine.
    let least = given.unwrap_or_else(quarter_of_last_level_cache);
    operations.map(|operation| {
        let full = rules.chosen_from(operation, least).max(SHORTEST_BY_POLICY);
        let looks_from = |intent| {
            if look_switch::is_on() { rules.looks_from(operation, intent) } else { usize::MAX }
        };
        let reused = match given {
            Some(_) => usize::MAX,
            None if populate && rules.finds_unmapped(operation) => {
                looks_from(Intent::Reuse).min(looks_from(Intent::Throughput).max(SHORTEST_MAPPING))
            }
            None => looks_from(Intent::Reuse),
        };
        Thresholds { policy_from: full.min(reused.max(SHORTEST_BY_POLICY)), reused_below: full }
    })
}

/// True if the calling thread's clear or fill of that length [follows](crate::look) the verdict of earlier looks, by the C library's
/// function; it counts as a call then. For a replacement of `memset`, which reads little else before it calls that function: what a call
/// reads otherwise has often left the second-level cache. The call is not shorter than its [threshold](Thresholds::policy_from).
#[inline(always)]
pub fn set_follows_c_library(operation: Operation, length: usize) -> bool {
    look_switch::is_on() && Stream::of_this_thread(operation).follow_by_c_library(length)
}

/// As [`set_follows_c_library`], for a replacement of `memcpy`. False if [page aliasing](PageAliasing) may make that function slow.
#[inline(always)]
pub fn copy_follows_c_library(dst: *const u8, src: *const u8, length: usize) -> bool {
    !PageAliasing::is_between(dst, src) && set_follows_c_library(Operation::Copy, length)
}

/// Returns the length in bytes from which a copy may be one that [`copy_if_aliased`] executes; `usize::MAX` if no copy is.
/// Loads the policy as [`thresholds`] does.
pub fn aliased_from() -> usize {
    policy::rules().and_then(Rules::aliasing).map_or(usize::MAX, |aliasing| aliasing.from)
}

/// Copies `length` bytes from `src` to `dst` by the policy's method for copies that [page aliasing](PageAliasing) makes slow
/// in the C library, if this is one of them. Returns false, and writes nothing, if it is not, if the policy has no such
/// method, or if a method is forced. For a replacement of `memcpy` that leaves other copies of that length to the C library.
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn copy_if_aliased(dst: *mut u8, src: *const u8, length: usize) -> bool {
    let aliasing = policy::rules().and_then(Rules::aliasing);
    let Some(aliasing) = aliasing.filter(|it| it.applies(dst, src, length)) else { return false };
    let plan = Step::new(&aliasing.choice, Operation::Copy).map(|step| Plan::<CopyFn>::new(step, 1, None));
    // SAFETY: passed on from the caller.
    plan.map(|plan| unsafe { plan.fenced(Memory::copied(dst, src, length)) }).is_some()
}

/// No calibrated policy chooses the method of a shorter clear, fill or copy of unknown intent, bytes: each is over before a
/// choice pays.
pub const SHORTEST_BY_POLICY: usize = 16 << 10;

/// Shorter calls do not look for memory without pages: the C library's malloc takes them from memory that is mapped already, and
/// longer ones from mappings of their own.
const SHORTEST_MAPPING: usize = 128 << 10;

/// Returns a quarter of the last-level cache of this processor, bytes. A shorter destination can still be cached when the
/// program reads it, next to what else it uses. Does not allocate.
pub fn quarter_of_last_level_cache() -> usize {
    machine::with_this(|_, caches| (caches().sane().l3 / 4) as usize)
}

/// Clears by the process-wide policy, and finds out for later calls which lengths go straight to the C library.
///
/// # Safety
/// As [`clear`].
#[inline(never)]
unsafe fn clear_by_policy(dst: *mut u8, length: usize) {
    short_calls::learn(Operation::Clear);
    // SAFETY: passed on from the caller.
    unsafe { clear_with(&Options::new(), dst, length) }
}

/// As [`clear_by_policy`], a fill.
///
/// # Safety
/// As [`clear`].
#[inline(never)]
unsafe fn fill_by_policy(dst: *mut u8, length: usize, byte: u8) {
    short_calls::learn(Operation::Fill);
    // SAFETY: passed on from the caller.
    unsafe { fill_with(&Options::new(), dst, length, byte) }
}

/// As [`clear_by_policy`], a copy.
///
/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_by_policy(dst: *mut u8, src: *const u8, length: usize) {
    short_calls::learn(Operation::Copy);
    // SAFETY: passed on from the caller.
    unsafe {
        if short_calls::use_c_library_unless_aliased(length) && !PageAliasing::is_between(dst, src) {
            c_functions::copy(dst, src, length);
        } else {
            copy_with(&Options::new(), dst, src, length);
        }
    }
}

/// Copies and makes the bytes durable; see [`copy_persist`](crate::copy_persist).
///
/// # Errors
/// As [`copy_persist`](crate::copy_persist).
///
/// # Safety
/// As [`copy`].
#[inline]
pub(crate) unsafe fn copy_persist(dst: *mut u8, src: *const u8, length: usize) -> Result<(), Error> {
    // SAFETY: passed on from the caller.
    unsafe {
        match COPY_PERSIST.of(length) {
            Some(short) => short.call_and_fence(Memory::copied(dst, src, length)),
            None => copy_persist_by_policy(dst, src, length)?,
        }
    }
    Ok(())
}

/// Fills and makes the bytes durable; see [`fill_persist`](crate::fill_persist).
///
/// # Errors
/// As [`fill_persist`](crate::fill_persist).
///
/// # Safety
/// As [`clear`].
#[inline]
pub(crate) unsafe fn fill_persist(dst: *mut u8, length: usize, byte: u8) -> Result<(), Error> {
    // SAFETY: passed on from the caller.
    unsafe {
        match FILL_PERSIST.of(length) {
            Some(short) => short.call_and_fence(Memory::filled(dst, length, byte)),
            None => fill_persist_by_policy(dst, length, byte)?,
        }
    }
    Ok(())
}

/// Makes bytes durable; see [`persist`](crate::persist).
///
/// # Errors
/// As [`persist`](crate::persist).
///
/// # Safety
/// As [`Options::persist_unfenced`].
#[inline]
pub(crate) unsafe fn persist(start: *const u8, length: usize) -> Result<(), Error> {
    // SAFETY: passed on from the caller.
    unsafe {
        match PERSIST.of(length) {
            Some(short) => short.call_and_fence(Memory::written_back(start, length)),
            None => persist_by_policy(start, length)?,
        }
    }
    Ok(())
}

/// As [`copy_persist`], a call that is not short. Its parameters are numbers and not a `Memory`: a load that the processor
/// cannot forward from stores of other sizes waits until all stores before it have left, also those that bypass the cache
/// (docs/learned.md).
///
/// # Errors
/// As [`copy_persist`](crate::copy_persist).
///
/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_persist_by_policy(dst: *mut u8, src: *const u8, length: usize) -> Result<(), Error> {
    let memory = Memory::copied(dst, src, length);
    // SAFETY: passed on from the caller.
    unsafe { Options::new().plan_copy_persist(&memory)?.always_fenced().fenced(memory) }
    Ok(())
}

/// As [`copy_persist_by_policy`], a fill.
///
/// # Errors
/// As [`fill_persist`](crate::fill_persist).
///
/// # Safety
/// As [`clear`].
#[inline(never)]
unsafe fn fill_persist_by_policy(dst: *mut u8, length: usize, byte: u8) -> Result<(), Error> {
    let memory = Memory::filled(dst, length, byte);
    // SAFETY: passed on from the caller.
    unsafe { Options::new().plan_fill_persist(length)?.always_fenced().fenced(memory) }
    Ok(())
}

/// As [`copy_persist_by_policy`], of bytes that were stored before.
///
/// # Errors
/// As [`persist`](crate::persist).
///
/// # Safety
/// As [`Options::persist_unfenced`].
#[inline(never)]
unsafe fn persist_by_policy(start: *const u8, length: usize) -> Result<(), Error> {
    match Options::new().plan_persist(length)? {
        // SAFETY: passed on from the caller.
        Some(plan) => unsafe { plan.always_fenced().fenced(Memory::written_back(start, length)) },
        None => method::fence(),
    }
    Ok(())
}

impl Options<'_> {
    /// Sets `length` bytes from `dst` to zero, without a fence; see [`pointers`](crate::pointers).
    ///
    /// # Safety
    /// As [`clear`]. The caller fences before the bytes are published or have to be durable.
    pub unsafe fn clear_unfenced(&self, dst: *mut u8, length: usize) {
        let options = self.deferred();
        // SAFETY: passed on from the caller.
        _ = unsafe { options.plan_fill(Operation::Clear, length).unfenced(Memory::filled(dst, length, 0)) };
    }

    /// Sets `length` bytes from `dst` to `byte`, without a fence; see [`pointers`](crate::pointers).
    ///
    /// # Safety
    /// As [`Options::clear_unfenced`].
    pub unsafe fn fill_unfenced(&self, dst: *mut u8, length: usize, byte: u8) {
        let options = self.deferred();
        // SAFETY: passed on from the caller.
        _ = unsafe { options.plan_fill(Operation::Fill, length).unfenced(Memory::filled(dst, length, byte)) };
    }

    /// Copies `length` bytes from `src` to `dst`, without a fence; see [`pointers`](crate::pointers).
    ///
    /// # Safety
    /// As [`copy`]. The caller fences before the bytes are published or have to be durable.
    pub unsafe fn copy_unfenced(&self, dst: *mut u8, src: *const u8, length: usize) {
        let options = self.deferred();
        let memory = Memory::copied(dst, src, length);
        // SAFETY: passed on from the caller.
        _ = unsafe { options.plan_copy(&memory).unfenced(memory) };
    }

    /// Copies `length` bytes from `src` to `dst`, which are durable after a fence; see [`pointers`](crate::pointers).
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it. Nothing is written then.
    ///
    /// # Safety
    /// As [`Options::copy_unfenced`].
    pub unsafe fn copy_persist_unfenced(
        &self,
        dst: *mut u8,
        src: *const u8,
        length: usize,
    ) -> Result<(), Error> {
        let memory = Memory::copied(dst, src, length);
        // SAFETY: passed on from the caller.
        unsafe {
            match self.short(&COPY_PERSIST, length) {
                Some(short) => short.call(&memory, 0..length),
                None => _ = self.deferred().plan_copy_persist(&memory)?.unfenced(memory),
            }
        }
        Ok(())
    }

    /// Sets `length` bytes from `dst` to `byte`, which are durable after a fence; see [`pointers`](crate::pointers).
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it. Nothing is written then.
    ///
    /// # Safety
    /// As [`Options::clear_unfenced`].
    pub unsafe fn fill_persist_unfenced(&self, dst: *mut u8, length: usize, byte: u8) -> Result<(), Error> {
        let memory = Memory::filled(dst, length, byte);
        // SAFETY: passed on from the caller.
        unsafe {
            match self.short(&FILL_PERSIST, length) {
                Some(short) => short.call(&memory, 0..length),
                None => _ = self.deferred().plan_fill_persist(length)?.unfenced(memory),
            }
        }
        Ok(())
    }

    /// Writes back what was stored to `length` bytes from `start`, which are durable after a fence; see
    /// [`pointers`](crate::pointers).
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    ///
    /// # Safety
    /// `start..start+length` is valid for reads. If `length` is 0, `start` may be any pointer.
    pub unsafe fn persist_unfenced(&self, start: *const u8, length: usize) -> Result<(), Error> {
        let memory = Memory::written_back(start, length);
        // SAFETY: passed on from the caller.
        unsafe {
            match self.short(&PERSIST, length) {
                Some(short) => short.call(&memory, 0..length),
                None => _ = self.deferred().plan_persist(length)?.map(|plan| plan.unfenced(memory)),
            }
        }
        Ok(())
    }
}
