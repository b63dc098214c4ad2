//! The oracle: what memory must hold after a call, computed a byte at a time in plain Rust, and compared with what
//! it does hold. Every byte between the guards is compared, not only the destination's.

use std::fmt;
use std::ops::Range;

use bulkmem::Operation;
use bulkmem::method;

use crate::case::{self, Case};
use crate::guard::{Guarded, LINE};

/// Memory that a case did not leave as it must.
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

/// A destination and a source between guards, with what they must hold.
#[derive(Debug)]
pub struct Oracle {
    destination: Guarded,
    source: Guarded,
    /// What the destination holds outside a case's range: no byte a case writes passes for one of these unseen.
    canaries: Vec<u8>,
    /// What the destination must hold after the call.
    expected: Vec<u8>,
    /// What the source holds, always.
    source_bytes: Vec<u8>,
}

/// Bytes that repeat at no power of two.
fn noise(len: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        // xorshift64: cheap, and its top byte never settles into a short cycle.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push((state >> 56) as u8);
    }
    bytes
}

impl Oracle {
    /// For cases of up to `most` bytes.
    pub fn new(most: usize) -> Oracle {
        let mut destination = Guarded::new(most + LINE);
        let mut source = Guarded::new(most + LINE);
        let canaries = noise(destination.len(), 0x9e37_79b9_7f4a_7c15);
        let source_bytes = noise(source.len(), 0xd1b5_4a32_d192_ed03);
        destination.bytes_mut().copy_from_slice(&canaries);
        source.bytes_mut().copy_from_slice(&source_bytes);
        Oracle { destination, source, expected: canaries.clone(), canaries, source_bytes }
    }

    /// Calls the case's method and compares all memory with what it must hold.
    ///
    /// # Errors
    /// The first byte that is wrong.
    ///
    /// # Panics
    /// Where the case does not fit this oracle, the method lacks the operation or the parameters do not fit its
    /// tunables. The caller sees to it that this machine can run the method ([`crate::walk::missing`]).
    pub fn check(&mut self, case: &Case) -> Result<(), Mismatch> {
        self.check_by(case, |call| call())
    }

    /// The same, with the call made by `by`, which is to make it once.
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
            // No byte holds beforehand what it must hold afterwards: one left out is always seen.
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
            // SAFETY: `place` answered ranges within the two mappings, which are ours, distinct and initialized;
            // `&mut self` keeps other accesses out. The rest the caller of `check` sees to.
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
