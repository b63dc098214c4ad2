//! Packet rings: a unit as the memory of AF_XDP, whose frames the kernel sends to Alice herself.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::holds::Hold;
use crate::pool::Mapping;
use crate::process::{lacks, wait_until};

/// Entries of each ring, which is also the number of frames sent.
const ENTRIES: u32 = 8;
/// Bytes of a frame, and of a packet in it.
const FRAME: u32 = 4096;
const PACKET: u32 = 1024;

/// Returns why AF_XDP cannot be used here.
pub(super) fn missing() -> Option<String> {
    let error = [socket(libc::AF_XDP, 0), socket(libc::AF_PACKET, 0)].into_iter().find_map(Result::err);
    let flags = std::fs::read_to_string("/sys/class/net/lo/flags").unwrap_or_default();
    let flags = c_int::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    error
        .map(|error| format!("no AF_XDP or AF_PACKET: {error}"))
        .or_else(|| lacks(rustix::thread::CapabilitySet::IPC_LOCK))
        .or_else(|| {
            (flags & libc::IFF_UP == 0).then(|| "needs the loopback interface, which is down".to_owned())
        })
}

fn socket(family: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor that is returned is ours.
    unsafe {
        match libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) {
            -1 => Err(io::Error::last_os_error()),
            socket => Ok(OwnedFd::from_raw_fd(socket)),
        }
    }
}

fn checked(result: c_int, what: &str) {
    assert!(result == 0, "{what}: {}", io::Error::last_os_error());
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("small")
}

fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) {
    // SAFETY: the value is valid for reads of its length.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, ptr::from_ref(value).cast(), length_of::<T>())
    };
    checked(result, "setsockopt");
}

fn bind<T>(socket: &OwnedFd, address: &T) {
    // The kernel releases the ring of a process some time after its end.
    wait_until("the interface is free", || {
        // SAFETY: the address is valid for reads of its length.
        let result =
            unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(address).cast(), length_of::<T>()) };
        if result == -1 && io::Error::last_os_error().kind() == io::ErrorKind::ResourceBusy {
            return false;
        }
        checked(result, "bind");
        true
    });
}

fn loopback() -> u32 {
    // SAFETY: a string that ends with zero.
    let index = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
    assert!(index > 0, "no loopback interface");
    index
}

/// The ring of frames to send, mapped.
struct Ring {
    start: NonNull<c_void>,
    offset: libc::xdp_ring_offset,
}

impl Ring {
    fn of(socket: &OwnedFd) -> Ring {
        // SAFETY: plain numbers.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let mut length = length_of::<libc::xdp_mmap_offsets>();
        // SAFETY: the offsets are valid for writes of that length.
        let result = unsafe {
            let to = (&raw mut offsets).cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, to, &raw mut length)
        };
        checked(result, "XDP_MMAP_OFFSETS");
        let bytes =
            usize::try_from(offsets.tx.desc).expect("small") + ENTRIES as usize * size_of::<libc::xdp_desc>();
        let at = u64::try_from(libc::XDP_PGOFF_TX_RING).expect("an offset");
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, socket, at)
        };
        let start = NonNull::new(start.expect("the ring exists")).expect("not at 0");
        Ring { start, offset: offsets.tx }
    }

    /// Adds one packet to the ring; there are never more than its entries.
    fn add(&self, index: u32) {
        let descriptor = libc::xdp_desc { addr: u64::from(index * FRAME), len: PACKET, options: 0 };
        let at = |offset: u64| usize::try_from(offset).expect("small");
        // SAFETY: both are within the mapping, which stays; the kernel reads the descriptor after the producer's number.
        unsafe {
            let descriptors: *mut libc::xdp_desc = self.start.as_ptr().byte_add(at(self.offset.desc)).cast();
            descriptors.add(index as usize).write_volatile(descriptor);
            let producer: *mut u32 = self.start.as_ptr().byte_add(at(self.offset.producer)).cast();
            AtomicU32::from_ptr(producer).store(index + 1, Ordering::Release);
        }
    }
}

/// Keeps the pages of a unit as the memory of a packet ring, without a mapping or a descriptor.
pub(super) fn ring(file: OwnedFd) -> Hold {
    let mapping = Mapping::of(&file).expect("the unit is hers");
    drop(file);
    let sender = socket(libc::AF_XDP, 0).expect("checked before");
    let memory = libc::xdp_umem_reg {
        addr: mapping.start.expose_provenance() as u64,
        len: mapping.len as u64,
        chunk_size: FRAME,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(&sender, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory);
    for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_TX_RING] {
        set(&sender, libc::SOL_XDP, ring, &ENTRIES);
    }
    let ring = Ring::of(&sender);
    let address = libc::sockaddr_xdp {
        sxdp_family: u16::try_from(libc::AF_XDP).expect("small"),
        // The kernel copies; the loopback interface cannot do it otherwise.
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: loopback(),
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    bind(&sender, &address);
    mapping.unmap();
    let read = move || {
        let receiver = receiver();
        let mut seen = Vec::new();
        for index in 0..ENTRIES {
            ring.add(index);
            // SAFETY: no memory is passed.
            let sent = unsafe {
                libc::sendto(sender.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0)
            };
            assert!(sent >= 0, "sendto: {}", io::Error::last_os_error());
            seen.extend(receive(&receiver));
        }
        seen
    };
    // To receive into the ring, Alice would also have to load a program into the kernel.
    Hold::new(read, |_| ())
}

/// A socket that receives every packet of the loopback interface.
fn receiver() -> OwnedFd {
    let every = u16::try_from(libc::ETH_P_ALL).expect("small").to_be();
    let receiver = socket(libc::AF_PACKET, c_int::from(every)).expect("checked before");
    // SAFETY: plain numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).expect("small");
    address.sll_protocol = every;
    address.sll_ifindex = c_int::try_from(loopback()).expect("small");
    bind(&receiver, &address);
    set(&receiver, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &libc::timeval { tv_sec: 1, tv_usec: 0 });
    receiver
}

/// Returns the next packet of the length that Alice sends; nothing if none comes, or a hundred others.
fn receive(receiver: &OwnedFd) -> Vec<u8> {
    let mut packet = vec![0; 2 * PACKET as usize];
    for _ in 0..100 {
        match rustix::io::read(receiver, &mut packet) {
            Ok(length) if length == PACKET as usize => {
                packet.truncate(length);
                return packet;
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Vec::new()
}
