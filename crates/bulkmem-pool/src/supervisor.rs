//! The service manager: sockets and descriptors that it passes, the store in which it keeps descriptors across restarts,
//! and notifications. systemd, or anything with its protocol; without one, everything here does nothing.

use std::env;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt::socket_acceptconn;
use sd_notify::NotifyState;

use crate::protocol::UnitId;
use crate::sys;

/// Name of the watches in the store.
const WATCHES: &str = "watches";

/// Descriptors that the service manager has passed.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Listening sockets.
    pub(crate) listeners: Vec<OwnedFd>,
    /// The watches of an earlier daemon.
    pub(crate) watches: Option<OwnedFd>,
    /// Stored units.
    pub(crate) units: Vec<(UnitId, OwnedFd)>,
}

impl Inherited {
    /// Takes the descriptors that the environment announces. Closes those of an unknown name.
    ///
    /// Call it once, before other threads start.
    pub(crate) fn take() -> io::Result<Inherited> {
        let mut inherited = Inherited::default();
        for (raw, name) in sd_notify::listen_fds_with_names(false)? {
            // SAFETY: the service manager opened it for this process, in which nothing else knows it: the environment
            // names this process, and this function is called once.
            let file = unsafe { sys::adopt(raw) };
            if socket_acceptconn(&file).unwrap_or(false) {
                // systemd passes sockets on that wait.
                fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
                inherited.listeners.push(file);
            } else if name == WATCHES {
                inherited.watches = Some(file);
            } else if let Some(id) = UnitId::parse(&name) {
                inherited.units.push((id, file));
            }
        }
        Ok(inherited)
    }
}

/// Notifications to the service manager.
#[derive(Debug)]
pub(crate) struct Supervisor {
    present: bool,
}

impl Supervisor {
    pub(crate) fn new() -> Supervisor {
        Supervisor { present: env::var_os("NOTIFY_SOCKET").is_some() }
    }

    /// Returns true if there is a service manager.
    pub(crate) fn is_present(&self) -> bool {
        self.present
    }

    /// Puts a unit into the store.
    pub(crate) fn store(&self, id: UnitId, file: impl AsFd) {
        self.store_as(&id.to_string(), file);
    }

    /// Puts the watches into the store.
    pub(crate) fn store_watches(&self, watches: impl AsFd) {
        self.store_as(WATCHES, watches);
    }

    fn store_as(&self, name: &str, file: impl AsFd) {
        // Without FDPOLL=0, the service manager drops descriptors that report an error.
        let state = [NotifyState::FdStore, NotifyState::FdName(name), NotifyState::Custom("FDPOLL=0")];
        if self.present {
            warn(sd_notify::notify_with_fds(false, &state, &[file.as_fd()]));
        }
    }

    /// Removes a unit from the store.
    pub(crate) fn remove(&self, id: UnitId) {
        self.notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(&id.to_string())]);
    }

    /// Reports that the daemon accepts connections.
    pub(crate) fn ready(&self) {
        self.notify(&[NotifyState::Ready]);
    }

    /// Reports that the daemon ends.
    pub(crate) fn stopping(&self) {
        self.notify(&[NotifyState::Stopping]);
    }

    fn notify(&self, state: &[NotifyState]) {
        if self.present {
            warn(sd_notify::notify(false, state));
        }
    }
}

fn warn(notified: io::Result<()>) {
    if let Err(error) = notified {
        log::warn!("the service manager cannot be notified: {error}; a restart will lose ready memory");
    }
}
