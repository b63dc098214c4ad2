//! O_DIRECT in flight: a read into a unit, of a file whose file system answers late.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request,
};
use rustix::fs::{Mode, OFlags};

use super::holds::Hold;
use crate::pool::{Mapping, unit};
use crate::process::lacks;

const FILE: INodeNo = INodeNo(2);
const NAME: &str = "late";

/// Returns why FUSE cannot be used here.
pub(super) fn missing() -> Option<String> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let missing = device.err().map(|error| format!("no FUSE: /dev/fuse: {error}"));
    missing.or_else(|| lacks(rustix::thread::CapabilitySet::SYS_ADMIN))
}

/// A file system with one file. The first read of it is reported, and answered later.
struct Late {
    begun: Sender<()>,
    answer: Mutex<Receiver<Vec<u8>>>,
}

fn attributes(inode: INodeNo) -> FileAttr {
    let kind = if inode == FILE { FileType::RegularFile } else { FileType::Directory };
    FileAttr {
        ino: inode,
        size: unit(),
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Late {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&Duration::ZERO, &attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        _ = self.begun.send(());
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner).recv().unwrap_or_default();
        reply.data(&answer[..answer.len().min(size as usize)]);
    }
}

fn mount() -> (BackgroundSession, OwnedFd, Receiver<()>, Sender<Vec<u8>>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (begun, has_begun) = channel();
    let (answer, answers) = channel();
    let system = Late { begun, answer: Mutex::new(answers) };
    let session = fuser::spawn_mount(system, folder.path(), &Config::default()).expect("root can mount");
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder.path().join(NAME), flags, Mode::empty()).expect("it is there");
    // The open file keeps the file system; the folder is needed no more, also if this process is killed.
    rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH).expect("it is mounted");
    (session, file, has_begun, answer)
}

/// Keeps the pages of a unit as the buffer of a read that has not ended, without a mapping or a descriptor.
pub(super) fn in_flight(file: OwnedFd) -> Hold {
    let (session, late, begun, answer) = mount();
    let mapping = Mapping::of(&file).expect("the unit is hers");
    drop(file);
    let (buffer, length) = (mapping.start.expose_provenance(), mapping.len);
    let reader = thread::spawn(move || {
        // SAFETY: the kernel writes to the pages that were mapped at the address when the call began; no reference to them
        // exists.
        let read = unsafe {
            let buffer: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(buffer);
            libc::pread(std::os::fd::AsRawFd::as_raw_fd(&late), buffer, length, 0)
        };
        assert!(read > 0, "{}", std::io::Error::last_os_error());
    });
    begun.recv().expect("the read begins");
    mapping.unmap();
    let mut kept = Some((reader, session, answer));
    let write = move |bytes: &[u8]| {
        let (reader, session, answer) = kept.take().expect("it is answered once");
        answer.send(bytes.to_vec()).expect("the read waits");
        drop(answer);
        reader.join().expect("the read ends");
        drop(session);
    };
    // A read cannot tell what was in its buffer.
    Hold::new(Vec::new, write)
}
