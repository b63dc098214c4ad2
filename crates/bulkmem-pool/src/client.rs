//! The client: requests a unit with a deadline, and falls back to fresh memory.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};

use crate::kind::{Kind, PageSize};
use crate::protocol::{Code, Malformed, RESPONSE_BYTES, Request, Response, UnitId};
use crate::status::Status;
use crate::sys;
use crate::unit::{is_sealed_unit, memory_file};

/// The daemon's folder, unless another one is configured.
pub const RUNTIME_DIR: &str = "/run/bulkmem-pool";

/// The time after which [`memory`] stops waiting for the daemon, unless the caller gives another one.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// A client of a daemon. It connects anew for each request.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// The reason why the pool gave no memory.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon accepts connections.
    #[error(
        "no pool listens at {} for this user; start one with `bulkmem pool serve`, or join the group of its socket",
        .socket.display()
    )]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The daemon did not answer in time.
    #[error("the pool did not answer within {} ms: `bulkmem pool status` shows its state", .0.as_millis())]
    Timeout(Duration),
    /// The connection failed.
    #[error("the connection to the pool failed; the daemon's messages may say why")]
    Connection(#[from] io::Error),
    /// The response is not one of this version of the protocol.
    #[error("the pool's answer cannot be used; check what listens at its socket")]
    Malformed(#[from] Malformed),
    /// The response has no descriptor, or not one of the requested memory.
    #[error("the pool sent something other than the requested memory: check what listens at its socket")]
    NotMemory,
    /// The daemon has no unit for this request.
    #[error("{}", meaning(*.0))]
    Rejected(Code),
}

/// Returns the meaning of a code for the user, with the remedy.
fn meaning(code: Code) -> &'static str {
    match code {
        Code::Ok => "the pool reports success",
        Code::Empty => {
            "the pool has no such unit ready: wait until it is filled, or keep more of them with `bulkmem pool serve \
             --keep`"
        }
        Code::NoSuchKind => {
            "the pool keeps no units of this length, page size and node: `bulkmem pool status` lists those that it has"
        }
        Code::OverQuota => {
            "the memory that this user has from the pool would exceed the quota: end a program that has some, or raise \
             the quota with `bulkmem pool serve --quota`"
        }
        Code::Malformed => {
            "the pool did not understand the request: install client and daemon from the same release"
        }
        Code::Refused => {
            "the pool may not give memory to this user: the daemon needs the capability CAP_CHOWN, or must run as the \
             same user"
        }
        Code::Busy => "the pool has reached a limit of the system: the daemon's messages name it",
    }
}

/// A unit of the pool. No other process has seen its memory, and none but the receivers of this descriptor ever will.
#[derive(Debug)]
pub struct Lease {
    /// The name of the unit.
    pub id: UnitId,
    /// The memory file, sealed against changes of its length. It is closed on exec.
    pub file: OwnedFd,
}

impl Client {
    /// Creates a client of the daemon with this socket.
    pub fn new(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into() }
    }

    /// Creates a client of the daemon with this folder: uses the socket of this user if there is one, else that for all.
    pub fn in_folder(folder: &Path) -> Client {
        let own = tenant_socket(folder, rustix::process::getuid().as_raw());
        Client::new(if own.exists() { own } else { folder.join("socket") })
    }

    /// Returns the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Requests one unit. The lease ends when its last descriptor and mapping are gone.
    ///
    /// # Errors
    /// If the pool does not give a unit within `patience`.
    pub fn lease(&self, kind: &Kind, patience: Duration) -> Result<Lease, ClientError> {
        let (response, file) = self.request(&Request::Lease(*kind), patience)?;
        match file {
            Some(file) if response.bytes == kind.unit && is_sealed_unit(&file, kind.unit) => {
                Ok(Lease { id: response.id, file })
            }
            _ => Err(ClientError::NotMemory),
        }
    }

    /// Requests the state of the pool.
    ///
    /// # Errors
    /// If the pool does not answer within `patience`, or not with a state.
    pub fn status(&self, patience: Duration) -> Result<Status, ClientError> {
        let (response, file) = self.request(&Request::Status, patience)?;
        let file = file.filter(|file| is_sealed_unit(file, response.bytes)).ok_or(ClientError::NotMemory)?;
        serde_json::from_reader(io::BufReader::new(std::fs::File::from(file)))
            .map_err(|_| ClientError::NotMemory)
    }

    /// Sends one request and waits for the response, with the descriptor that comes with it.
    ///
    /// # Errors
    /// If the response does not come within `patience`, is malformed, or has a code other than [`Code::Ok`].
    pub fn request(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<(Response, Option<OwnedFd>), ClientError> {
        let deadline = Instant::now() + patience;
        let socket =
            self.connect().map_err(|source| ClientError::Connect { socket: self.socket.clone(), source })?;
        send(&socket, &request.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            .map_err(io::Error::from)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let time = Timespec::try_from(left).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&time)) {
                Ok(0) => return Err(ClientError::Timeout(patience)),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(ClientError::Connection(error.into())),
            }
        }
        let (response, file) = receive(&socket)?;
        if response.code == Code::Ok {
            Ok((response, file))
        } else {
            Err(ClientError::Rejected(response.code))
        }
    }

    /// Connects without waiting: the backlog of a daemon that hangs fills up.
    fn connect(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(&self.socket)?)?;
        Ok(socket)
    }
}

/// Returns the path of the socket of one tenant.
pub(crate) fn tenant_socket(folder: &Path, user: u32) -> PathBuf {
    folder.join(format!("{user}.socket"))
}

fn receive(socket: impl AsFd) -> Result<(Response, Option<OwnedFd>), ClientError> {
    // One byte more than a response, so that a longer message is refused.
    let mut bytes = [0; RESPONSE_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
        .map_err(io::Error::from)?;
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            file = files.next();
        }
    }
    if received.bytes == 0 {
        let closed = io::Error::new(io::ErrorKind::ConnectionReset, "the daemon closed it without an answer");
        return Err(ClientError::Connection(closed));
    }
    Ok((Response::decode(&bytes[..received.bytes.min(RESPONSE_BYTES + 1)])?, file))
}

/// Memory from [`memory`].
#[derive(Debug)]
pub struct Memory {
    /// The memory file. It is closed on exec.
    pub file: OwnedFd,
    /// The source of the memory.
    pub source: Source,
}

/// The source of memory.
#[derive(Debug)]
pub enum Source {
    /// A unit of the pool: zeroed, with all its pages.
    Pool(UnitId),
    /// A fresh file of the same page size, whose pages are allocated at page faults. The reason is that of the pool.
    Fresh(ClientError),
    /// A fresh file of base pages, because there are too few huge pages. The reasons are those of the pool and of the kernel.
    FreshBase(ClientError, io::Error),
}

/// Returns memory of a kind: from the pool if it gives some within `patience`, else a fresh file, so that a caller is never
/// worse off than without a pool.
///
/// # Errors
/// If the kernel cannot create a memory file, or the requested node does not exist.
pub fn memory(client: &Client, kind: &Kind, patience: Duration) -> io::Result<Memory> {
    let reason = match client.lease(kind, patience) {
        Ok(lease) => return Ok(Memory { file: lease.file, source: Source::Pool(lease.id) }),
        Err(reason) => reason,
    };
    match fresh(kind) {
        Ok(file) => Ok(Memory { file, source: Source::Fresh(reason) }),
        Err(error) if kind.page != PageSize::Base => {
            let file = fresh(&Kind { page: PageSize::Base, ..*kind })?;
            Ok(Memory { file, source: Source::FreshBase(reason, error) })
        }
        Err(error) => Err(error),
    }
}

/// Creates a file whose pages are allocated at page faults. Huge pages are reserved, so that the faults cannot fail.
fn fresh(kind: &Kind) -> io::Result<OwnedFd> {
    let file = memory_file(kind)?;
    if kind.page != PageSize::Base || kind.node.is_some() {
        sys::reserve(&file, kind.unit, kind.node)?;
    }
    Ok(file)
}
