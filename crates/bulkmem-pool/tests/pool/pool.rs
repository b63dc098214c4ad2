//! A daemon in a process of its own, and what tenants do with units.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bulkmem_pool::protocol::Request;
use bulkmem_pool::{Client, ClientError, Config, Daemon, Kind, Lease, PageSize, Status, Supply, Weakness};
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use tempfile::TempDir;
use testkit::harness::Suite;
use testkit::huge_pages::{HUGE_PAGE, HugePages};

use crate::process::{Child, wait_until};

/// The daemon's user, which no tenant has.
pub(crate) const POOL_USER: u32 = 20_000;
/// Tenants.
pub(crate) const ALICE: u32 = 20_001;
pub(crate) const BOB: u32 = 20_002;
pub(crate) const CAROL: u32 = 20_003;

/// Length of a unit of base pages.
pub(crate) const UNIT: u64 = 64 << 10;
/// Huge pages of a test: for all units of a pool and of its tenants, and one that the pool leaves to others.
const HUGE_PAGES: u64 = 12;
/// True while the units of tests have huge pages.
static HUGE: AtomicBool = AtomicBool::new(false);
/// Time that clients wait in tests, in which a timeout is a failure.
pub(crate) const LONG: Duration = Duration::from_secs(10);

/// Returns the length of a unit of the current test.
pub(crate) fn unit() -> u64 {
    if HUGE.load(Ordering::Relaxed) { HUGE_PAGE } else { UNIT }
}

pub(crate) fn kind() -> Kind {
    let page = if HUGE.load(Ordering::Relaxed) { PageSize::Huge2M } else { PageSize::Base };
    Kind::new(page, unit(), None).expect("whole pages")
}

/// Adds a test with units of base pages, and `huge::` with the same on units of one huge page each.
pub(crate) fn test_both(suite: &mut Suite, name: &str, run: impl Fn() + Clone + Send + 'static) {
    let huge = run.clone();
    suite.test(name, move || {
        run();
        Ok(())
    });
    test_huge(suite, name, huge);
}

/// Adds the test `huge::NAME`, whose units have one huge page each.
pub(crate) fn test_huge(suite: &mut Suite, name: &str, run: impl FnOnce() + Send + 'static) {
    let name = format!("huge::{name}");
    if let Err(why) = HugePages::reserve(HUGE_PAGES) {
        return suite.skip(&name, &why);
    }
    suite.test(&name, || {
        let _pages = HugePages::reserve(HUGE_PAGES)?;
        HUGE.store(true, Ordering::Relaxed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        HUGE.store(false, Ordering::Relaxed);
        result.map_err(|_| "see the message above".into())
    });
}

/// A running daemon with its folder.
pub(crate) struct Pool {
    pub(crate) folder: TempDir,
    pub(crate) daemon: Child,
    pub(crate) client: Client,
    count: u64,
}

/// Returns a configuration for `count` units, with a socket for everyone.
pub(crate) fn config(folder: &TempDir, count: u32) -> Config {
    let mut config = Config::new(vec![Supply { kind: kind(), count }]);
    config.runtime_dir = folder.path().join("run");
    config.socket_mode = 0o666;
    config.rate = None;
    config.keep_free = 1;
    config
}

/// Creates a folder that every user can enter, with one that belongs to the daemon.
pub(crate) fn folder(user: u32) -> TempDir {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = tempfile::tempdir().expect("a temporary folder");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), all).expect("it is ours");
    std::fs::create_dir(folder.path().join("run")).expect("it is new");
    chown(folder.path().join("run"), Some(user), Some(user)).expect("the tests run as root");
    folder
}

impl Pool {
    /// Starts a pool with `count` units.
    pub(crate) fn start(count: u32, change: impl FnOnce(&mut Config)) -> Pool {
        Pool::start_as(POOL_USER, count, change, || ())
    }

    /// Starts a weakened pool.
    pub(crate) fn weak(count: u32, weak: &[Weakness]) -> Pool {
        Pool::start(count, |config| config.hooks.weak = weak.to_vec())
    }

    /// Starts a pool whose daemon has this user, after `prepare` ran in its process.
    pub(crate) fn start_as(
        user: u32,
        count: u32,
        change: impl FnOnce(&mut Config),
        prepare: impl FnOnce(),
    ) -> Pool {
        let pool = Pool::spawn(user, count, change, prepare);
        pool.wait_until_full();
        pool
    }

    /// The same, without waiting until units are ready.
    pub(crate) fn spawn(
        user: u32,
        count: u32,
        change: impl FnOnce(&mut Config),
        prepare: impl FnOnce(),
    ) -> Pool {
        let folder = folder(user);
        let mut config = config(&folder, count);
        change(&mut config);
        let socket = config.runtime_dir.join("socket");
        let count = config.supplies.iter().map(|it| u64::from(it.count)).sum();
        let daemon = Child::fork(|_| {
            bulkmem_pool::become_user(user, user).expect("the tests run as root");
            prepare();
            serve(config);
        });
        Pool { folder, daemon, client: Client::new(socket), count }
    }

    pub(crate) fn status(&self) -> Status {
        self.client.status(LONG).expect("the daemon answers")
    }

    /// Waits until all units are ready.
    pub(crate) fn wait_until_full(&self) {
        wait_until("all units are ready", || {
            let status = self.client.status(LONG);
            status.is_ok_and(|it| it.kinds.iter().map(|kind| kind.ready).sum::<u64>() >= self.count)
        });
    }

    pub(crate) fn records(&self, name: &str) -> usize {
        std::fs::read_dir(self.folder.path().join("run").join(name)).expect("the folder exists").count()
    }
}

/// Runs a daemon until it is killed.
pub(crate) fn serve(config: Config) {
    let (stop, _never) = rustix::pipe::pipe().expect("a pipe");
    let mut daemon = Daemon::start(config).expect("the daemon starts");
    daemon.run(stop.as_fd()).expect("the daemon runs");
}

/// Requests a unit until the pool has one.
pub(crate) fn lease(client: &Client) -> Lease {
    lease_by(|| client.lease(&kind(), LONG))
}

/// The same without the client's checks, for attacks on pools without seals.
pub(crate) fn lease_unchecked(client: &Client) -> Lease {
    lease_by(|| {
        let (response, file) = client.request(&Request::Lease(kind()), LONG)?;
        Ok(Lease { id: response.id, file: file.expect("a descriptor") })
    })
}

fn lease_by(request: impl Fn() -> Result<Lease, ClientError>) -> Lease {
    let mut found = None;
    wait_until("the pool has a unit", || {
        found = match request() {
            Ok(lease) => Some(lease),
            Err(ClientError::Rejected(bulkmem_pool::protocol::Code::Empty)) => None,
            Err(error) => panic!("{error}"),
        };
        found.is_some()
    });
    found.expect("it was found")
}

/// Returns what identifies the memory of a file.
pub(crate) fn identity(file: &OwnedFd) -> (u64, u64) {
    let about = fstat(file).expect("an open file");
    (about.st_dev, about.st_ino)
}

/// A mapping of a unit that stays until the process ends. Bytes are read and written one by one, as other processes may
/// change them.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

impl Mapping {
    pub(crate) fn of(file: impl AsFd) -> rustix::io::Result<Mapping> {
        let len = usize::try_from(unit()).expect("a small unit");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { start: start.cast(), len })
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        // SAFETY: each byte is within the mapping, which stays; volatile, because others may write.
        (0..self.len).map(|at| unsafe { self.start.add(at).read_volatile() }).collect()
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: as above.
            unsafe { self.start.add(at).write_volatile(*byte) };
        }
    }

    /// Removes the mapping.
    pub(crate) fn unmap(self) {
        // SAFETY: the range is exactly the mapping, and nothing refers to its memory.
        unsafe { rustix::mm::munmap(self.start.cast(), self.len) }.expect("it is mapped");
    }
}

/// Returns a unit full of a secret.
pub(crate) fn full_of(secret: &[u8; 16]) -> Vec<u8> {
    secret.repeat(usize::try_from(unit() / 16).expect("a small unit"))
}

/// Counts the bytes of a secret in memory: every place where it stands.
pub(crate) fn bytes_of(secret: &[u8; 16], memory: &[u8]) -> usize {
    memory.chunks_exact(16).filter(|chunk| chunk == secret).count() * 16
}

/// Reads a whole unit by its descriptor.
pub(crate) fn read_file(file: &OwnedFd) -> Vec<u8> {
    let mut bytes = full_of(&[0; 16]);
    let length = rustix::io::pread(file, &mut bytes, 0).expect("it can be read");
    bytes.truncate(length);
    bytes
}

/// Writes to the start of a unit. Returns false if that is not possible.
pub(crate) fn write_file(file: &OwnedFd, bytes: &[u8]) -> bool {
    if !HUGE.load(Ordering::Relaxed) {
        return rustix::io::pwrite(file, bytes, 0).is_ok();
    }
    // Files of huge pages can only be written by a mapping.
    let Ok(mapping) = Mapping::of(file) else { return false };
    mapping.write(bytes);
    mapping.unmap();
    true
}

/// Returns the path of a socket in a folder.
pub(crate) fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("run/socket")
}
