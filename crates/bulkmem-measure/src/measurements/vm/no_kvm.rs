//! Virtual machines on architectures without a guest program.

use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

use crate::MeasureError;
use crate::measurements::vm::prefault::{Job, Phases};

/// Support for virtual machines: none here.
#[derive(Debug)]
pub(super) enum Guest {
    /// Its processor runs.
    Runs,
    /// It can be created, but its processor does not run.
    Idle(Infallible),
}

/// Reports that there is no support.
pub(super) fn usable() -> Result<Guest, String> {
    Err("the program that looks at a guest's memory is written for x86-64 only".to_owned())
}

/// Never called, since [`usable`] returns an error.
pub(super) fn create(_: Job, _: bool, _: &AtomicBool) -> Result<Phases, MeasureError> {
    Err(MeasureError::System {
        doing: "create a virtual machine",
        source: std::io::ErrorKind::Unsupported.into(),
    })
}
