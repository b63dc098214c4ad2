//! Programs that tests start.

use std::ffi::OsStr;
use std::process::Command;

/// Emulator and its arguments, separated by spaces, for tests of another architecture.
const EMULATOR: &str = "BULKMEM_TEST_EMULATOR";

/// Returns true if the programs of this test run under an emulator.
pub fn emulated() -> bool {
    std::env::var_os(EMULATOR).is_some()
}

/// Returns a command that runs a program which was built for the architecture of this test: under the emulator that the
/// variable `BULKMEM_TEST_EMULATOR` names, if it is set, because the kernel does not execute programs of other architectures.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let emulator = std::env::var(EMULATOR).unwrap_or_default();
    let mut words = emulator.split_whitespace();
    match words.next() {
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Returns a command that runs this program again.
///
/// # Panics
/// If the kernel does not say which file it is.
pub fn again() -> Command {
    command(std::env::current_exe().expect("this program has a file"))
}
