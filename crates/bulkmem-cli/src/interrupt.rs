//! Ctrl-C: the first one ends the command in order, the second immediately.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Exit, Failure};

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP (a closed terminal) sets. A second one ends the process with
/// the exit code of an interrupted command.
pub(crate) fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let raised = Arc::new(AtomicBool::new(false));
    let register = |signal| {
        // In this order, so that the first signal finds the flag unset and does not end the process.
        flag::register_conditional_shutdown(signal, u8::from(Exit::Interrupted).into(), Arc::clone(&raised))?;
        flag::register(signal, Arc::clone(&raised))
    };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        register(signal).map_err(|error| Failure::new(format!("cannot watch for Ctrl-C: {error}")))?;
    }
    Ok(raised)
}

/// Returns true if the process was started with a signal ignored, as nohup(1) does with SIGHUP.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
