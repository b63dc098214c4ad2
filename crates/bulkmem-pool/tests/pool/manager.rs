//! A service manager that keeps a socket and stored descriptors across restarts of the daemon, as systemd does.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use bulkmem_pool::{Client, Config};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketType, bind,
    listen, recvmsg, socket,
};
use tempfile::TempDir;

use crate::pool::{POOL_USER, serve};
use crate::process::Child;

pub(crate) struct Manager {
    listener: OwnedFd,
    notify: UnixDatagram,
    path: PathBuf,
    /// Descriptors by name, in the order in which they came.
    pub(crate) store: Vec<(String, OwnedFd)>,
    pub(crate) ready: usize,
}

impl Manager {
    pub(crate) fn new(folder: &TempDir) -> Manager {
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        let at = crate::pool::socket(folder);
        bind(&listener, &SocketAddrUnix::new(&at).expect("a short path")).expect("a new path");
        listen(&listener, 64).expect("it listens");
        let path = folder.path().join("notify");
        let notify = UnixDatagram::bind(&path).expect("a new path");
        notify.set_nonblocking(true).expect("a flag");
        for path in [&at, &path] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).expect("it is ours");
        }
        Manager { listener, notify, path, store: Vec::new(), ready: 0 }
    }

    pub(crate) fn client(folder: &TempDir) -> Client {
        Client::new(crate::pool::socket(folder))
    }

    /// Starts a daemon that inherits the socket and all stored descriptors.
    pub(crate) fn start(&self, config: Config) -> Child {
        let names = self.store.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = std::iter::once("bulkmem-pool.socket").chain(names).collect();
        let files = self.store.iter().map(|(_, file)| file.as_fd());
        let files: Vec<_> = std::iter::once(self.listener.as_fd()).chain(files).collect();
        Child::fork(|_| {
            let high =
                |file| std::mem::ManuallyDrop::new(fcntl_dupfd_cloexec(file, 500).expect("a descriptor"));
            let high: Vec<_> = files.iter().map(high).collect();
            for (at, file) in high.iter().enumerate() {
                let at = 3 + i32::try_from(at).expect("few descriptors");
                // SAFETY: the child owns all its descriptors, and uses none of those that it replaces. The flag is cleared,
                // as the service manager does.
                let moved = unsafe { libc::dup2(file.as_raw_fd(), at) };
                assert_eq!(moved, at);
            }
            let first = 3 + u32::try_from(high.len()).expect("few descriptors");
            // SAFETY: a started daemon has none of its manager's descriptors; the child uses none of them, and ends without
            // destructors.
            unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
            for (name, value) in [
                ("LISTEN_PID", std::process::id().to_string()),
                ("LISTEN_FDS", names.len().to_string()),
                ("LISTEN_FDNAMES", names.join(":")),
                ("NOTIFY_SOCKET", self.path.display().to_string()),
            ] {
                // SAFETY: the process has one thread.
                unsafe { std::env::set_var(name, value) };
            }
            bulkmem_pool::become_user(POOL_USER, POOL_USER).expect("the tests run as root");
            serve(config);
        })
    }

    /// Reads what daemons have sent, also those that have died since.
    pub(crate) fn read(&mut self) {
        loop {
            let mut bytes = [0; 512];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let Ok(received) = recvmsg(&self.notify, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
            else {
                return;
            };
            let files = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            });
            let mut files: Vec<OwnedFd> = files.flatten().collect();
            let text = String::from_utf8(bytes[..received.bytes].to_vec()).expect("text");
            let name =
                text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("stored").to_owned();
            for line in text.lines() {
                match line {
                    "READY=1" => self.ready += 1,
                    "FDSTORE=1" => self.store.extend(files.pop().map(|file| (name.clone(), file))),
                    "FDSTOREREMOVE=1" => self.store.retain(|(it, _)| *it != name),
                    _ => {}
                }
            }
        }
    }

    /// Returns the number of stored units.
    pub(crate) fn units(&self) -> usize {
        self.store.iter().filter(|(name, _)| name.len() == 32).count()
    }
}
