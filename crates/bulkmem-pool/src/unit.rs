//! A unit: a memory file that is used once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, Mode, SealFlags, fchmod, fchown, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::kind::{Kind, PageSize};
use crate::protocol::UnitId;

/// Seals of every unit that a tenant receives: its length and its seals cannot change.
pub(crate) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A memory file that no tenant has seen.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) id: UnitId,
    pub(crate) kind: Kind,
    pub(crate) file: OwnedFd,
}

impl Unit {
    /// Creates an empty file under a random name.
    pub(crate) fn create(kind: Kind) -> io::Result<Unit> {
        let mut id = UnitId::default();
        let filled = rustix::rand::getrandom(&mut id.0, rustix::rand::GetRandomFlags::empty())?;
        if filled != id.0.len() {
            return Err(io::Error::other("getrandom returned too few bytes"));
        }
        Ok(Unit { id, kind, file: memory_file(&kind)? })
    }

    /// Adopts a file from the service manager's store. Returns `None` if it is not a file as [`Unit::create`] makes it.
    pub(crate) fn adopt(id: UnitId, kind: Kind, file: OwnedFd) -> Option<Unit> {
        let about = fstat(&file).ok()?;
        // Only memory files have seals.
        let seals = fcntl_get_seals(&file).ok()?;
        let untouched = !seals.intersects(SEALS | SealFlags::WRITE | SealFlags::FUTURE_WRITE);
        let owned = about.st_uid == rustix::process::geteuid().as_raw();
        let whole = u64::try_from(about.st_size) == Ok(kind.unit)
            && u64::try_from(about.st_blksize) == Ok(block(kind.page));
        (untouched && owned && whole).then_some(Unit { id, kind, file })
    }

    /// Fixes the length and the seals for all time.
    pub(crate) fn seal(&self) -> io::Result<()> {
        Ok(fcntl_add_seals(&self.file, SEALS)?)
    }

    /// Makes the tenant the owner. Its mode lets nobody else open it.
    pub(crate) fn give_to(&self, user: Uid, group: Gid) -> io::Result<()> {
        Ok(fchown(&self.file, Some(user), Some(group))?)
    }
}

/// Returns the block size of a memory file with these pages.
fn block(page: PageSize) -> u64 {
    match page {
        PageSize::Base => rustix::param::page_size() as u64,
        _ => page.bytes(),
    }
}

/// Creates a memory file of the kind's length and page size, without pages, for its owner only.
pub(crate) fn memory_file(kind: &Kind) -> io::Result<OwnedFd> {
    let pages = match kind.page {
        PageSize::Base => MemfdFlags::empty(),
        PageSize::Huge2M => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        PageSize::Huge1G => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
    };
    let flags = MemfdFlags::CLOEXEC | pages;
    let file = match memfd_create("bulkmem-pool", flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create("bulkmem-pool", flags | MemfdFlags::ALLOW_SEALING),
        other => other,
    }?;
    // The kernel creates it readable and writable for every user.
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&file, kind.unit)?;
    Ok(file)
}

/// Returns true if a file has the length of the kind and the seals of a unit.
pub(crate) fn is_sealed_unit(file: impl AsFd, bytes: u64) -> bool {
    let length = fstat(&file).is_ok_and(|about| u64::try_from(about.st_size) == Ok(bytes));
    length && fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_private_sized_and_not_executable() {
        let kind = Kind::new(PageSize::Base, 1 << 20, None).unwrap();
        let unit = Unit::create(kind).unwrap();
        let about = fstat(&unit.file).unwrap();
        assert_eq!((about.st_mode & 0o7777, about.st_size, about.st_blocks), (0o600, 1 << 20, 0));
        assert_ne!(unit.id, Unit::create(kind).unwrap().id);
        unit.seal().unwrap();
        assert!(is_sealed_unit(&unit.file, 1 << 20) && !is_sealed_unit(&unit.file, 1 << 21));
        assert_eq!(ftruncate(&unit.file, 4096), Err(Errno::PERM));
        assert_eq!(ftruncate(&unit.file, 1 << 21), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&unit.file, SealFlags::WRITE), Err(Errno::PERM));
    }

    #[test]
    fn only_untouched_files_are_adopted() {
        let kind = Kind::new(PageSize::Base, 1 << 20, None).unwrap();
        let adopted = |change: fn(&OwnedFd)| {
            let file = memory_file(&kind).unwrap();
            change(&file);
            Unit::adopt(UnitId([1; 16]), kind, file).is_some()
        };
        assert!(adopted(|_| ()));
        assert!(!adopted(|file| ftruncate(file, 4096).unwrap()));
        assert!(!adopted(|file| fcntl_add_seals(file, SealFlags::WRITE).unwrap()));
        assert!(!adopted(|file| fcntl_add_seals(file, SEALS).unwrap()));
        let other = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Unit::adopt(UnitId([1; 16]), kind, other.into()).is_none());
    }
}
