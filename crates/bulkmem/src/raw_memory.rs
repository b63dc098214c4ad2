//! Operations on memory that others may read or write concurrently: a guest's memory, memory shared with another process,
//! memory that a device writes.
//!
//! A Rust reference promises that no other thread or device writes the bytes (`&[u8]`), or even reads them (`&mut [u8]`).
//! For such memory that is not true, and forming a reference is undefined behavior even if no race occurs. So these
//! operations take pointers:
//! [`Options::clear_raw`], [`Options::fill_raw`], [`Options::copy_raw`], [`Options::copy_persist_raw`],
//! [`Options::fill_persist_raw`], [`Options::persist_raw`], [`Options::clear_hot_raw`].
//!
//! # Rules
//!
//! 1. **Keep the mapping alive.** The range must stay mapped, and writable if it is written, until the call returns. If
//!    the mapping can shrink (a file that another process truncates), the access raises SIGBUS as any access would.
//! 2. **Form no reference to the range** while others may write it, neither before nor after the call. Read results
//!    through volatile or atomic accesses, or copy them out with [`Options::copy_raw`] first.
//! 3. **Check what you copied out, not the original.** A guest can change a length or an index after you checked it.
//!    Copy the bytes to private memory once, and validate the copy.
//! 4. **Expect tearing.** Bytes that change during a copy are copied as they were at some moment, each byte
//!    independently. No access width is guaranteed, so these operations are no substitute for atomic loads and stores of
//!    flags and indices, nor for accesses to device registers.
//! 5. **Expect repeated and unordered stores.** Within a call, stores are in no particular order, and a byte may be
//!    written more than once. If the source of a copy changes during the call, the values may differ; the last one stays.
//!    Others may see any mixture of old and new bytes until the call returns.
//! 6. **Publish after the call.** Every raw operation ends with a fence (SFENCE on x86-64), on every thread that took
//!    part. A Release store after the call, by the caller, publishes the bytes: a thread that loads the flag with
//!    Acquire sees them.
//! 7. **Subscribe before the call.** Before you copy bytes that another thread published, load its flag with Acquire.
//!    Methods with non-temporal loads begin with MFENCE, so that they do not read ahead of that load.
//! 8. **Do not overlap persisting copies.** [`Options::copy_raw`] accepts ranges that overlap, like `memmove`;
//!    [`Options::copy_persist_raw`] returns [`Error::Overlap`].
//! 9. **Pointers may be null or dangling only if the length is 0**, and ranges must not wrap around the address space.
//!
//! The accesses are made by inline assembly, volatile operations or the C library, so the compiler can neither remove nor
//! reorder them as it may with ordinary accesses. For concurrent access the guarantees are those of volatile accesses, as vm-memory
//! documents them for its `VolatileSlice`.
//!
//! ```
//! use bulkmem::{Intent, Options};
//!
//! // Stands for a guest's memory, which other threads access at any time.
//! let guest: *mut u8 = Box::into_raw(vec![1_u8; 4096].into_boxed_slice()).cast();
//! let mut header = [0; 16];
//! // SAFETY: 4096 bytes from `guest` are mapped and writable; `header` is private and apart.
//! unsafe {
//!     Options::new().copy_raw(header.as_mut_ptr(), guest, header.len()); // validate `header`, not the guest's bytes
//!     Options::new().intent(Intent::Stream).clear_raw(guest, 4096);
//! }
//! assert_eq!(header, [1; 16]);
//! # unsafe { drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(guest, 4096))) };
//! ```

use std::ops::Range;

use crate::error::Error;
use crate::kernel::Memory;
use crate::machine::CACHE_LINE as LINE;
use crate::method;
use crate::operation::{Intent, Operation};
use crate::options::Options;
use crate::short_calls::{COPY_PERSIST, FILL_PERSIST, PERSIST};
use crate::threads::Threads;

impl Options<'_> {
    /// Sets `length` bytes from `dst` to zero. Others may access them concurrently; see [`raw_memory`](crate::raw_memory)
    /// for the rules. Ends with a fence.
    ///
    /// # Safety
    /// `dst..dst+length` is mapped and writable for the duration of the call and does not wrap around the address space.
    /// If `length` is 0, `dst` may be any pointer.
    #[inline(always)]
    pub unsafe fn clear_raw(&self, dst: *mut u8, length: usize) {
        let plan = self.plan_fill(Operation::Clear, length).always_fenced();
        // SAFETY: passed on from the caller.
        unsafe { plan.fenced(Memory::filled(dst, length, 0)) }
    }

    /// Sets `length` bytes from `dst` to `byte`. Others may access them concurrently; see
    /// [`raw_memory`](crate::raw_memory) for the rules. Ends with a fence.
    ///
    /// # Safety
    /// As [`Options::clear_raw`].
    #[inline(always)]
    pub unsafe fn fill_raw(&self, dst: *mut u8, length: usize, byte: u8) {
        let plan = self.plan_fill(Operation::Fill, length).always_fenced();
        // SAFETY: passed on from the caller.
        unsafe { plan.fenced(Memory::filled(dst, length, byte)) }
    }

    /// Copies `length` bytes from `src` to `dst`. Others may access both ranges concurrently; see
    /// [`raw_memory`](crate::raw_memory) for the rules. Ends with a fence.
    ///
    /// If the ranges overlap, the calling thread copies them with the C library's `memmove`.
    ///
    /// # Safety
    /// `src..src+length` is mapped and readable and `dst..dst+length` mapped and writable for the duration of the call,
    /// and neither wraps around the address space. If `length` is 0, both may be any pointer.
    #[inline(always)]
    pub unsafe fn copy_raw(&self, dst: *mut u8, src: *const u8, length: usize) {
        let memory = Memory::copied(dst, src, length);
        if memory.overlaps() {
            // SAFETY: passed on from the caller.
            unsafe { memory.copy_overlapping() }
        } else {
            // SAFETY: passed on from the caller, and they do not overlap.
            unsafe { self.plan_copy(&memory).always_fenced().fenced(memory) }
        }
    }

    /// Copies `length` bytes from `src` to `dst` and makes them durable; see [`copy_persist`](crate::copy_persist). Others
    /// may access both ranges concurrently; see [`raw_memory`](crate::raw_memory) for the rules.
    ///
    /// # Errors
    /// [`Error::Overlap`] if the ranges overlap; [`Error::NotDurable`] on an architecture without instructions for it.
    /// Nothing is written then.
    ///
    /// # Safety
    /// As [`Options::copy_raw`].
    #[inline(always)]
    pub unsafe fn copy_persist_raw(&self, dst: *mut u8, src: *const u8, length: usize) -> Result<(), Error> {
        let memory = Memory::copied(dst, src, length);
        if memory.overlaps() {
            return Err(Error::Overlap { destination: dst.addr(), source_address: src.addr(), length });
        }
        // SAFETY: passed on from the caller, and they do not overlap.
        unsafe {
            match self.short(&COPY_PERSIST, length) {
                Some(short) => short.call_and_fence(memory),
                None => self.plan_copy_persist(&memory)?.always_fenced().fenced(memory),
            }
        }
        Ok(())
    }

    /// Sets `length` bytes from `dst` to `byte` and makes them durable; see [`fill_persist`](crate::fill_persist). Others
    /// may access them concurrently; see [`raw_memory`](crate::raw_memory) for the rules.
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it. Nothing is written then.
    ///
    /// # Safety
    /// As [`Options::clear_raw`].
    #[inline(always)]
    pub unsafe fn fill_persist_raw(&self, dst: *mut u8, length: usize, byte: u8) -> Result<(), Error> {
        let memory = Memory::filled(dst, length, byte);
        // SAFETY: passed on from the caller.
        unsafe {
            match self.short(&FILL_PERSIST, length) {
                Some(short) => short.call_and_fence(memory),
                None => self.plan_fill_persist(length)?.always_fenced().fenced(memory),
            }
        }
        Ok(())
    }

    /// Makes durable what was stored to `length` bytes from `start`; see [`persist`](crate::persist). Others may access
    /// them concurrently; see [`raw_memory`](crate::raw_memory) for the rules.
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    ///
    /// # Safety
    /// `start..start+length` is mapped and readable for the duration of the call and does not wrap around the address
    /// space. If `length` is 0, `start` may be any pointer.
    #[inline(always)]
    pub unsafe fn persist_raw(&self, start: *const u8, length: usize) -> Result<(), Error> {
        let memory = Memory::written_back(start, length);
        // SAFETY: passed on from the caller.
        unsafe {
            match self.short(&PERSIST, length) {
                Some(short) => short.call_and_fence(memory),
                None => match self.plan_persist(length)? {
                    Some(plan) => plan.always_fenced().fenced(memory),
                    None => method::fence(),
                },
            }
        }
        Ok(())
    }

    /// Sets `length` bytes from `dst` to zero, of which the offsets `hot` are touched next; see [`Options::clear_hot`].
    /// Others may access them concurrently; see [`raw_memory`](crate::raw_memory) for the rules. Ends with a fence.
    ///
    /// # Errors
    /// [`Error::HotOutOfBounds`] if `hot` is not within `0..length`. Nothing is written then.
    ///
    /// # Safety
    /// As [`Options::clear_raw`].
    pub unsafe fn clear_hot_raw(&self, dst: *mut u8, length: usize, hot: Range<usize>) -> Result<(), Error> {
        if hot.start > hot.end || hot.end > length {
            return Err(Error::HotOutOfBounds { hot, length });
        }
        let around = self.intent(Intent::Stream).total_len(self.total_len.max(length));
        if hot.is_empty() {
            // SAFETY: passed on from the caller.
            unsafe { around.clear_raw(dst, length) }
            return Ok(());
        }
        let address = dst.addr();
        let start = hot.start - hot.start.min((address + hot.start) % LINE);
        let end = length.min((address + hot.end).next_multiple_of(LINE) - address);
        // A look might bypass the cache.
        let within = self.intent(Intent::Reuse).look(false).total_len(0).threads(Threads::One);
        // SAFETY: start <= end <= length, and the caller vouches for the whole.
        unsafe {
            around.clear_raw(dst, start);
            around.clear_raw(dst.wrapping_add(end), length - end);
            within.clear_raw(dst.wrapping_add(start), end - start);
        }
        Ok(())
    }
}
