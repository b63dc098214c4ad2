//! Test programs do not see profiles and variables of the user. cargo starts them through `scripts/isolated.sh`,
//! which `.cargo/config.toml` names. These tests show that it does, and that profiles and variables that change the
//! policy elsewhere change nothing in a test program.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use bulkmem::policy::Policy;
use bulkmem::{Intent, Operation};
use libtest_mimic::Failed;
use testkit::harness::Suite;

/// The argument that makes this program print [`report`] and exit.
const REPORT: &str = "report";
/// Path of the script.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/isolated.sh");

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == REPORT) {
        print!("{}", report());
        return ExitCode::SUCCESS;
    }
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    suite.test("this_program_was_started_without_a_home_and_variables", this_program);
    suite.test("a_poisoned_home_changes_nothing", || changes_nothing("basis: profile", |_, _| {}));
    suite.test("poisoned_variables_change_nothing", || {
        changes_nothing("forced: [(copy", |command, profile| {
            command.env("BULKMEM_PROFILE", profile).env("BULKMEM_METHOD", "copy:portable");
        })
    });
    suite.test("a_program_that_is_no_test_keeps_its_environment", other_programs);
    suite.run()
}

/// Returns the process-wide policy and the user's variables in this process.
fn report() -> String {
    let policy = Policy::global();
    let mut lines = vec![format!("{:?}", policy.origin())];
    for operation in Operation::ALL {
        lines.extend(policy.rules(operation, Intent::Throughput).iter().map(|rule| format!("{rule:?}")));
    }
    lines.extend(std::env::vars_os().filter(|(name, _)| users(name)).map(|variable| format!("{variable:?}")));
    lines.join("\n")
}

/// True for variables with which a user changes what programs do.
fn users(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name == "HOME" || name.starts_with("XDG_") || name.starts_with("BULKMEM_")
}

fn this_program() -> Result<(), Failed> {
    let seen: Vec<_> = std::env::vars_os().filter(|(name, _)| users(name)).collect();
    if seen != [("HOME".into(), "/dev/null".into())] {
        let remedy = "run it by `cargo test`, or by scripts/isolated.sh";
        return Err(format!("this program was started with {seen:?}; {remedy}").into());
    }
    Ok(())
}

/// Runs this program with a planted profile in its home: directly, which must show the profile, and through the
/// script, which must not.
fn changes_nothing(shows: &str, also: impl Fn(&mut Command, &Path)) -> Result<(), Failed> {
    let home = tempfile::tempdir()?;
    let profile = home.path().join(".config/bulkmem/profile.policy");
    testkit::profile::write(&profile);
    let this = std::env::current_exe()?;
    let run = |mut command: Command| {
        command.arg(REPORT).env("HOME", home.path()).env("XDG_CONFIG_HOME", home.path().join(".config"));
        also(&mut command, &profile);
        let output = command.output()?;
        Ok::<String, Failed>(String::from_utf8_lossy(&output.stdout).to_lowercase())
    };
    let control = run(Command::new(&this))?;
    if !control.contains(shows) {
        return Err(format!("the poison has no effect on a program that reads it:\n{control}").into());
    }
    let mut isolated = Command::new(SCRIPT);
    isolated.arg("--tests-only").arg(&this);
    let (found, expected) = (run(isolated)?, report().to_lowercase());
    if found != expected {
        return Err(format!("in a poisoned home:\n{found}\nin this process:\n{expected}").into());
    }
    Ok(())
}

fn other_programs() -> Result<(), Failed> {
    let command = ["--tests-only", "/bin/sh", "-c", "echo $BULKMEM_METHOD"];
    let output = Command::new(SCRIPT).args(command).env("BULKMEM_METHOD", "kept").output()?;
    if output.stdout != b"kept\n" {
        return Err(format!("{output:?}").into());
    }
    Ok(())
}
