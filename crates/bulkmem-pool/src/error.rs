//! The error of the daemon.

use std::io;
use std::path::PathBuf;

use crate::kind::Kind;

/// The reason why a daemon cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Nothing to keep ready.
    #[error("no memory to keep ready: name at least one kind of unit")]
    NoSupply,
    /// A kind of unit is named twice.
    #[error("units of {kind} are named twice: name them once, with the sum of the counts")]
    Twice {
        /// The kind.
        kind: Kind,
    },
    /// More units than descriptors.
    #[error(
        "{units} ready units need as many descriptors, and the limit is {limit}: raise it (ulimit -n, LimitNOFILE=), or keep fewer, larger units"
    )]
    Descriptors {
        /// The number of units.
        units: u64,
        /// The limit of the process.
        limit: u64,
    },
    /// The folder of the daemon cannot be used.
    #[error("{} cannot be used; name another folder, or run as a user that may write there", .path.display())]
    Runtime {
        /// The folder.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another daemon uses the folder.
    #[error("a daemon already uses {}: stop it first, or name another folder", .path.display())]
    Running {
        /// The folder.
        path: PathBuf,
    },
    /// A socket cannot be created.
    #[error("the socket {} cannot be created; sockets of tenants need root or CAP_CHOWN", .path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The system calls of the process cannot be restricted.
    #[error("system calls cannot be restricted; the kernel needs CONFIG_SECCOMP_FILTER")]
    Seccomp(#[from] seccompiler::Error),
    /// Any other error of a system call.
    #[error("the kernel refused to {doing}")]
    System {
        /// The action.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}
