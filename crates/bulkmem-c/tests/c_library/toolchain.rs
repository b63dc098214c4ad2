//! Installs the library and runs compilers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use bulkmem::machine::{CpuIdentity, Machine};
use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION};

/// The folder of this crate.
pub(crate) const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The folder for files of these tests.
pub(crate) const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

/// Every warning is an error.
pub(crate) const WARNINGS: [&str; 7] = ["-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"];

/// Runs a command, which must succeed, and returns its output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (printed, complaints) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{printed}\n{complaints}", output.status);
    printed
}

/// Runs a program, which must succeed and print nothing.
#[track_caller]
pub(crate) fn run_silently(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let silent = output.stdout.is_empty() && output.stderr.is_empty();
    assert!(output.status.success() && silent, "{command:?}: {output:?}");
}

/// True if a program is installed. Prints what is skipped without it.
pub(crate) fn installed(program: &str, skipped: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = status.is_ok_and(|status| status.success());
    if !there {
        println!("skipped: {skipped}: {program} is not installed");
    }
    there
}

/// The folder where `make install-c` has installed the library that cargo built for these tests.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(SCRATCH).join("c_library");
        _ = fs::remove_dir_all(&prefix);
        let script = Path::new(SOURCE).join("../../scripts/install-c.sh");
        // Elsewhere than PREFIX says, as packages do it; `prefix` below gets what is in that folder.
        let staging = Path::new(SCRATCH).join("c_library.staging");
        _ = fs::remove_dir_all(&staging);
        run(Command::new(script)
            .arg(testkit::archive::archive("bulkmem_c"))
            .env("PREFIX", &prefix)
            .env("DESTDIR", &staging));
        let staged = staging.join(prefix.strip_prefix("/").unwrap());
        fs::rename(staged, &prefix).unwrap();
        prefix
    })
}

/// A policy file that looks at clears and fills of 8 KiB or more, and always finds the memory uncached.
fn policy() -> &'static Path {
    static POLICY: OnceLock<PathBuf> = OnceLock::new();
    POLICY.get_or_init(|| {
        let CpuIdentity { vendor, family, model, stepping, .. } = &Machine::current().cpu;
        let mut text =
            format!("{POLICY_FORMAT} {POLICY_VERSION}\ncpu {family} {model} {stepping} {vendor}\n");
        for operation in ["clear", "fill"] {
            for (situation, method) in
                [("throughput", "portable"), ("cached", "c_library"), ("uncached", "portable")]
            {
                text += &format!("rule {operation} {situation} 0 {method}\n");
            }
            text += &format!("look {operation} 8192 1 4000000000 c_library\n");
        }
        let path = Path::new(SCRATCH).join("looking.policy");
        fs::write(&path, text + "end\n").unwrap();
        path
    })
}

/// A command that finds the installed library by pkg-config and, when it runs a program, by the dynamic linker; and a policy
/// file by the variable `POLICY`.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let libraries = prefix().join("lib");
    let mut command = Command::new(program);
    command.env("PKG_CONFIG_PATH", libraries.join("pkgconfig")).env("LD_LIBRARY_PATH", libraries);
    command.env("POLICY", policy());
    command
}

/// How a program is linked to the library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Linkage {
    Shared,
    Static,
    /// The program loads it.
    Loaded,
}

impl Linkage {
    /// Those for programs that call the library's functions by name.
    pub(crate) const ALL: [Linkage; 2] = [Linkage::Shared, Linkage::Static];
}

/// Compiles a program and returns its path.
pub(crate) fn compile(compiler: &[&str], source: &Path, linkage: Linkage) -> PathBuf {
    let stem = source.file_stem().unwrap().to_str().unwrap();
    let name = format!("{}-{stem}-{linkage:?}", compiler.join("")).replace(['=', '+', ',', '/'], "_");
    let program = Path::new(SCRATCH).join(name);
    let library = match linkage {
        Linkage::Shared => "-lbulkmem",
        Linkage::Static => "-l:libbulkmem.a",
        Linkage::Loaded => "-ldl",
    };
    run(Command::new(compiler[0])
        .args(&compiler[1..])
        .args(WARNINGS)
        .args(["-pthread", "-o"])
        .arg(&program)
        .arg(source)
        // Files before it are in the language that `-x` names, and libraries are not.
        .args(["-x", "none"])
        .arg("-I")
        .arg(prefix().join("include"))
        .arg("-L")
        .arg(prefix().join("lib"))
        .args([library, "-ldl", "-lm"]));
    program
}
