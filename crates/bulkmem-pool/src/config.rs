//! The configuration of a daemon.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::client::RUNTIME_DIR;
use crate::hooks::Hooks;
use crate::kind::Supply;

/// The configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kinds of units and their numbers.
    pub supplies: Vec<Supply>,
    /// The folder for sockets and records, which is created if it does not exist.
    pub runtime_dir: PathBuf,
    /// Users with a socket of their own. Without a service manager that passes sockets.
    pub tenants: Vec<u32>,
    /// Mode of the socket for all users.
    pub socket_mode: u32,
    /// Bytes that each user may have. `None`: as many as the ready units of all kinds have.
    pub quota: Option<u64>,
    /// Bytes that single users may have, in place of `quota`.
    pub user_quotas: HashMap<u32, u64>,
    /// Bytes per second that are filled at most, or `None` for as many as the machine can.
    pub rate: Option<u64>,
    /// Percentage of the memory, and of the huge pages of each size, that the pool leaves to others.
    pub keep_free: u8,
    /// Percentage of time for which tasks may wait for memory before ready units are freed.
    pub pressure: u8,
    /// Open connections of all users.
    pub max_connections: usize,
    /// Open connections of one user.
    pub user_connections: usize,
    /// Time in which a connection must send its request.
    pub silence: Duration,
    /// Restrict system calls.
    pub filter_system_calls: bool,
    /// The folder above /proc and /sys, for tests.
    pub root: PathBuf,
    /// Failpoints and weaknesses, for tests.
    pub hooks: Hooks,
}

impl Config {
    /// Returns the default configuration for these supplies.
    pub fn new(supplies: Vec<Supply>) -> Config {
        Config {
            supplies,
            runtime_dir: PathBuf::from(RUNTIME_DIR),
            tenants: Vec::new(),
            socket_mode: 0o660,
            quota: None,
            user_quotas: HashMap::new(),
            rate: Some(1 << 30),
            keep_free: 5,
            pressure: 10,
            max_connections: 512,
            user_connections: 16,
            silence: Duration::from_secs(1),
            filter_system_calls: true,
            root: PathBuf::from("/"),
            hooks: Hooks::default(),
        }
    }

    /// Returns the bytes that a user may have.
    pub(crate) fn quota_of(&self, user: u32) -> u64 {
        let all = || self.supplies.iter().map(|it| it.kind.unit.saturating_mul(it.count.into())).sum();
        self.user_quotas.get(&user).copied().or(self.quota).unwrap_or_else(all)
    }
}
