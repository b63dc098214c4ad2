//! The public interface as users call it, timed.

use std::num::NonZeroUsize;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use bulkmem::method::Parameters;
use bulkmem::{Error, Operation, Options, Threads};

use crate::engine::meter::{Cell, Sample};
use crate::engine::workload::{FILL_BYTE, Workloads};

/// Goes through [`Options`], with as many threads as the cell says.
pub(crate) fn shared(
    workloads: &mut Workloads,
    cell: &Cell,
    name: &'static str,
    parameters: Parameters,
    bulk: Options<'_>,
) -> Sample {
    let bulk = match NonZeroUsize::new(cell.condition.threads) {
        Some(threads) if threads.get() > 1 => bulk.threads(Threads::Exactly(threads)),
        _ => bulk,
    };
    through(workloads, cell, name, parameters, &bulk)
}

/// Goes through the functions that ask for nothing but the operation.
pub(crate) fn plain(workloads: &mut Workloads, cell: &Cell, name: &'static str) -> Sample {
    through(workloads, cell, name, Parameters::default(), &Plain)
}

/// Calls the C library as users do; `None` for an operation that it does not have.
pub(crate) fn c_library(workloads: &mut Workloads, cell: &Cell, name: &'static str) -> Option<Sample> {
    let none = Parameters::default();
    // SAFETY (of the calls below): the ranges lie in the arena, source and destination apart.
    Some(match cell.operation {
        Operation::Clear => workloads.run(cell, name, none, |dst, _, length| {
            // SAFETY: see above.
            unsafe { libc::memset(dst.cast(), 0, length) };
        }),
        Operation::Fill => workloads.run(cell, name, none, |dst, _, length| {
            // SAFETY: see above.
            unsafe { libc::memset(dst.cast(), FILL_BYTE.into(), length) };
        }),
        Operation::Copy => workloads.run(cell, name, none, |dst, src, length| {
            // SAFETY: see above.
            unsafe { libc::memcpy(dst.cast(), src.cast(), length) };
        }),
        Operation::FillPersist | Operation::CopyPersist | Operation::Persist => return None,
    })
}

/// The operations as safe functions, each compiled into the loop that times it.
trait Interface {
    fn clear(&self, dst: &mut [u8]);
    fn fill(&self, dst: &mut [u8], byte: u8);
    fn copy(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error>;
    fn fill_persist(&self, dst: &mut [u8], byte: u8) -> Result<(), Error>;
    fn copy_persist(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error>;
    fn persist(&self, bytes: &[u8]) -> Result<(), Error>;
}

/// The functions at the crate's root.
struct Plain;

impl Interface for Plain {
    #[inline(always)]
    fn clear(&self, dst: &mut [u8]) {
        bulkmem::clear(dst);
    }
    #[inline(always)]
    fn fill(&self, dst: &mut [u8], byte: u8) {
        bulkmem::fill(dst, byte);
    }
    #[inline(always)]
    fn copy(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
        bulkmem::copy(dst, src)
    }
    #[inline(always)]
    fn fill_persist(&self, dst: &mut [u8], byte: u8) -> Result<(), Error> {
        bulkmem::fill_persist(dst, byte)
    }
    #[inline(always)]
    fn copy_persist(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
        bulkmem::copy_persist(dst, src)
    }
    #[inline(always)]
    fn persist(&self, bytes: &[u8]) -> Result<(), Error> {
        bulkmem::persist(bytes)
    }
}

impl Interface for Options<'_> {
    #[inline(always)]
    fn clear(&self, dst: &mut [u8]) {
        Options::clear(self, dst);
    }
    #[inline(always)]
    fn fill(&self, dst: &mut [u8], byte: u8) {
        Options::fill(self, dst, byte);
    }
    #[inline(always)]
    fn copy(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
        Options::copy(self, dst, src)
    }
    #[inline(always)]
    fn fill_persist(&self, dst: &mut [u8], byte: u8) -> Result<(), Error> {
        Options::fill_persist(self, dst, byte)
    }
    #[inline(always)]
    fn copy_persist(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
        Options::copy_persist(self, dst, src)
    }
    #[inline(always)]
    fn persist(&self, bytes: &[u8]) -> Result<(), Error> {
        Options::persist(self, bytes)
    }
}

fn through(
    workloads: &mut Workloads,
    cell: &Cell,
    name: &'static str,
    parameters: Parameters,
    interface: &impl Interface,
) -> Sample {
    let done = "the lengths are equal, and only what this architecture can do is measured";
    // SAFETY (of the slices below): the ranges lie in the arena, source and destination apart; nobody else uses them
    // meanwhile.
    match cell.operation {
        Operation::Clear => workloads.run(cell, name, parameters, |dst, _, length| {
            // SAFETY: see above.
            interface.clear(unsafe { from_raw_parts_mut(dst, length) });
        }),
        Operation::Fill => workloads.run(cell, name, parameters, |dst, _, length| {
            // SAFETY: see above.
            interface.fill(unsafe { from_raw_parts_mut(dst, length) }, FILL_BYTE);
        }),
        Operation::FillPersist => workloads.run(cell, name, parameters, |dst, _, length| {
            // SAFETY: see above.
            interface.fill_persist(unsafe { from_raw_parts_mut(dst, length) }, FILL_BYTE).expect(done);
        }),
        Operation::Copy => workloads.run(cell, name, parameters, |dst, src, length| {
            // SAFETY: see above.
            let (dst, src) = unsafe { (from_raw_parts_mut(dst, length), from_raw_parts(src, length)) };
            interface.copy(dst, src).expect(done);
        }),
        Operation::CopyPersist => workloads.run(cell, name, parameters, |dst, src, length| {
            // SAFETY: see above.
            let (dst, src) = unsafe { (from_raw_parts_mut(dst, length), from_raw_parts(src, length)) };
            interface.copy_persist(dst, src).expect(done);
        }),
        Operation::Persist => workloads.run(cell, name, parameters, |dst, _, length| {
            // SAFETY: see above.
            interface.persist(unsafe { from_raw_parts(dst, length) }).expect(done);
        }),
    }
}
