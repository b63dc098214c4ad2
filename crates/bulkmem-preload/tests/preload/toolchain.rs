//! Links the library, compiles programs, and runs them with it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The folder of this crate.
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The folder for files of these tests.
pub(crate) const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

/// Options for C programs whose calls of memcpy and its relatives remain calls, and which contain no others.
const PLAIN: [&str; 12] = [
    "-std=gnu11",
    "-O2",
    "-ftree-vectorize",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=0",
    "-Wl,-z,now",
];

/// Runs a command.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a command, which must succeed without a message on the standard error, and returns its output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = output(command);
    let [printed, complaints] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success() && complaints.is_empty(), "{command:?}: {status}\n{printed}\n{complaints}");
    printed
}

/// The library that `scripts/link-c.sh` makes of what cargo built for these tests.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(SCRATCH).join("preload");
        let script = Path::new(SOURCE).join("../../scripts/link-c.sh");
        run(Command::new(script)
            .arg("preload")
            .arg(testkit::archive::archive("bulkmem_preload"))
            .arg(&folder));
        folder.join("libbulkmem_preload.so")
    })
}

/// Compiles a program or library in C.
pub(crate) fn compile(compiler: &str, source: &str, options: &[&str], name: &str) -> PathBuf {
    let folder = Path::new(SCRATCH).join("preload-c");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    // The libraries of tests come after the source that needs them, and programs find them.
    let mut command = Command::new(compiler);
    command.arg("-o").arg(&program).arg(Path::new(SOURCE).join("tests/c").join(source)).args(options);
    run(command.arg(format!("-L{0}", folder.display())));
    program
}

/// As [`compile`], with gcc, calls that remain calls, and libraries of tests.
pub(crate) fn compile_plain(source: &str, options: &[&str], name: &str) -> PathBuf {
    let path = format!("-Wl,-rpath,{SCRATCH}/preload-c,-rpath-link,{SCRATCH}/preload-c");
    compile("cc", source, &[&PLAIN, options, &[path.as_str()]].concat(), name)
}

/// The program of that name and source.
pub(crate) fn functions() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile_plain("functions.c", &[], "functions"))
}

/// The program of that name and source, with its two libraries.
pub(crate) fn situations() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        compile_plain("resolver.c", &["-shared", "-fPIC"], "libresolver.so");
        compile_plain("early.c", &["-shared", "-fPIC", "-lresolver"], "libearly.so");
        compile_plain("situations.c", &["-learly", "-ldl"], "situations")
    })
}

/// A command whose program gets the library, with the measured policy from the shortest length on.
pub(crate) fn preloaded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("BULKMEM_FROM", "0");
    command
}
