//! Calls every public operation in each of its forms, next to guard pages.

use bulkmem::{Operation, Options};

use crate::guard::{Guarded, Place};

/// The byte that fills write.
const BYTE: u8 = 0xa5;
/// Every byte of the memory before a call.
const BEFORE: u8 = 0xee;

/// A form of the public operations.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// The methods of [`Options`] that take slices.
    Slice,
    /// Those that take pointers.
    Raw,
    /// Those of a fence scope.
    Scope,
}

/// Calls an operation. Fills use [`BYTE`].
fn call(options: &Options<'_>, operation: Operation, form: Form, dst: &mut [u8], src: &[u8]) {
    let (to, from, length) = (dst.as_mut_ptr(), src.as_ptr(), dst.len());
    // SAFETY: the slices are valid and do not overlap.
    unsafe {
        match (form, operation) {
            (Form::Slice, Operation::Clear) => options.clear(dst),
            (Form::Slice, Operation::Fill) => options.fill(dst, BYTE),
            (Form::Slice, Operation::Copy) => options.copy(dst, src).unwrap(),
            (Form::Slice, Operation::FillPersist) => options.fill_persist(dst, BYTE).unwrap(),
            (Form::Slice, Operation::CopyPersist) => options.copy_persist(dst, src).unwrap(),
            (Form::Slice, _) => options.persist(dst).unwrap(),
            (Form::Raw, Operation::Clear) => options.clear_raw(to, length),
            (Form::Raw, Operation::Fill) => options.fill_raw(to, length, BYTE),
            (Form::Raw, Operation::Copy) => options.copy_raw(to, from, length),
            (Form::Raw, Operation::FillPersist) => options.fill_persist_raw(to, length, BYTE).unwrap(),
            (Form::Raw, Operation::CopyPersist) => options.copy_persist_raw(to, from, length).unwrap(),
            (Form::Raw, _) => options.persist_raw(to, length).unwrap(),
            (Form::Scope, _) => options.fence_scope(|scope| match operation {
                Operation::Clear => scope.clear(dst).defer(),
                Operation::Fill => scope.fill(dst, BYTE).defer(),
                Operation::Copy => scope.copy(dst, src).unwrap().defer(),
                Operation::FillPersist => scope.fill_persist(dst, BYTE).unwrap().defer(),
                Operation::CopyPersist => scope.copy_persist(dst, src).unwrap().defer(),
                _ => scope.persist(dst).unwrap().defer(),
            }),
        }
    }
}

/// Memory between guard pages, and a source without zeros that repeats only after 251 bytes.
#[derive(Debug)]
pub struct Bench {
    memory: Guarded,
    source: Vec<u8>,
}

impl Bench {
    /// Maps memory for lengths up to `most`.
    pub fn new(most: usize) -> Bench {
        Bench { memory: Guarded::new(most + 128), source: (0..most).map(|at| (at % 251) as u8 + 1).collect() }
    }

    /// Calls an operation on `length` bytes at that place and offset into a line, and checks every byte of the memory.
    ///
    /// # Panics
    /// If a byte is wrong.
    pub fn check(
        &mut self,
        options: &Options<'_>,
        operation: Operation,
        form: Form,
        (length, place, offset): (usize, Place, usize),
    ) {
        let case = format!("{operation} {form:?} of {length} bytes, {place:?} + {offset}: {options:?}");
        let range = self.memory.place(place, offset, length);
        let bytes = self.memory.bytes_mut();
        bytes.fill(BEFORE);
        call(options, operation, form, &mut bytes[range.clone()], &self.source[..length]);
        let (before, rest) = bytes.split_at(range.start);
        let (written, after) = rest.split_at(length);
        assert!(before.iter().chain(after).all(|byte| *byte == BEFORE), "outside: {case}");
        let right = match operation {
            Operation::Clear => written.iter().all(|byte| *byte == 0),
            Operation::Fill | Operation::FillPersist => written.iter().all(|byte| *byte == BYTE),
            Operation::Copy | Operation::CopyPersist => written == &self.source[..length],
            Operation::Persist => written.iter().all(|byte| *byte == BEFORE),
        };
        assert!(right, "{case}");
    }
}
