//! How one call is executed: a kernel, its parameters, the number of threads, and the fence.

use std::ops::Range;

use crate::c_functions;
use crate::error::Error;
use crate::method::{self, CopyFn, Entry, FillFn, Ordering, Parameters, PersistFn};
use crate::policy::Choice;
use crate::threads;

/// The memory of one call.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// The range to write, or to write back.
    dst: *mut u8,
    /// The range to read; null if the operation has no source.
    src: *const u8,
    /// Bytes of each.
    length: usize,
    /// The byte to write if there is no source.
    byte: u8,
}

impl Memory {
    /// The memory of a fill.
    #[inline(always)]
    pub(crate) fn filled(dst: *mut u8, length: usize, byte: u8) -> Memory {
        Memory { dst, src: std::ptr::null(), length, byte }
    }

    /// The memory of a copy between slices, which are valid and do not overlap.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    #[inline(always)]
    pub(crate) fn pair(dst: &mut [u8], src: &[u8]) -> Result<Memory, Error> {
        check_lengths(dst, src)?;
        Ok(Memory::copied(dst.as_mut_ptr(), src.as_ptr(), dst.len()))
    }

    /// The memory of a copy between pointers, unchecked.
    #[inline(always)]
    pub(crate) fn copied(dst: *mut u8, src: *const u8, length: usize) -> Memory {
        Memory { dst, src, length, byte: 0 }
    }

    /// The memory of a persist.
    #[inline(always)]
    pub(crate) fn written_back(start: *const u8, length: usize) -> Memory {
        Memory { dst: start.cast_mut(), src: std::ptr::null(), length, byte: 0 }
    }

    /// Copies between ranges that may overlap, as memmove, and fences.
    ///
    /// # Safety
    /// The source is valid for reads and the destination for writes.
    pub(crate) unsafe fn copy_overlapping(self) {
        // SAFETY: passed on from the caller.
        unsafe { c_functions::copy_overlapping(self.dst, self.src, self.length) }
        method::fence();
    }

    /// True if the ranges of a copy share a byte.
    #[inline(always)]
    pub(crate) fn overlaps(&self) -> bool {
        self.dst.addr().abs_diff(self.src.addr()) < self.length
    }
}

/// # Errors
/// [`Error::LengthMismatch`].
#[inline(always)]
pub(crate) fn check_lengths(dst: &[u8], src: &[u8]) -> Result<(), Error> {
    if dst.len() != src.len() {
        return Err(Error::LengthMismatch { destination: dst.len(), source_length: src.len() });
    }
    Ok(())
}

// SAFETY: these are addresses only. The caller of a plan guarantees that several threads may access the pieces.
unsafe impl Sync for Memory {}

/// The three types of kernels, called alike.
pub(crate) trait Kernel: Copy + Sync + 'static {
    /// Works on one piece of the memory.
    ///
    /// # Safety
    /// As the kernel's type says, of the piece.
    unsafe fn call(self, memory: &Memory, piece: Range<usize>, parameters: &Parameters);
}

impl Kernel for FillFn {
    #[inline(always)]
    unsafe fn call(self, memory: &Memory, piece: Range<usize>, parameters: &Parameters) {
        // SAFETY: passed on from the caller.
        unsafe { self(memory.dst.wrapping_add(piece.start), piece.len(), memory.byte, parameters) }
    }
}

impl Kernel for CopyFn {
    #[inline(always)]
    unsafe fn call(self, memory: &Memory, piece: Range<usize>, parameters: &Parameters) {
        let (dst, src) = (memory.dst.wrapping_add(piece.start), memory.src.wrapping_add(piece.start));
        // SAFETY: passed on from the caller.
        unsafe { self(dst, src, piece.len(), parameters) }
    }
}

impl Kernel for PersistFn {
    #[inline(always)]
    unsafe fn call(self, memory: &Memory, piece: Range<usize>, parameters: &Parameters) {
        // SAFETY: passed on from the caller.
        unsafe { self(memory.dst.wrapping_add(piece.start), piece.len(), parameters) }
    }
}

/// How one call is executed. This machine can run the method, and the method takes the parameters.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'c, K: 'static> {
    entry: &'c Entry<K>,
    parameters: &'c Parameters,
    /// True if the unfenced kernel needs a fence after it.
    weak: bool,
    /// True if a fence is needed even after ordered stores: durability requires that every store has left the processor,
    /// and on write-combining memory ordinary stores are weakly ordered too.
    always: bool,
    workers: usize,
}

impl<'c, K: Kernel> Plan<'c, K> {
    /// A plan of an entry of the choice's method.
    #[inline(always)]
    pub(crate) fn new(entry: &'c Entry<K>, choice: &'c Choice, workers: usize) -> Plan<'c, K> {
        let weak = choice.method.ordering == Ordering::Weak;
        Plan { entry, parameters: &choice.parameters, weak, always: false, workers }
    }

    /// The same plan with a fence at its end for every method.
    #[inline(always)]
    pub(crate) fn always_fenced(self) -> Plan<'c, K> {
        Plan { weak: true, always: true, ..self }
    }

    /// Executes the plan. When it returns, each thread has fenced.
    ///
    /// # Safety
    /// As the kernel's type says, of the whole memory, but for what [`Plan`] promises.
    #[inline(always)]
    pub(crate) unsafe fn fenced(self, memory: Memory) {
        // SAFETY: passed on from the caller.
        unsafe {
            if self.workers <= 1 {
                self.piece(&memory, 0..memory.length);
            } else {
                self.on_threads(memory);
            }
        }
    }

    /// Not inlined, so that a call on one thread keeps everything in registers.
    ///
    /// # Safety
    /// As [`Plan::fenced`].
    #[cold]
    #[inline(never)]
    unsafe fn on_threads(self, memory: Memory) {
        let memory = &memory;
        // SAFETY: passed on from the caller; pieces do not overlap.
        let work = |piece| unsafe { self.piece(memory, piece) };
        threads::run(memory.dst.addr(), memory.length, self.workers, work);
    }

    /// # Safety
    /// As [`Plan::fenced`], of the piece.
    #[inline(always)]
    unsafe fn piece(self, memory: &Memory, piece: Range<usize>) {
        let kernel = if self.always { self.entry.unfenced } else { self.entry.fenced };
        // SAFETY: passed on from the caller.
        unsafe { kernel.call(memory, piece, self.parameters) }
        if self.always {
            method::fence();
        }
    }

    /// Executes the plan. Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As [`Plan::fenced`].
    #[inline(always)]
    #[must_use]
    pub(crate) unsafe fn unfenced(self, memory: Memory) -> bool {
        if self.workers > 1 {
            // No other thread's stores can be fenced from here.
            // SAFETY: passed on from the caller.
            unsafe { self.on_threads(memory) }
            return false;
        }
        // SAFETY: passed on from the caller.
        unsafe { self.entry.unfenced.call(&memory, 0..memory.length, self.parameters) }
        self.weak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_where_they_share_a_byte() {
        let overlap = |dst: usize, src: usize, length| {
            Memory::copied(std::ptr::without_provenance_mut(dst), std::ptr::without_provenance(src), length)
                .overlaps()
        };
        assert!(overlap(100, 100, 1));
        assert!(overlap(100, 109, 10));
        assert!(overlap(109, 100, 10));
        assert!(!overlap(100, 110, 10));
        assert!(!overlap(110, 100, 10));
        assert!(!overlap(100, 100, 0));
        assert!(!overlap(usize::MAX, 0, 10), "no range wraps around");
    }
}
