//! Scenarios of the first call, one per process: `scenario NAME [OPERATION]`. The exit status is 0 if all is well.
//! Problems are written to standard output, because the library must write nothing to standard error.

mod descriptors;
mod environment;
mod seccomp;
mod stack;
mod threads;
mod work;

#[cfg(target_arch = "x86_64")]
mod fork;
#[cfg(target_arch = "x86_64")]
mod signals;
#[cfg(target_arch = "x86_64")]
mod step;

use std::process::ExitCode;

type Scenario = fn(operation: work::Run) -> Result<(), String>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("exercise", |_| work::right(work::exercise(&mut work::memory()))),
    ("policy", environment::policy),
    ("init", environment::init),
    ("set_later", environment::set_later),
    ("removed_later", environment::removed_later),
    ("closed_descriptors", descriptors::closed),
    ("terminal", descriptors::terminal),
    ("errno", descriptors::errno),
    ("stack", stack::depth),
    ("dead_stores", stack::dead_stores),
    ("strict", seccomp::strict),
    ("no_open", seccomp::no_open),
    ("threads", threads::together),
    ("storm", threads::storm),
    #[cfg(target_arch = "x86_64")]
    ("stepped_first_call", signals::first_call),
    #[cfg(target_arch = "x86_64")]
    ("interrupted_malloc", signals::interrupted_malloc),
    #[cfg(target_arch = "x86_64")]
    ("stepped_fork", fork::at_every_stage),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (name, operation) = (arguments.next().unwrap_or_default(), arguments.next());
    let operation = operation.as_deref().unwrap_or("clear");
    let scenario = SCENARIOS.iter().find(|(known, _)| *known == name);
    let operation = work::OPERATIONS.iter().find(|(known, _)| *known == operation);
    let result = match (scenario, operation) {
        (Some((_, run)), Some((_, operation))) => run(*operation),
        _ => Err(format!("no scenario `{name}`, or no such operation")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("{what}");
            ExitCode::FAILURE
        }
    }
}
