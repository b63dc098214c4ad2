//! Files that `BULKMEM_PROFILE` can name and that are not policy files. The first call returns and uses the defaults.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::process::Run;

const DEFAULTS: &str = "basis defaults, forced []";

/// Creates something at a path.
type Make = fn(&Path) -> std::io::Result<()>;

pub(crate) fn add(suite: &mut Suite) {
    let kinds: [(&str, Make); 7] = [
        ("nothing", |_| Ok(())),
        ("a_directory", |path| std::fs::create_dir(path)),
        ("a_fifo", fifo),
        ("a_link_to_a_fifo", |path| {
            let target = path.with_extension("fifo");
            fifo(&target).and_then(|()| std::os::unix::fs::symlink(target, path))
        }),
        ("a_socket", |path| UnixListener::bind(path).map(drop)),
        ("an_empty_file", |path| std::fs::write(path, "")),
        ("a_damaged_file", |path| std::fs::write(path, "{ \"format\": \"bulkmem")),
    ];
    for (name, make) in kinds {
        suite.test(&format!("files::{name}"), move || {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("profile");
            make(&path)?;
            uses_the_defaults(&path)
        });
    }
    for path in ["/dev/zero", "/dev/full", "/proc/kmsg", "/proc/self/mem", "/proc/self/fd/0"] {
        let name = format!("files::{}", path.trim_start_matches('/').replace('/', "_"));
        if Path::new(path).exists() {
            suite.test(&name, move || uses_the_defaults(Path::new(path)));
        } else {
            suite.skip(&name, &format!("there is no {path} here"));
        }
    }
    suite.test("files::a_terminal", a_terminal);
    suite.test("files::a_fifo_in_the_place_of_a_file", swapped);
}

fn uses_the_defaults(path: &Path) -> Result<(), Failed> {
    Run::scenario(&["policy"]).variable("BULKMEM_PROFILE", path).outcome()?.printed(DEFAULTS)
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path has no zero byte")
}

fn fifo(path: &Path) -> std::io::Result<()> {
    // SAFETY: a terminated string.
    match unsafe { libc::mkfifo(c_string(path).as_ptr(), 0o600) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A terminal does not become that of the session, and is not read.
fn a_terminal() -> Result<(), Failed> {
    // SAFETY: a fresh descriptor, ours alone; the name is copied before another call can change it.
    let (_master, name) = unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        if master == -1 {
            return Err(format!("no terminal: {}", std::io::Error::last_os_error()).into());
        }
        let master = OwnedFd::from_raw_fd(master);
        libc::grantpt(master.as_raw_fd());
        libc::unlockpt(master.as_raw_fd());
        let name = libc::ptsname(master.as_raw_fd());
        (master, CStr::from_ptr(name).to_string_lossy().into_owned())
    };
    uses_the_defaults(Path::new(&name))?;
    Run::scenario(&["terminal"]).variable("BULKMEM_PROFILE", name).silent_success()
}

/// The first call returns while another thread repeatedly exchanges a FIFO and a policy file.
fn swapped() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (path, other) = (folder.path().join("profile"), folder.path().join("fifo"));
    testkit::profile::write(&path);
    fifo(&other)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (path, other) = (c_string(&path), c_string(&other));
            while !done.load(Relaxed) {
                let (here, exchange) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
                // SAFETY: terminated strings.
                unsafe { libc::renameat2(here, path.as_ptr(), here, other.as_ptr(), exchange) };
            }
        });
        let result = (0..200).try_for_each(|_| {
            let outcome = Run::scenario(&["policy"]).variable("BULKMEM_PROFILE", &path).outcome()?;
            let used = if outcome.stdout.contains("profile") { "basis profile, forced []" } else { DEFAULTS };
            outcome.printed(used)
        });
        done.store(true, Relaxed);
        result
    })
}
