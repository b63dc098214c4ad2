//! Behaviour of weakened pools, so that each attack of the tests can be seen to succeed. Compiled for tests only.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::hooks::{Hooks, Weakness};
use crate::protocol::UnitId;
use crate::sys;
use crate::unit::Unit;

/// Units that were handed out and can be returned.
#[derive(Debug, Default)]
pub(crate) struct Recycler {
    kept: HashMap<UnitId, Unit>,
}

impl Recycler {
    /// Keeps a second descriptor of a unit that is handed out, and a mapping.
    pub(crate) fn keep(&mut self, unit: &Unit, hooks: &Hooks) -> io::Result<()> {
        if hooks.is(Weakness::Dumpable) {
            sys::keep_mapping(&unit.file, unit.kind.unit)?;
        }
        if hooks.is(Weakness::Recycles) {
            self.kept.insert(unit.id, Unit { file: unit.file.try_clone()?, ..*unit });
        }
        Ok(())
    }

    /// Takes a unit back, any number of times, and clears it in place.
    pub(crate) fn take_back(&self, id: UnitId, hooks: &Hooks) -> Option<Unit> {
        let unit = self.kept.get(&id)?;
        let again = Unit { file: unit.file.try_clone().ok()?, ..*unit };
        again.give_to(rustix::process::geteuid(), rustix::process::getegid()).ok()?;
        if hooks.is(Weakness::LeaseChecked) && !is_write_lease_granted(&again.file) {
            return None;
        }
        // A tenant that has sealed the unit against writing is no reason for this pool to drop it.
        _ = sys::clear(&again.file, unit.kind.unit);
        Some(again)
    }
}

/// Opens a file anew and requests a write lease, which the kernel grants only if nobody else has it open, as it was thought.
fn is_write_lease_granted(file: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path).is_ok_and(|file| sys::set_write_lease(&file))
}
