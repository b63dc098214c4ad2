//! Leases that have not ended, and the memory of each user.
//!
//! The kernel reports the end of a unit: an inotify watch on the memory file sees its deletion when the last descriptor and
//! the last mapping are gone. The watch is no reference to the memory, and tenants cannot remove it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::protocol::UnitId;
use crate::records::{Lease, Records};

/// The leases, in memory and as records.
#[derive(Debug)]
pub(crate) struct Ledger {
    leases: HashMap<UnitId, Lease>,
    by_watch: HashMap<i32, UnitId>,
    /// Leases and bytes of each user with leases.
    users: BTreeMap<u32, Usage>,
    /// The watches; an inotify instance.
    pub(crate) watches: OwnedFd,
}

/// The leases of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) leases: u64,
    pub(crate) bytes: u64,
}

impl Ledger {
    /// Reads the leases of an earlier daemon. `watches` are that daemon's, if the service manager has kept them. Without them,
    /// a lease counts until the process that requested it ends.
    pub(crate) fn open(records: &Records, watches: Option<OwnedFd>) -> io::Result<Ledger> {
        let live = watches.as_ref().map(live_watches);
        let watches = match watches {
            Some(watches) => watches,
            None => inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
        };
        let (leases, by_watch, users) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        let mut ledger = Ledger { leases, by_watch, users, watches };
        for (id, mut lease) in records.leases()? {
            lease.watch = lease.watch.filter(|_| live.is_some());
            let exists = match (&live, lease.watch) {
                (Some(Some(live)), Some(watch)) => live.contains(&watch),
                // The kernel does not list the watches, but still reports those that have ended.
                (Some(None), Some(_)) => true,
                _ => process_start(lease.process) == Some(lease.started),
            };
            if exists {
                ledger.insert(id, lease);
            } else {
                records.remove_lease(id)?;
            }
        }
        Ok(ledger)
    }

    /// Watches for the end of a memory file. Must be called while this process may read the file.
    pub(crate) fn watch(&self, file: impl AsFd) -> io::Result<i32> {
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        Ok(inotify::add_watch(&self.watches, path, WatchFlags::DELETE_SELF)?)
    }

    /// Adds a lease and records it.
    pub(crate) fn add(&mut self, records: &Records, id: UnitId, lease: Lease) -> io::Result<()> {
        records.add_lease(id, &lease)?;
        self.insert(id, lease);
        Ok(())
    }

    fn insert(&mut self, id: UnitId, lease: Lease) {
        let usage = self.users.entry(lease.user).or_default();
        usage.leases += 1;
        usage.bytes += lease.kind.unit;
        if let Some(watch) = lease.watch {
            self.by_watch.insert(watch, id);
        }
        self.leases.insert(id, lease);
    }

    /// Returns the leases of a user.
    pub(crate) fn usage(&self, user: u32) -> Usage {
        self.users.get(&user).copied().unwrap_or_default()
    }

    /// Returns all users with leases.
    pub(crate) fn users(&self) -> impl Iterator<Item = (u32, Usage)> + '_ {
        self.users.iter().map(|(user, usage)| (*user, *usage))
    }

    /// Ends the leases of the units that the kernel reports as gone. Returns their number.
    pub(crate) fn read_watches(&mut self, records: &Records) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.watches, &mut buffer);
        let (mut ended, mut overflow) = (Vec::new(), false);
        while let Ok(event) = reader.next() {
            overflow |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            if event.events().contains(ReadFlags::DELETE_SELF) {
                ended.push(event.wd());
            }
        }
        if overflow {
            if let Some(live) = live_watches(&self.watches) {
                ended.extend(self.by_watch.keys().filter(|watch| !live.contains(watch)));
            }
        }
        let ids: Vec<UnitId> = ended.iter().filter_map(|watch| self.by_watch.get(watch).copied()).collect();
        ids.iter().for_each(|id| self.end(records, *id));
        ids.len()
    }

    /// Ends the leases without a watch whose process has ended. Returns their number.
    pub(crate) fn check_processes(&mut self, records: &Records) -> usize {
        let gone =
            |lease: &Lease| lease.watch.is_none() && process_start(lease.process) != Some(lease.started);
        let ids: Vec<UnitId> =
            self.leases.iter().filter(|(_, lease)| gone(lease)).map(|(id, _)| *id).collect();
        ids.iter().for_each(|id| self.end(records, *id));
        ids.len()
    }

    fn end(&mut self, records: &Records, id: UnitId) {
        let Some(lease) = self.leases.remove(&id) else { return };
        if let Some(watch) = lease.watch {
            self.by_watch.remove(&watch);
        }
        if let Some(usage) = self.users.get_mut(&lease.user) {
            usage.leases -= 1;
            usage.bytes -= lease.kind.unit;
            if usage.leases == 0 {
                self.users.remove(&lease.user);
            }
        }
        if let Err(error) = records.remove_lease(id) {
            log::warn!("cannot remove the record of an ended lease: {error}");
        }
    }
}

/// Returns the numbers of the watches in force. `None` if the kernel does not list them.
fn live_watches(watches: &OwnedFd) -> Option<HashSet<i32>> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", watches.as_raw_fd())).ok()?;
    let number =
        |line: &str| i32::from_str_radix(line.strip_prefix("inotify wd:")?.split(' ').next()?, 16).ok();
    Some(text.lines().filter_map(number).collect())
}

/// Returns the start of a process in clock ticks since the machine started, or `None` if there is none.
pub(crate) fn process_start(process: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, can contain anything.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Kind, PageSize};
    use crate::unit::Unit;

    fn lease(watch: Option<i32>) -> Lease {
        let kind = Kind::new(PageSize::Base, 8192, None).unwrap();
        let process = rustix::process::getpid().as_raw_nonzero().get();
        Lease { user: 7, process, started: process_start(process).unwrap(), kind, watch }
    }

    #[test]
    fn a_lease_ends_with_the_last_descriptor_and_mapping() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path()).unwrap();
        let mut ledger = Ledger::open(&records, None).unwrap();
        let unit = Unit::create(lease(None).kind).unwrap();
        let watch = ledger.watch(&unit.file).unwrap();
        ledger.add(&records, unit.id, lease(Some(watch))).unwrap();
        assert_eq!(ledger.usage(7), Usage { leases: 1, bytes: 8192 });
        let other = unit.file.try_clone().unwrap();
        drop(unit);
        assert_eq!(ledger.read_watches(&records), 0, "a descriptor is left");
        drop(other);
        assert_eq!(ledger.read_watches(&records), 1);
        assert_eq!((ledger.usage(7), ledger.users().count()), (Usage::default(), 0));
        assert_eq!(records.leases().unwrap(), []);
    }

    #[test]
    fn a_restart_keeps_leases_whose_units_exist() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path()).unwrap();
        let mut ledger = Ledger::open(&records, None).unwrap();
        let units: Vec<Unit> = (0..3).map(|_| Unit::create(lease(None).kind).unwrap()).collect();
        for unit in &units {
            let watch = ledger.watch(&unit.file).unwrap();
            ledger.add(&records, unit.id, lease(Some(watch))).unwrap();
        }
        let mut units = units.into_iter();
        drop(units.next());
        // The service manager has kept the watches. One unit has ended before the restart, another one ends after it.
        let mut ledger = Ledger::open(&records, Some(ledger.watches)).unwrap();
        assert_eq!(ledger.usage(7).leases, 2);
        drop(units.next());
        assert_eq!(ledger.read_watches(&records), 1);
        assert_eq!(ledger.usage(7).leases, 1);
        // Without the watches, the process decides, and this one lives.
        let mut ledger = Ledger::open(&records, None).unwrap();
        drop(units.next());
        assert_eq!((ledger.read_watches(&records), ledger.check_processes(&records)), (0, 0));
        assert_eq!(ledger.usage(7).leases, 1);
    }

    #[test]
    fn without_watches_a_lease_of_a_process_that_has_ended_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path()).unwrap();
        let old = Lease { started: 1, ..lease(Some(5)) };
        records.add_lease(UnitId([1; 16]), &old).unwrap();
        assert_eq!(Ledger::open(&records, None).unwrap().users().count(), 0);
        assert_eq!(records.leases().unwrap(), []);
    }
}
