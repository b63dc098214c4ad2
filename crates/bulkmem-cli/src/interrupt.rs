//! Ctrl-C: the first one asks for an orderly end, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, INTERRUPTED};

/// A flag that the first SIGINT or SIGTERM raises; a second one ends the process with the exit code of an
/// interrupted command.
pub(crate) fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let raised = Arc::new(AtomicBool::new(false));
    let register = |signal| {
        // In this order: the handler that ends the process must see the flag as the signal before left it.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&raised))?;
        flag::register(signal, Arc::clone(&raised))
    };
    for signal in [SIGINT, SIGTERM] {
        register(signal).map_err(|error| Failure::new(format!("cannot watch for Ctrl-C: {error}")))?;
    }
    Ok(raised)
}
