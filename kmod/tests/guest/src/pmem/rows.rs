//! The methods that make durable, as far as this processor can run them.

use bulkmem::machine::{Features, features};
use bulkmem::method::{self, Method};
use bulkmem::policy::Choice;
use bulkmem::{Durability, Error, Operation, Options};

/// The rows of an operation that run here: PREFETCHW is a no-op to processors that lack it, as QEMU's does.
pub(crate) fn rows(operation: Operation) -> Vec<&'static Method> {
    let runs = |row: &&Method| features().union(Features::PREFETCHW).contains(row.requires);
    method::all().filter(|row| row.does(operation)).filter(runs).collect()
}

/// Persists by one of [`rows`]: through a `Options`, or, where that refuses it for want of PREFETCHW, by the row itself.
pub(crate) fn persist_by(method: &'static Method, to: &mut [u8], from: &[u8]) -> Result<(), Error> {
    let choice = Choice::of(method, Operation::CopyPersist);
    if method.available() {
        return forced(Operation::CopyPersist, choice)?.persist(to, from);
    }
    let entry = method.code.copy_persist.expect("a row that persists");
    assert_eq!(to.len(), from.len());
    // SAFETY: two slices of one length, apart; all that the processor lacks is PREFETCHW, a no-op to it.
    unsafe { (entry.fenced)(to.as_mut_ptr(), from.as_ptr(), to.len(), &choice.parameters) }
    Ok(())
}

/// Flushes by one of [`rows`].
pub(crate) fn flush_by(method: &'static Method, bytes: &[u8]) -> Result<(), Error> {
    forced(Operation::Persist, Choice::of(method, Operation::Persist))?.flush(bytes)
}

fn forced(operation: Operation, choice: Choice) -> Result<Options<'static>, Error> {
    Options::new().durability(Durability::FlushToMemory).method(operation, choice)
}
