//! Limits of processes and control groups, each in a process of its own.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use bulkmem_prefault::limits::MemoryLimit;
use bulkmem_prefault::{Cause, Options};
use rustix::mm::MapFlags;

use crate::child::is_child;
use crate::{MIB, Map, WAYS};

/// Memory that this process has locked, KiB.
fn locked() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn memory_is_locked_as_a_whole_or_not_at_all() {
    if !is_child("limits::memory_is_locked_as_a_whole_or_not_at_all", &unprivileged) {
        return;
    }
    assert_eq!(locked(), 0);
    for touch in WAYS {
        let options = Options::new().threads(2).lock(true).without_populate(touch);
        let fits = Map::anonymous(4 * MIB, MapFlags::PRIVATE);
        assert_eq!(fits.prefault(&options).unwrap().bytes, 4 << 20);
        assert_eq!(locked(), 4096);
        let too_large = Map::anonymous(5 * MIB, MapFlags::PRIVATE);
        let error = too_large.prefault(&options).unwrap_err();
        assert!(
            matches!(
                error.cause,
                Cause::LockLimit { needed: 0x50_0000, limit: 0x80_0000, locked: 0x40_0000 }
            ),
            "{error:?}"
        );
        assert_eq!((error.ready, locked()), (0, 4096));
        // A cancelled call unlocks what it locked, and not what was locked before.
        let cancelled = Map::anonymous(4 * MIB, MapFlags::PRIVATE);
        // SAFETY: the first MiB of the mapping.
        unsafe { rustix::mm::mlock(cancelled.start.cast(), MIB) }.unwrap();
        let stop = |_: &bulkmem_prefault::Progress| ControlFlow::Break(());
        let error = cancelled.prefault(&options.clone().rate(1 << 20).progress(&stop)).unwrap_err();
        assert!(matches!(error.cause, Cause::Cancelled), "{error:?}");
        assert_eq!(locked(), 5 * 1024);
        // So does one whose observer panics.
        let panics = |_: &bulkmem_prefault::Progress| -> ControlFlow<()> { panic!("planted") };
        let prefault = || cancelled.prefault(&options.clone().rate(1 << 20).progress(&panics));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(prefault)).is_err());
        assert_eq!(locked(), 5 * 1024);
    }
}

/// Has a child run without privileges, to which the limit does not apply, and with a limit of 8 MiB.
fn unprivileged(command: &mut std::process::Command) {
    // SAFETY: the functions are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 8 << 20, rlim_max: 8 << 20 };
            // Without CAP_IPC_LOCK in the bounding set, the program gets none when it is executed.
            const CAP_IPC_LOCK: libc::c_ulong = 14;
            let root = libc::getuid() == 0;
            if libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) != 0
                || (root && libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK) != 0)
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

const LIMIT: u64 = 96 << 20;

/// A control group with a memory limit, removed when dropped.
struct LimitedGroup {
    folder: PathBuf,
    /// The file that gave the root's groups the memory controller, if this test wrote it.
    control: Option<PathBuf>,
}

impl LimitedGroup {
    /// Creates a group; returns why if it cannot.
    fn create() -> Result<LimitedGroup, String> {
        let name = format!("bulkmem-prefault-{}", std::process::id());
        let refused = |path: &Path, error| format!("{}: {error}", path.display());
        if Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
            let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            let own = own.lines().find_map(|line| line.split_once(":memory:/")).map_or("", |(_, path)| path);
            let folder = Path::new("/sys/fs/cgroup/memory").join(own).join(name);
            return LimitedGroup::limit(folder, None, "memory.limit_in_bytes");
        }
        let root = Path::new("/sys/fs/cgroup");
        let control = root.join("cgroup.subtree_control");
        let before = fs::read_to_string(&control).map_err(|error| refused(&control, error))?;
        let has_memory = before.split_whitespace().any(|controller| controller == "memory");
        if !has_memory {
            fs::write(&control, "+memory").map_err(|error| refused(&control, error))?;
        }
        LimitedGroup::limit(root.join(name), (!has_memory).then_some(control), "memory.max")
    }

    fn limit(folder: PathBuf, control: Option<PathBuf>, file: &str) -> Result<LimitedGroup, String> {
        // From here on, dropping it restores the controllers.
        let group = LimitedGroup { folder, control };
        let refused = |error| format!("{}: {error}", group.folder.display());
        fs::create_dir(&group.folder).map_err(refused)?;
        fs::write(group.folder.join(file), LIMIT.to_string()).map_err(refused)?;
        Ok(group)
    }

    /// Removes the group and restores the controllers. Returns true if both succeed.
    fn remove(&mut self) -> bool {
        // The kernel may still hold the group of a process that has just ended.
        let removed = (0..100).any(|_| {
            let removed = fs::remove_dir(&self.folder).is_ok() || !self.folder.exists();
            if !removed {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            removed
        });
        let control = self.control.take();
        let restored = control.is_none_or(|control| fs::write(control, "-memory").is_ok());
        removed && restored
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        self.remove();
    }
}

#[test]
fn a_control_groups_limit_is_met_alive() {
    const NAME: &str = "limits::a_control_groups_limit_is_met_alive";
    if std::env::var_os("BULKMEM_PREFAULT_TEST").is_none() {
        let mut group = match LimitedGroup::create() {
            Ok(group) => group,
            Err(why) => return println!("skipped: prefaulting up to a control group's limit: {why}"),
        };
        let processes = group.folder.join("cgroup.procs");
        is_child(NAME, &|command| {
            let processes = fs::File::options().write(true).open(&processes).unwrap();
            // SAFETY: writing is async-signal-safe. 0 is the calling process.
            unsafe {
                command.pre_exec(move || {
                    rustix::io::write(&processes, b"0")?;
                    Ok(())
                });
            }
        });
        assert!(group.remove(), "{}", group.folder.display());
        return;
    }
    for touch in WAYS {
        let options = Options::new().threads(2).without_populate(touch);
        let file = crate::memfd(4 * LIMIT, 0).unwrap();
        let prefault_private = || Map::anonymous(4 * LIMIT as usize, MapFlags::PRIVATE).prefault(&options);
        let prefault_file = || bulkmem_prefault::prefault_file(&file, 0..4 * LIMIT, &options);
        for result in [prefault_private(), prefault_file()] {
            let error = result.unwrap_err();
            let Cause::Limit { left, .. } = &error.cause else { panic!("{error:?}") };
            assert!(matches!(&left.limit, MemoryLimit::ControlGroup(_)), "{error:?}");
            assert!(error.ready > LIMIT / 4 && error.ready < LIMIT, "{error:?}");
            assert!(error.cause.to_string().contains("raise that limit"), "{}", error.cause);
        }
    }
}
