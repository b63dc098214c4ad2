//! A C program that prints all that it observes, with our library and with Debian's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::toolchain::{SCRATCH, SOURCE, assert_loads_ours, debians, folder, ours, run, with_ours};

/// The program, linked to our library.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("observe"))
}

/// Compiles a program and links it to our library.
fn compile(name: &str) -> PathBuf {
    let program = Path::new(SCRATCH).join(name);
    run(Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-pthread", "-o"])
        .arg(&program)
        .arg(Path::new(SOURCE).join(format!("tests/c/{name}.c")))
        .arg(ours().join("libpmem.so.1")));
    assert_loads_ours(&program);
    program
}

/// Runs a program in an empty folder.
fn observe(command: &mut Command) -> String {
    let folder = folder();
    run(command.current_dir(folder.path()))
}

#[test]
fn without_memory_functions_work_or_fail() {
    assert_eq!(observe(&mut with_ours(compile("exhausted"))), "");
}

#[test]
fn a_policy_file_that_cannot_be_used_changes_nothing() {
    let program = program();
    let expected = observe(&mut with_ours(program));
    let folder = folder();
    let [file, missing] = ["a.policy", "missing.policy"].map(|name| folder.path().join(name));
    for contents in [&b""[..], b"bulkmem-policy 4\ncpu 0", b"\xff\0", b"bulkmem-policy 4000000000\nend\n"] {
        std::fs::write(&file, contents).unwrap();
        for path in [&file, &missing] {
            assert_eq!(observe(with_ours(program).env("BULKMEM_PROFILE", path)), expected, "{contents:?}");
        }
    }
}

#[test]
fn a_program_observes_the_same_with_both_libraries() {
    let program = program();
    let Some(debians) = debians() else {
        observe(&mut with_ours(program));
        return;
    };
    // Those that choose instructions are tested by single-stepping; here, they must not change what is written.
    let variables: [&[(&str, &str)]; 10] = [
        &[],
        &[("PMEM_IS_PMEM_FORCE", "1")],
        &[("PMEM_IS_PMEM_FORCE", "0")],
        &[("PMEM_IS_PMEM_FORCE", "x")],
        &[("PMEM_IS_PMEM_FORCE", "0"), ("OBSERVE_FORCE", "1")],
        &[("PMEM_IS_PMEM_FORCE", "1"), ("OBSERVE_FORCE", "0")],
        &[("PMEM_NO_FLUSH", "1")],
        &[("PMEM_NO_CLWB", "1"), ("PMEM_NO_CLFLUSHOPT", "1"), ("PMEM_NO_MOVNT", "1")],
        &[("PMEM_MOVNT_THRESHOLD", "0"), ("PMEM_NO_FLUSH", "0")],
        &[("PMEM_MMAP_HINT", "0x100000000000")],
    ];
    for variables in variables {
        let with_ours = observe(with_ours(program).envs(variables.iter().copied()));
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", debians.parent().unwrap()).envs(variables.iter().copied());
        let with_debians = observe(&mut command);
        let mut lines = with_ours.lines().zip(with_debians.lines()).enumerate();
        if let Some((at, (ours, debians))) = lines.find(|(_, (ours, debians))| ours != debians) {
            let before: Vec<_> = with_ours.lines().take(at).skip(at.saturating_sub(4)).collect();
            panic!("{variables:?}\n{}\nours:    {ours}\nDebian's: {debians}", before.join("\n"));
        }
        assert_eq!(with_ours.len(), with_debians.len(), "{variables:?}");
    }
}
