//! Virtual machines on architectures that there is no guest program for.

use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

use crate::MeasureError;
use crate::measurements::vm::fresh::{Job, Phases};

/// What can be done with a virtual machine: here nothing.
#[derive(Debug)]
pub(super) enum Guest {
    /// Its processor runs.
    Runs,
    /// It is created, but its processor does not run.
    Idle(Infallible),
}

/// What virtual machines can do here.
pub(super) fn usable() -> Result<Guest, String> {
    Err("the program that looks at a guest's memory is written for x86-64 only".to_owned())
}

/// Never asked for where [`usable`] says no.
pub(super) fn create(_: Job, _: bool, _: &AtomicBool) -> Result<Phases, MeasureError> {
    Err(MeasureError::System {
        doing: "create a virtual machine",
        source: std::io::ErrorKind::Unsupported.into(),
    })
}
