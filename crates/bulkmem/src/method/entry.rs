//! The functions behind the method table.

use super::parameters::{Parameters, Tunable};

/// Writes `byte` to `len` bytes from `dst`. The functions of clear entries only ever receive 0.
///
/// # Safety
/// `dst..dst+len` is valid for writes, the instructions that the method requires are all enabled on this machine, and
/// `parameters` are within the ranges of the entry's tunables.
pub type FillFn = unsafe fn(dst: *mut u8, len: usize, byte: u8, parameters: &Parameters);

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// As [`FillFn`]. Also, `src..src+len` is valid for reads and does not overlap the destination.
pub type CopyFn = unsafe fn(dst: *mut u8, src: *const u8, len: usize, parameters: &Parameters);

/// Writes the cache lines that hold `start..start+len` back to memory.
///
/// # Safety
/// As [`FillFn`], but the range only has to be valid for reads.
pub type PersistFn = unsafe fn(start: *const u8, len: usize, parameters: &Parameters);

/// A method's code for one operation.
#[derive(Clone, Copy, Debug)]
pub struct Entry<F: 'static> {
    /// Does not fence at its end. If the method is weakly ordered, the caller must fence.
    pub unfenced: F,
    /// Ends with a fence if the method is weakly ordered.
    pub fenced: F,
    /// Tunables of the functions.
    pub tunables: &'static [Tunable],
}

/// A method's code, by operation.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// Clear. Receives the byte 0.
    pub clear: Option<Entry<FillFn>>,
    /// Fill with any byte.
    pub fill: Option<Entry<FillFn>>,
    /// Copy.
    pub copy: Option<Entry<CopyFn>>,
    /// Fill. The bytes are durable after a fence.
    pub fill_persist: Option<Entry<FillFn>>,
    /// Copy. The bytes are durable after a fence.
    pub copy_persist: Option<Entry<CopyFn>>,
    /// Write back. The bytes are durable after a fence.
    pub persist: Option<Entry<PersistFn>>,
}

impl Code {
    /// Supports no operation. Methods add their entries to it.
    pub(crate) const NONE: Code =
        Code { clear: None, fill: None, copy: None, fill_persist: None, copy_persist: None, persist: None };
}
