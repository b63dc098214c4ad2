//! Ways in which a tenant keeps a unit that was returned.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bulkmem_pool::Weakness;
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};

use super::{direct, kvm, packets, ring};
use crate::pool::{Mapping, UNIT, full_of, read_file, unit, write_file};
use crate::process::Child;

type Read = dyn FnMut() -> Vec<u8>;
type Write = dyn FnMut(&[u8]);

/// What a tenant has kept: how to read the memory, and how to write it.
pub(super) struct Hold {
    pub(super) read: Box<Read>,
    pub(super) write: Box<Write>,
}

impl Hold {
    pub(super) fn new(read: impl FnMut() -> Vec<u8> + 'static, write: impl FnMut(&[u8]) + 'static) -> Hold {
        Hold { read: Box::new(read), write: Box::new(write) }
    }

    fn of_mapping(mapping: Mapping) -> Hold {
        Hold::new(move || mapping.read(), move |bytes| mapping.write(bytes))
    }

    fn of_file(file: OwnedFd) -> Hold {
        let writable = file.try_clone().expect("a descriptor");
        // The real pool's file cannot be changed in length, so that both succeed; what they reach is Alice's own unit.
        Hold::new(move || read_file(&file), move |bytes| _ = write_file(&writable, bytes))
    }

    /// What was read can be read only once, and not written.
    pub(super) fn of_pipe(pipe: OwnedFd) -> Hold {
        let mut pipe = File::from(pipe);
        let read = move || {
            let mut bytes = vec![0; PIPED];
            pipe.read_exact(&mut bytes).expect("the pipe is full");
            bytes
        };
        Hold::new(read, |_| ())
    }
}

pub(super) struct Attack {
    pub(super) name: &'static str,
    /// Keeps something of a unit, and gives the descriptor away.
    pub(super) keep: fn(OwnedFd) -> Hold,
    /// The properties that the weakened pool lacks.
    pub(super) weak: &'static [Weakness],
    /// Whether Alice is root in this attack, because the kernel refuses it to others.
    pub(super) as_root: bool,
    /// Whether the attack needs units of base pages.
    pub(super) only_base: bool,
    /// Returns why the attack cannot run here.
    pub(super) skip: fn() -> Option<String>,
}

const fn attack(name: &'static str, keep: fn(OwnedFd) -> Hold) -> Attack {
    Attack { name, keep, weak: &[Weakness::Recycles], as_root: false, only_base: false, skip: || None }
}

const fn on_unsealed(name: &'static str, keep: fn(OwnedFd) -> Hold) -> Attack {
    Attack { weak: &[Weakness::Recycles, Weakness::Unsealed], ..attack(name, keep) }
}

pub(super) const ATTACKS: &[Attack] = &[
    attack("kept_mapping", kept_mapping),
    attack("kept_descriptor", Hold::of_file),
    attack("passed_to_another_process", passed_on),
    attack("reopened_through_proc_fd", reopened),
    Attack { as_root: true, ..attack("reopened_through_map_files", map_files) },
    attack("kept_by_a_forked_child", forked),
    attack("read_by_process_vm_readv", peeked),
    attack("vmspliced", vmspliced),
    // Of files of huge pages, splice copies.
    Attack { only_base: true, ..attack("spliced_and_teed", teed) },
    Attack { skip: ring::missing, ..attack("io_uring_registered_buffer", ring::registered) },
    Attack { skip: ring::missing, ..attack("io_uring_registered_file", ring::registered_file) },
    attack("userfaultfd", faulted),
    Attack { skip: direct::missing, as_root: true, ..attack("o_direct_in_flight", direct::in_flight) },
    Attack { skip: packets::missing, as_root: true, ..attack("packet_ring", packets::ring) },
    Attack {
        skip: kvm::missing,
        as_root: true,
        only_base: true,
        ..attack("kvm_memslot_of_a_second_descriptor", kvm::memslot)
    },
    on_unsealed("seal_against_writing_added", sealed),
    on_unsealed("truncated", truncated),
    attack("hole_punched", punched),
];

fn mapped(file: &OwnedFd) -> Mapping {
    Mapping::of(file).expect("the unit is hers")
}

fn kept_mapping(file: OwnedFd) -> Hold {
    Hold::of_mapping(mapped(&file))
}

/// A process that reads and writes on demand.
fn accomplice(mut hold: Hold) -> Hold {
    let child = Child::fork(move |channel| {
        loop {
            match channel.receive::<Option<Vec<u8>>>() {
                None => channel.send((hold.read)()),
                Some(bytes) => {
                    (hold.write)(&bytes);
                    channel.send(true);
                }
            }
        }
    });
    let child = std::rc::Rc::new(std::cell::RefCell::new(child));
    let writer = std::rc::Rc::clone(&child);
    let read = move || {
        let channel = &mut child.borrow_mut().channel;
        channel.send(None::<Vec<u8>>);
        channel.receive()
    };
    let write = move |bytes: &[u8]| {
        let channel = &mut writer.borrow_mut().channel;
        channel.send(Some(bytes.to_vec()));
        channel.receive::<bool>();
    };
    Hold::new(read, write)
}

fn passed_on(file: OwnedFd) -> Hold {
    use rustix::net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    };
    let (here, there) = UnixStream::pair().expect("sockets");
    let receive = move || {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&there, &mut [std::io::IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .expect("a message");
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        file.expect("a descriptor")
    };
    let received = std::cell::OnceCell::new();
    let received = std::rc::Rc::new(received);
    let (reader, receive) = (std::rc::Rc::clone(&received), std::rc::Rc::new(receive));
    let again = std::rc::Rc::clone(&receive);
    let read = move || read_file(reader.get_or_init(&*again));
    let write = move |bytes: &[u8]| _ = write_file(received.get_or_init(&*receive), bytes);
    // The accomplice exists before it receives the descriptor, so that it has it by the message alone.
    let hold = accomplice(Hold::new(read, write));
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(&here, &[std::io::IoSlice::new(&[0])], &mut control, SendFlags::empty()).expect("a message");
    hold
}

fn reopen(path: &str) -> OwnedFd {
    OpenOptions::new().read(true).write(true).open(path).expect("her own file").into()
}

fn reopened(file: OwnedFd) -> Hold {
    Hold::of_file(reopen(&format!("/proc/self/fd/{}", file.as_raw_fd())))
}

fn map_files(file: OwnedFd) -> Hold {
    let mapping = mapped(&file);
    let (from, to) = (mapping.start as usize, mapping.start as usize + mapping.len);
    let again = reopen(&format!("/proc/self/map_files/{from:x}-{to:x}"));
    mapping.unmap();
    Hold::of_file(again)
}

fn forked(file: OwnedFd) -> Hold {
    let mapping = mapped(&file);
    let hold = accomplice(Hold::of_mapping(mapping));
    mapping.unmap();
    hold
}

/// Another process of hers keeps the mapping; she reads and writes that process's memory.
fn peeked(file: OwnedFd) -> Hold {
    let mapping = mapped(&file);
    let child = Child::fork(|channel| _ = channel.receive::<bool>());
    let pid = child.pid().as_raw_nonzero().get();
    let there = (mapping.start as usize, mapping.len);
    mapping.unmap();
    let copy = move |bytes: &mut [u8], write: bool| {
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: there.0 as *mut _, iov_len: there.1.min(bytes.len()) };
        // SAFETY: the local range is the slice; the kernel checks the remote one.
        let copied = unsafe {
            match write {
                true => libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0),
                false => libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0),
            }
        };
        assert!(copied > 0, "{}", std::io::Error::last_os_error());
    };
    let read = move || {
        let _alive = &child;
        let mut bytes = full_of(&[0; 16]);
        copy(&mut bytes, false);
        bytes
    };
    Hold::new(read, move |bytes| copy(&mut bytes.to_vec(), true))
}

/// Bytes of a unit that are kept in a pipe: a user's pipes are limited.
const PIPED: usize = 64 << 10;

fn pipe() -> (OwnedFd, OwnedFd) {
    let (from, to) = rustix::pipe::pipe().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&to, 2 * PIPED).expect("a large pipe");
    (from, to)
}

fn vmspliced(file: OwnedFd) -> Hold {
    let mapping = mapped(&file);
    let (from, to) = pipe();
    let range = libc::iovec { iov_base: mapping.start.cast(), iov_len: PIPED };
    // SAFETY: the range is within the mapping, which other code here only accesses by volatile operations.
    let moved = unsafe { libc::vmsplice(to.as_raw_fd(), &raw const range, 1, 0) };
    assert_eq!(usize::try_from(moved), Ok(PIPED), "{}", std::io::Error::last_os_error());
    mapping.unmap();
    Hold::of_pipe(from)
}

fn teed(file: OwnedFd) -> Hold {
    use rustix::pipe::{SpliceFlags, splice, tee};
    let ((first, to), (second, copy)) = (pipe(), pipe());
    let mut at = 0;
    while at < UNIT {
        let left = usize::try_from(UNIT - at).expect("small");
        splice(&file, Some(&mut at), &to, None, left, SpliceFlags::empty()).expect("a file");
    }
    assert_eq!(tee(&first, &copy, PIPED, SpliceFlags::empty()), Ok(PIPED));
    Hold::of_pipe(second)
}

/// A page fault handler of hers fills a hole that she has punched before she returned the unit.
fn faulted(file: OwnedFd) -> Hold {
    let mapping = mapped(&file);
    let handler = ring::userfaultfd(&mapping);
    let write = move |bytes: &[u8]| {
        // SAFETY: the range is the mapping; removing its pages is the attack.
        let removed = unsafe {
            rustix::mm::madvise(mapping.start.cast(), mapping.len, rustix::mm::Advice::LinuxRemove)
        };
        removed.expect("a shared mapping");
        ring::fill_hole(&handler, &mapping, bytes);
    };
    Hold::new(Vec::new, write)
}

fn sealed(file: OwnedFd) -> Hold {
    // In the real pool, this fails.
    _ = fcntl_add_seals(&file, SealFlags::WRITE);
    Hold::of_file(file)
}

fn truncated(file: OwnedFd) -> Hold {
    let write = move |_: &[u8]| _ = ftruncate(&file, 0);
    Hold::new(Vec::new, write)
}

fn punched(file: OwnedFd) -> Hold {
    let write = move |_: &[u8]| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, flags, 0, unit()).expect("holes harm only their owner");
    };
    Hold::new(Vec::new, write)
}
