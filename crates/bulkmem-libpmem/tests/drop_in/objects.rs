//! A program with transactions of Debian's libpmemobj, which writes by libpmem: what it wrote with one library, the other one must
//! find, also after it was killed within a transaction.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use crate::toolchain::{SCRATCH, SOURCE, assert_loads_ours, folder, installed, run, with_ours};

/// The program; `None` if libpmemobj is not installed, which is printed.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        if !Path::new("/usr/include/libpmemobj.h").exists() {
            println!(
                "skipped: libpmemobj with our libpmem: not installed; remedy: apt-get install libpmemobj-dev"
            );
            return None;
        }
        let program = Path::new(SCRATCH).join("objects");
        run(Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wno-clobbered", "-Werror", "-o"])
            .arg(&program)
            .arg(Path::new(SOURCE).join("tests/c/objects.c"))
            .arg("-lpmemobj"));
        assert_loads_ours(&program);
        Some(program)
    };
    PROGRAM.get_or_init(build).as_deref()
}

/// A command whose program gets our libpmem, or Debian's.
fn with(ours: bool, program: &Path) -> Command {
    let mut command = if ours { with_ours(program) } else { Command::new(program) };
    if !ours {
        command.env_remove("LD_LIBRARY_PATH");
    }
    command.env("PMEM_IS_PMEM_FORCE", "1");
    command
}

/// More steps than the program executes before it is killed. If the test itself is killed, the program still ends.
const ENDLESS: &str = "100000";

const PAIRS: [(bool, bool); 3] = [(true, false), (false, true), (true, true)];

/// Checks the pool with a libpmem, and returns how many steps it has.
fn check(ours: bool, program: &Path, folder: &Path, seed: &str) -> u64 {
    if installed("pmempool", "pmdk-tools") {
        let checked =
            run(with(ours, Path::new("pmempool")).current_dir(folder).args(["check", "-v", "pool"]));
        assert!(checked.contains("pool: consistent"), "{checked}");
    }
    let printed = run(with(ours, program).current_dir(folder).args(["check", "pool", seed]));
    let steps = printed.split(' ').next().unwrap();
    steps.parse().unwrap_or_else(|_| panic!("{printed}"))
}

#[test]
fn each_library_finds_the_objects_that_the_other_one_wrote() {
    let Some(program) = program() else { return };
    for (seed, (writer, reader)) in PAIRS.into_iter().enumerate() {
        let (folder, seed) = (folder(), seed.to_string());
        let printed =
            run(with(writer, program).current_dir(folder.path()).args(["write", "pool", &seed, "600"]));
        assert_eq!(printed, "ready\n600 steps\n");
        assert_eq!(check(reader, program, folder.path(), &seed), 600);
    }
}

#[test]
fn each_library_finds_whole_transactions_of_a_killed_program() {
    let Some(program) = program() else { return };
    let mut steps = 0;
    for (number, (writer, reader)) in PAIRS.into_iter().cycle().take(9).enumerate() {
        let (folder, seed) = (folder(), number.to_string());
        let mut command = with(writer, program);
        command.current_dir(folder.path()).args(["write", "pool", &seed, ENDLESS]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        sleep(Duration::from_millis(3 + 23 * u64::try_from(number).unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        steps += check(reader, program, folder.path(), &seed);
    }
    assert!(steps > 0, "it was always killed before the first transaction");
}
