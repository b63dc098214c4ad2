//! Tells the crate which commit it is built from, where it is built in a checkout of its own.

use std::path::Path;
use std::process::Command;

fn main() {
    for watched in ["src", "build.rs", "Cargo.toml", "../bulkmem/src"] {
        if Path::new(watched).exists() {
            println!("cargo::rerun-if-changed={watched}");
        }
    }
    // A checkout that merely contains a copy of this crate tells nothing about it.
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return;
    }
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["describe", "--always", "--dirty", "--tags", "--abbrev=12"]) {
        println!("cargo::rustc-env=BULKMEM_COMMIT={commit}");
    }
}

/// What git prints; `None` where there is no git, or it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
