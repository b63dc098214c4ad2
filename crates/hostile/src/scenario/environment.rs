//! Prints what the policy is based on.

use bulkmem::policy::{Basis, Policy};

use crate::work::{self, Run};

/// Returns the basis of the process-wide policy, and the forced methods, in one line.
fn facts() -> String {
    let origin = Policy::global().origin();
    let basis = match origin.basis {
        Basis::Profile { .. } => "profile",
        Basis::Defaults { .. } => "defaults",
        _ => "something else",
    };
    let forced: Vec<String> =
        origin.forced.iter().map(|(operation, choice)| format!("{operation}:{choice}")).collect();
    format!("basis {basis}, forced {forced:?}")
}

/// Prints whether the process runs with another user's rights, and the basis of the policy.
pub(crate) fn policy(operation: Run) -> Result<(), String> {
    work::right(operation(&mut work::memory(), 5000))?;
    // SAFETY: getauxval has no precondition.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    println!("{}{}", if secure { "secure, " } else { "" }, facts());
    Ok(())
}

/// Prints the problems with the environment.
pub(crate) fn init(_: Run) -> Result<(), String> {
    let refused = bulkmem::init().err();
    let mut error = refused.as_ref().map(|error| error as &dyn std::error::Error);
    while let Some(cause) = error {
        println!("{cause}: {cause:?}");
        error = cause.source();
    }
    work::right(work::exercise(&mut work::memory()))
}

fn expect(forced: &str) -> Result<(), String> {
    work::right(work::exercise(&mut work::memory()))?;
    let found = facts();
    if found.ends_with(forced) { Ok(()) } else { Err(format!("{found} instead of {forced}")) }
}

/// A variable that is set between the start and the first call is not read.
pub(crate) fn set_later(_: Run) -> Result<(), String> {
    // SAFETY: there is no other thread.
    unsafe { std::env::set_var("BULKMEM_METHOD", "clear:portable") };
    expect("forced []")
}

/// A variable that was set at the start and is removed before the first call is read.
pub(crate) fn removed_later(_: Run) -> Result<(), String> {
    // SAFETY: there is no other thread.
    unsafe { std::env::remove_var("BULKMEM_METHOD") };
    expect(r#"forced ["clear:portable"]"#)
}
