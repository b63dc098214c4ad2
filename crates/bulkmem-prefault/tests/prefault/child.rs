//! Runs a test again in a process of its own, where it can change limits.

use std::process::Command;

const VARIABLE: &str = "BULKMEM_PREFAULT_TEST";

/// Returns true in the child. In the parent, runs the test named `name` in a child after `prepare`, and checks that it
/// passes.
pub(crate) fn is_child(name: &str, prepare: &dyn Fn(&mut Command)) -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(VARIABLE, "1");
    prepare(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| println!("{line}"));
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
    false
}
