//! Links the library, finds Debian's, and runs programs with either.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// The folder of this crate.
pub(crate) const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The folder for files of these tests.
pub(crate) const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

/// Runs a command, which must succeed, and returns its output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (printed, complaints) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{printed}\n{complaints}", output.status);
    printed
}

/// True if a program is installed. Prints what is skipped without it.
pub(crate) fn installed(program: &str, package: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if status.is_err() {
        println!("skipped: {program} with our libpmem: not installed; remedy: apt-get install {package}");
    }
    status.is_ok()
}

/// The folder with the library that `scripts/link-c.sh` makes of what cargo built for these tests.
pub(crate) fn ours() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(SCRATCH).join("libpmem");
        let script = Path::new(SOURCE).join("../../scripts/link-c.sh");
        run(Command::new(script)
            .arg("libpmem")
            .arg(testkit::archive::archive("bulkmem_libpmem"))
            .arg(&folder));
        folder
    })
}

/// Debian's library. Prints what is skipped without it.
pub(crate) fn debians() -> Option<&'static Path> {
    let places = ["/lib/x86_64-linux-gnu/libpmem.so.1", "/usr/lib64/libpmem.so.1", "/usr/lib/libpmem.so.1"];
    let found = places.into_iter().map(Path::new).find(|path| path.exists());
    if found.is_none() {
        println!(
            "skipped: the comparison with PMDK's libpmem: not installed; remedy: apt-get install libpmem1"
        );
    }
    found
}

/// A command whose program gets our library.
pub(crate) fn with_ours(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", ours());
    command
}

/// Checks that a program gets our library.
#[track_caller]
pub(crate) fn assert_loads_ours(program: impl AsRef<OsStr>) {
    let loaded = run(with_ours(program).env("LD_TRACE_LOADED_OBJECTS", "1"));
    let library = ours().join("libpmem.so.1");
    assert!(loaded.contains(&format!("libpmem.so.1 => {}", library.display())), "{loaded}");
}

/// A new folder, in memory if there is a file system for that.
pub(crate) fn folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new_in(SCRATCH)).unwrap()
}
