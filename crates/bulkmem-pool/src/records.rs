//! The records of ready units and of leases: one small file each, below the runtime folder. They are not synchronized to a
//! disk: memory files do not survive a crash of the machine either.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::kind::Kind;
use crate::protocol::UnitId;

/// A unit that a tenant has received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// The tenant.
    pub(crate) user: u32,
    /// The process that requested it.
    pub(crate) process: i32,
    /// The start of that process in clock ticks since the machine started, which tells it from a later one.
    pub(crate) started: u64,
    /// The kind of the unit.
    pub(crate) kind: Kind,
    /// The watch that reports the end of the unit. `None` after a restart that lost the watches.
    pub(crate) watch: Option<i32>,
}

/// The folders with the records.
#[derive(Debug)]
pub(crate) struct Records {
    ready: PathBuf,
    leases: PathBuf,
}

impl Records {
    /// Opens the folders, and creates those that do not exist for this user only.
    pub(crate) fn open(runtime: &Path) -> io::Result<Records> {
        let records = Records { ready: runtime.join("ready"), leases: runtime.join("leases") };
        for folder in [&records.ready, &records.leases] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        Ok(records)
    }

    /// Records that a unit is filled and that no tenant has seen it.
    pub(crate) fn add_ready(&self, id: UnitId, kind: &Kind) -> io::Result<()> {
        write(&self.ready, id, kind)
    }

    /// Records a lease. From now on, the unit is never ready again.
    pub(crate) fn add_lease(&self, id: UnitId, lease: &Lease) -> io::Result<()> {
        write(&self.leases, id, lease)?;
        self.remove_ready(id)
    }

    pub(crate) fn remove_ready(&self, id: UnitId) -> io::Result<()> {
        remove(&self.ready, id)
    }

    pub(crate) fn remove_lease(&self, id: UnitId) -> io::Result<()> {
        remove(&self.leases, id)
    }

    /// Returns the units recorded as ready that have no lease, and removes the records of those that have one.
    pub(crate) fn ready(&self) -> io::Result<Vec<(UnitId, Kind)>> {
        let all = read_all(&self.ready)?;
        let (leased, ready): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(id, _)| self.leases.join(id.to_string()).exists());
        leased.into_iter().try_for_each(|(id, _)| self.remove_ready(id))?;
        Ok(ready)
    }

    pub(crate) fn leases(&self) -> io::Result<Vec<(UnitId, Lease)>> {
        read_all(&self.leases)
    }
}

/// Writes a record in one step: it is complete or does not exist.
fn write(folder: &Path, id: UnitId, record: &impl Serialize) -> io::Result<()> {
    let path = folder.join(id.to_string());
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, serde_json::to_vec(record)?)?;
    fs::rename(unfinished, path)
}

fn remove(folder: &Path, id: UnitId) -> io::Result<()> {
    match fs::remove_file(folder.join(id.to_string())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads all records of a folder, and removes files that are not records, such as unfinished ones.
fn read_all<R: DeserializeOwned>(folder: &Path) -> io::Result<Vec<(UnitId, R)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let id = path.file_name().and_then(|name| UnitId::parse(name.to_str()?));
        let record = id.and_then(|id| Some((id, serde_json::from_slice(&fs::read(&path).ok()?).ok()?)));
        match record {
            Some(record) => found.push(record),
            None => fs::remove_file(&path)?,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::PageSize;

    #[test]
    fn a_lease_ends_the_record_of_the_ready_unit() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path()).unwrap();
        let kind = Kind::new(PageSize::Huge2M, 2 << 20, None).unwrap();
        let lease = Lease { user: 7, process: 1, started: 2, kind, watch: Some(3) };
        let (one, two) = (UnitId([1; 16]), UnitId([2; 16]));
        records.add_ready(one, &kind).unwrap();
        records.add_ready(two, &kind).unwrap();
        records.add_lease(one, &lease).unwrap();
        assert_eq!(records.ready().unwrap(), [(two, kind)]);
        assert_eq!(records.leases().unwrap(), [(one, lease.clone())]);
        // Killed between the two changes, a daemon leaves both records: the lease decides.
        records.add_ready(one, &kind).unwrap();
        assert_eq!(records.ready().unwrap(), [(two, kind)]);
        records.remove_lease(one).unwrap();
        records.remove_lease(one).unwrap();
        assert_eq!(records.leases().unwrap(), []);
    }

    #[test]
    fn what_is_not_a_record_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path()).unwrap();
        let ready = folder.path().join("ready");
        fs::write(ready.join(UnitId([1; 16]).to_string()), "{").unwrap();
        fs::write(ready.join(format!("{}.new", UnitId([2; 16]))), "{}").unwrap();
        fs::write(ready.join("name"), "").unwrap();
        assert_eq!(records.ready().unwrap(), []);
        assert_eq!(fs::read_dir(ready).unwrap().count(), 0);
    }
}
