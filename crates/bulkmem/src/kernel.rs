//! What one call works on, and the kernels that do the work.

use std::ops::Range;
use std::ptr;

use crate::c_functions;
use crate::error::Error;
use crate::method::{self, Code, CopyFn, Entry, FillFn, Ordering, Parameters, PersistFn};
use crate::operation::Operation;
use crate::policy::{Choice, PageAliasing};

/// The memory of one call.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// The range to write, or to write back.
    pub(crate) dst: *mut u8,
    /// The range to read; null if the operation has no source.
    src: *const u8,
    /// Bytes of each.
    pub(crate) length: usize,
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

    /// The 8 bytes that the operation writes at an offset.
    ///
    /// # Safety
    /// The source, if there is one, is valid for reads of 8 bytes there.
    #[inline(always)]
    pub(crate) unsafe fn word(&self, at: usize) -> u64 {
        if self.src.is_null() {
            return u64::from_ne_bytes([self.byte; 8]);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.src.wrapping_add(at).cast::<u64>().read_unaligned() }
    }

    /// True if the C library would copy slowly.
    #[inline(always)]
    pub(crate) fn aliases(&self, aliasing: &PageAliasing) -> bool {
        aliasing.applies(self.dst, self.src, self.length)
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
    /// Returns the entry for an operation of this type of kernel.
    fn entry(code: &Code, operation: Operation) -> Option<&Entry<Self>>;

    /// Works on one piece of the memory.
    ///
    /// # Safety
    /// As the kernel's type says, of the piece.
    unsafe fn call(self, memory: &Memory, piece: Range<usize>, parameters: &Parameters);
}

impl Kernel for FillFn {
    #[inline(always)]
    fn entry(code: &Code, operation: Operation) -> Option<&Entry<FillFn>> {
        match operation {
            Operation::Clear => code.clear.as_ref(),
            Operation::Fill => code.fill.as_ref(),
            Operation::FillPersist => code.fill_persist.as_ref(),
            _ => None,
        }
    }

    #[inline(always)]
    unsafe fn call(self, memory: &Memory, piece: Range<usize>, parameters: &Parameters) {
        // SAFETY: passed on from the caller.
        unsafe { self(memory.dst.wrapping_add(piece.start), piece.len(), memory.byte, parameters) }
    }
}

impl Kernel for CopyFn {
    #[inline(always)]
    fn entry(code: &Code, operation: Operation) -> Option<&Entry<CopyFn>> {
        match operation {
            Operation::Copy => code.copy.as_ref(),
            Operation::CopyPersist => code.copy_persist.as_ref(),
            _ => None,
        }
    }

    #[inline(always)]
    unsafe fn call(self, memory: &Memory, piece: Range<usize>, parameters: &Parameters) {
        let (dst, src) = (memory.dst.wrapping_add(piece.start), memory.src.wrapping_add(piece.start));
        // SAFETY: passed on from the caller.
        unsafe { self(dst, src, piece.len(), parameters) }
    }
}

impl Kernel for PersistFn {
    #[inline(always)]
    fn entry(code: &Code, operation: Operation) -> Option<&Entry<PersistFn>> {
        if operation == Operation::Persist { code.persist.as_ref() } else { None }
    }

    #[inline(always)]
    unsafe fn call(self, memory: &Memory, piece: Range<usize>, parameters: &Parameters) {
        // SAFETY: passed on from the caller.
        unsafe { self(memory.dst.wrapping_add(piece.start), piece.len(), parameters) }
    }
}

/// A kernel with its parameters. This machine can run it, and it takes the parameters.
#[derive(Clone, Copy)]
pub(crate) struct Step<'c, K: 'static> {
    pub(crate) entry: &'c Entry<K>,
    pub(crate) parameters: &'c Parameters,
    /// True if the unfenced kernel needs a fence after it.
    pub(crate) weak: bool,
}

impl<'c, K: Kernel> Step<'c, K> {
    /// The choice's entry for an operation; `None` if its method does not support the operation.
    #[inline(always)]
    pub(crate) fn new(choice: &'c Choice, operation: Operation) -> Option<Step<'c, K>> {
        let entry = K::entry(&choice.method.code, operation)?;
        let weak = choice.method.ordering == Ordering::Weak;
        Some(Step { entry, parameters: &choice.parameters, weak })
    }

    /// True if it is the C library's function.
    #[inline(always)]
    pub(crate) fn is_c_librarys(&self, operation: Operation) -> bool {
        K::entry(&method::c_library().code, operation).is_some_and(|entry| ptr::eq(entry, self.entry))
    }

    /// Works on a piece, without a fence.
    ///
    /// # Safety
    /// As the kernel's type says, of the piece, but for what [`Step`] promises.
    #[inline(always)]
    pub(crate) unsafe fn call(&self, memory: &Memory, piece: Range<usize>) {
        // SAFETY: passed on from the caller.
        unsafe { self.entry.unfenced.call(memory, piece, self.parameters) }
    }

    /// Works on the whole memory, and fences.
    ///
    /// # Safety
    /// As [`Step::call`], of the whole memory.
    #[inline(always)]
    pub(crate) unsafe fn call_and_fence(&self, memory: Memory) {
        // SAFETY: passed on from the caller.
        unsafe { self.call(&memory, 0..memory.length) }
        method::fence();
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
