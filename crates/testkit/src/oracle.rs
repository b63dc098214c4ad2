//! The oracle computes in plain Rust, one byte at a time, what memory must hold after a call, and compares it with
//! what it holds. It compares every byte between the guard pages, not only those of the destination.

use std::fmt;
use std::ops::Range;

use bulkmem::Operation;
use bulkmem::method;

use crate::case::{self, Case};
use crate::guard::{Guarded, LINE};

/// Wrong bytes after a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    case: Case,
    what: &'static str,
    at: isize,
    expected: u8,
    found: u8,
    wrong: usize,
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { case, what, at, expected, found, wrong } = self;
        write!(
            f,
            "{case}: {what} byte {at}: expected {expected:#04x}, found {found:#04x} ({wrong} wrong in all)"
        )
    }
}

/// A destination and a source between guard pages, and their expected bytes.
#[derive(Debug)]
pub struct Oracle {
    destination: Guarded,
    source: Guarded,
    /// Bytes of the destination outside the range of a case, such that a byte written there is noticed.
    canaries: Vec<u8>,
    /// Expected bytes of the destination after the call.
    expected: Vec<u8>,
    /// Bytes of the source, which no call may change.
    source_bytes: Vec<u8>,
}

/// Returns pseudo-random bytes.
fn noise(len: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        // xorshift64: cheap, and its top byte has no short period.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push((state >> 56) as u8);
    }
    bytes
}

impl Oracle {
    /// Creates an oracle for cases of up to `most` bytes.
    pub fn new(most: usize) -> Oracle {
        let mut destination = Guarded::new(most + LINE);
        let mut source = Guarded::new(most + LINE);
        let canaries = noise(destination.len(), 0x9e37_79b9_7f4a_7c15);
        let source_bytes = noise(source.len(), 0xd1b5_4a32_d192_ed03);
        destination.bytes_mut().copy_from_slice(&canaries);
        source.bytes_mut().copy_from_slice(&source_bytes);
        Oracle { destination, source, expected: canaries.clone(), canaries, source_bytes }
    }

    /// Calls the function of the case and compares all bytes with the expected ones.
    ///
    /// The caller makes sure that this machine can run the method ([`crate::table::missing`]).
    ///
    /// # Errors
    /// The first wrong byte.
    ///
    /// # Panics
    /// If the case is longer than this oracle allows, or the method does not support the operation or does not take
    /// the parameters.
    pub fn check(&mut self, case: &Case) -> Result<(), Mismatch> {
        self.check_by(case, |call| call())
    }

    /// Like [`Oracle::check`], but lets `by` make the call, which it must do once.
    ///
    /// # Errors
    /// As [`Oracle::check`].
    ///
    /// # Panics
    /// As [`Oracle::check`].
    pub fn check_by(&mut self, case: &Case, by: impl FnOnce(&mut dyn FnMut())) -> Result<(), Mismatch> {
        let to = self.destination.place(case.place, case.offset, case.length);
        let from = self.source.place(case.place, case.source_offset, case.length);
        let new = &mut self.expected[to.clone()];
        match case.operation {
            Operation::Clear => new.fill(0),
            Operation::Fill | Operation::FillPersist => new.fill(case.byte),
            Operation::Copy | Operation::CopyPersist => new.copy_from_slice(&self.source_bytes[from.clone()]),
            Operation::Persist => {}
        }
        if case.operation != Operation::Persist {
            // Before the call, no byte has its expected value, so that a byte that is not written is noticed.
            let old = &mut self.destination.bytes_mut()[to.clone()];
            old.iter_mut().zip(&self.expected[to.clone()]).for_each(|(old, new)| *old = !new);
        }

        self.call(case, &to, &from, by);

        let result = compare(case, "destination", self.destination.bytes(), &self.expected, to.start)
            .and(compare(case, "source", self.source.bytes(), &self.source_bytes, from.start));
        if result.is_err() {
            self.destination.bytes_mut().copy_from_slice(&self.canaries);
            self.source.bytes_mut().copy_from_slice(&self.source_bytes);
            self.expected.copy_from_slice(&self.canaries);
        } else {
            self.destination.bytes_mut()[to.clone()].copy_from_slice(&self.canaries[to.clone()]);
            self.expected[to.clone()].copy_from_slice(&self.canaries[to]);
        }
        result
    }

    fn call(
        &mut self,
        case: &Case,
        to: &Range<usize>,
        from: &Range<usize>,
        by: impl FnOnce(&mut dyn FnMut()),
    ) {
        let destination = self.destination.addresses().start + to.start;
        let source = self.source.addresses().start + from.start;
        let reads = if case.has_source() { source..source + case.length } else { 0..0 };
        let (to, from) =
            (self.destination.as_ptr().wrapping_add(to.start), self.source.as_ptr().wrapping_add(from.start));
        let function = case.function();
        let mut call = || {
            // SAFETY: `place` returned ranges within the two mappings, which belong to `self`, do not overlap and are
            // initialized; `&mut self` excludes other accesses. The caller of `check` vouches for the instructions.
            unsafe { function.call(case, to, from) }
            if !case.fenced {
                method::fence();
            }
        };
        case::running(case, destination..destination + case.length, reads, || by(&mut call));
    }
}

fn compare(
    case: &Case,
    what: &'static str,
    found: &[u8],
    expected: &[u8],
    start: usize,
) -> Result<(), Mismatch> {
    if found == expected {
        return Ok(());
    }
    let mut wrong = found.iter().zip(expected).enumerate().filter(|(_, (found, expected))| found != expected);
    let (at, (found, expected)) = wrong.next().expect("the slices differ");
    Err(Mismatch {
        case: *case,
        what,
        at: at as isize - start as isize,
        expected: *expected,
        found: *found,
        wrong: 1 + wrong.count(),
    })
}
