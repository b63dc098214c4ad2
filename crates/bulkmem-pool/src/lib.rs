//! Keeps zeroed memory ready, and hands each unit of it to one program, once.
//!
//! A [`Daemon`] fills memory files (memfd) of configured kinds in the background. A [`Client`] receives one as a descriptor
//! over a Unix socket. No unit is ever taken back or used again, so no memory can leak from one tenant to another:
//! docs/pool-threats.md in bulkmem's repository says what is promised to whom.
//!
//! ```no_run
//! use bulkmem_pool::{Client, Kind, PATIENCE, PageSize, RUNTIME_DIR, memory};
//!
//! let kind = Kind::new(PageSize::Huge2M, 1 << 30, None)?;
//! let client = Client::in_folder(RUNTIME_DIR.as_ref());
//! // From the pool within 50 ms, else fresh memory of the same kind.
//! let memory = memory(&client, &kind, PATIENCE)?;
//! println!("{:?}: {:?}", memory.file, memory.source);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod config;
mod daemon;
mod error;
mod fill;
mod harden;
#[cfg_attr(not(feature = "test-hooks"), allow(unreachable_pub))]
mod hooks;
mod kind;
mod ledger;
mod memory;
pub mod protocol;
mod records;
mod sockets;
mod status;
mod supervisor;
mod sys;
mod unit;
#[cfg(feature = "test-hooks")]
mod weak;

pub use client::{Client, ClientError, Lease, Memory, PATIENCE, RUNTIME_DIR, Source, memory};
pub use config::Config;
pub use daemon::Daemon;
pub use error::DaemonError;
pub use harden::become_user;
pub use hooks::Hooks;
#[cfg(feature = "test-hooks")]
pub use hooks::{Step, Weakness};
pub use kind::{Kind, KindError, PageSize, Supply};
pub use status::{Filling, KindStatus, Status, UserStatus};
