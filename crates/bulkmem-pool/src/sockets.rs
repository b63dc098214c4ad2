//! Sockets and connections of the daemon. Nothing here waits: a client that is silent or does not read costs one
//! descriptor for a short time.

use std::fs::{self, File, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, UCred, accept_with, bind, listen, recv, sendmsg, socket_with,
};

use crate::client::tenant_socket;
use crate::error::DaemonError;
use crate::protocol::{REQUEST_BYTES, Response};

/// Connections that the kernel queues for each socket.
const BACKLOG: i32 = 128;

/// The daemon's folder, locked against a second daemon.
#[derive(Debug)]
pub(crate) struct RuntimeDir {
    _lock: File,
}

impl RuntimeDir {
    pub(crate) fn open(path: &Path) -> Result<RuntimeDir, DaemonError> {
        let wrong = |source| DaemonError::Runtime { path: path.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(wrong)?;
        let lock = File::create(path.join("lock")).map_err(wrong)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(RuntimeDir { _lock: lock }),
            Err(rustix::io::Errno::AGAIN) => Err(DaemonError::Running { path: path.to_owned() }),
            Err(error) => Err(wrong(error.into())),
        }
    }
}

/// Creates the socket for all users, and one for each tenant that only it can open.
pub(crate) fn create(folder: &Path, mode: u32, tenants: &[u32]) -> Result<Vec<OwnedFd>, DaemonError> {
    let mut sockets = vec![create_one(folder.join("socket"), mode, None)?];
    for user in tenants {
        sockets.push(create_one(tenant_socket(folder, *user), 0o600, Some(*user))?);
    }
    Ok(sockets)
}

fn create_one(path: PathBuf, mode: u32, owner: Option<u32>) -> Result<OwnedFd, DaemonError> {
    let create = || -> io::Result<OwnedFd> {
        // The lock of the folder shows that no other daemon uses it.
        match fs::symlink_metadata(&path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(&path)?,
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file has its name")),
            Err(_) => {}
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        // Nobody can connect before the call of listen.
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        if let Some(user) = owner {
            chown(&path, Some(user), None)?;
        }
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    create().map_err(|source| DaemonError::Socket { path: path.clone(), source })
}

/// A client that has connected and not sent its request yet.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    /// The client's process, user and group when it connected, which the kernel vouches for.
    pub(crate) peer: UCred,
    /// The time at which the connection is closed if it has sent nothing.
    pub(crate) deadline: Instant,
}

impl Connection {
    /// Accepts the next connection, if there is one.
    pub(crate) fn accept(listener: impl AsFd, silence: Duration) -> io::Result<Option<Connection>> {
        let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let peer = socket_peercred(&socket)?;
        Ok(Some(Connection { socket, peer, deadline: Instant::now() + silence }))
    }

    pub(crate) fn user(&self) -> u32 {
        self.peer.uid.as_raw()
    }

    /// Reads the request. `None` if the client has closed the connection. Descriptors that come with it are not received.
    pub(crate) fn request(&self) -> io::Result<Option<Vec<u8>>> {
        // One byte more than a request, so that a longer message is refused.
        let mut bytes = vec![0; REQUEST_BYTES + 1];
        let (_, received) = recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT)?;
        bytes.truncate(received);
        Ok((received > 0).then_some(bytes))
    }

    /// Sends the response, with a descriptor if there is one.
    pub(crate) fn respond(&self, response: &Response, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        let bytes = response.encode();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.socket, &[io::IoSlice::new(&bytes)], &mut control, flags)?;
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_socket_is_replaced_and_another_file_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            create(folder.path(), 0o600, &[]).unwrap();
        }
        let path = folder.path().join("socket");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "kept").unwrap();
        let error = create(folder.path(), 0o600, &[]).unwrap_err();
        assert!(matches!(error, DaemonError::Socket { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }
}
