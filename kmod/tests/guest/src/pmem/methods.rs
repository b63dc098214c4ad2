//! The methods that make bytes durable and that this processor can run.

use bulkmem::machine::{Features, features};
use bulkmem::method::{self, Method};
use bulkmem::policy::Choice;
use bulkmem::{Durability, Error, Operation, Options};

/// Returns the methods of an operation that run here. PREFETCHW is a no-op on processors without it, such as QEMU's, so
/// it is not required.
pub(crate) fn methods(operation: Operation) -> Vec<&'static Method> {
    let runs = |method: &&Method| features().union(Features::PREFETCHW).contains(method.requires);
    method::all().filter(|method| method.does(operation)).filter(runs).collect()
}

/// Copies and persists by one of [`methods()`]: through [`Options`], or directly if only PREFETCHW is missing.
pub(crate) fn copy_persist_by(method: &'static Method, to: &mut [u8], from: &[u8]) -> Result<(), Error> {
    let choice = Choice::of(method, Operation::CopyPersist);
    if method.available() {
        return forced(Operation::CopyPersist, choice)?.copy_persist(to, from);
    }
    let entry = method.code().copy_persist.expect("`methods` returned it for this operation");
    assert_eq!(to.len(), from.len());
    // SAFETY: the slices have the same length and do not overlap. The processor misses nothing but PREFETCHW, which is a
    // no-op.
    unsafe { (entry.fenced)(to.as_mut_ptr(), from.as_ptr(), to.len(), &choice.parameters) }
    Ok(())
}

/// Persists by one of [`methods()`].
pub(crate) fn persist_by(method: &'static Method, bytes: &[u8]) -> Result<(), Error> {
    forced(Operation::Persist, Choice::of(method, Operation::Persist))?.persist(bytes)
}

/// Returns options that force a method and flush to memory.
pub(crate) fn forced(operation: Operation, choice: Choice) -> Result<Options<'static>, Error> {
    Options::new().durability(Durability::FlushToMemory).method(operation, choice)
}
