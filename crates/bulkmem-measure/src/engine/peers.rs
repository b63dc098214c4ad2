//! Other libraries, measured in the same run: libpmem, loaded where it is installed.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use bulkmem::Operation;
use libloading::Library;

/// What is said where libpmem is not there.
const NOT_INSTALLED: &str = "libpmem is not installed: apt-get install libpmem1";
/// libpmem's flag for stores past the cache, whatever the length.
const NONTEMPORAL: c_uint = 1 << 1;
/// libpmem's flag for ordinary stores, whatever the length.
const TEMPORAL: c_uint = 1 << 2;
/// libpmem's flag that leaves the fence to the caller.
const NO_DRAIN: c_uint = 1;
/// libpmem's flag that leaves out flushing and draining: an ordinary memset or memcpy of libpmem's own.
const NO_FLUSH: c_uint = 1 << 5;

type Memset = unsafe extern "C" fn(*mut c_void, c_int, usize, c_uint) -> *mut c_void;
type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_uint) -> *mut c_void;
type Persist = unsafe extern "C" fn(*const c_void, usize);

/// The functions of libpmem that are compared with.
#[derive(Clone, Copy, Debug)]
struct Libpmem {
    memset: Memset,
    memcpy: Memcpy,
    persist: Persist,
}

/// Loads libpmem, once.
fn libpmem() -> Result<Libpmem, &'static str> {
    static LIBPMEM: OnceLock<Result<Libpmem, &'static str>> = OnceLock::new();
    *LIBPMEM.get_or_init(|| {
        // SAFETY: libpmem's initialization only reads the environment and the processor's features.
        let library = unsafe { Library::new("libpmem.so.1") }.map_err(|_| NOT_INSTALLED)?;
        let functions = functions(&library).ok_or("libpmem is older than 1.5: apt-get install libpmem1");
        // The functions are used as long as the process lives.
        std::mem::forget(library);
        functions
    })
}

fn functions(library: &Library) -> Option<Libpmem> {
    // SAFETY: these are the functions' types in libpmem.h, the same since version 1.5; the caller never unloads the
    // library.
    unsafe {
        Some(Libpmem {
            memset: *library.get::<Memset>(b"pmem_memset\0").ok()?,
            memcpy: *library.get::<Memcpy>(b"pmem_memcpy\0").ok()?,
            persist: *library.get::<Persist>(b"pmem_persist\0").ok()?,
        })
    }
}

/// One way to use a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    call: Call,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Memset(Memset, c_int, c_uint),
    Memcpy(Memcpy, c_uint),
    Persist(Persist),
}

/// The peers for an operation, or why there is none.
pub(crate) fn peers(operation: Operation) -> Result<Vec<Peer>, &'static str> {
    let library = libpmem()?;
    let fill = |byte: u8, flags| Call::Memset(library.memset, byte.into(), flags);
    let copy = |flags| Call::Memcpy(library.memcpy, flags);
    let own = "libpmem";
    let (nontemporal, cached) = ("libpmem, non-temporal", "libpmem, cached");
    let calls = match operation {
        Operation::Clear | Operation::Fill => {
            let byte = if operation == Operation::Clear { 0 } else { crate::engine::FILL_BYTE };
            vec![
                (own, fill(byte, 0)),
                (nontemporal, fill(byte, NONTEMPORAL)),
                (cached, fill(byte, TEMPORAL | NO_FLUSH)),
            ]
        }
        Operation::Copy => {
            vec![(own, copy(0)), (nontemporal, copy(NONTEMPORAL)), (cached, copy(TEMPORAL | NO_FLUSH))]
        }
        Operation::FillPersist => {
            let byte = crate::engine::FILL_BYTE;
            vec![
                (own, fill(byte, 0)),
                (nontemporal, fill(byte, NONTEMPORAL)),
                (FLUSHED, fill(byte, TEMPORAL)),
            ]
        }
        Operation::CopyPersist => {
            vec![(own, copy(0)), (nontemporal, copy(NONTEMPORAL)), (FLUSHED, copy(TEMPORAL))]
        }
        Operation::Persist => vec![(own, Call::Persist(library.persist))],
    };
    Ok(calls.into_iter().map(|(name, call)| Peer { name, call }).collect())
}

/// libpmem told to use ordinary stores and to flush them.
const FLUSHED: &str = "libpmem, cached and flushed";

impl Peer {
    /// The same peer, filling with this byte where it fills at all.
    pub(crate) fn filling(self, byte: u8) -> Peer {
        match self.call {
            Call::Memset(memset, _, flags) => Peer { call: Call::Memset(memset, byte.into(), flags), ..self },
            Call::Memcpy(..) | Call::Persist(_) => self,
        }
    }

    /// Does the operation.
    ///
    /// # Safety
    /// `dst..dst+length` is valid for writes (for flush: reads), `src..src+length` for reads, and they lie apart.
    pub(crate) unsafe fn run(&self, dst: *mut u8, src: *const u8, length: usize) {
        // SAFETY: passed on from the caller.
        unsafe {
            match self.call {
                Call::Memset(memset, byte, flags) => {
                    memset(dst.cast(), byte, length, flags);
                }
                Call::Memcpy(memcpy, flags) => {
                    memcpy(dst.cast(), src.cast(), length, flags);
                }
                Call::Persist(persist) => persist(dst.cast_const().cast(), length),
            }
        }
    }

    /// Does the operation and leaves the fence to the caller, where libpmem does.
    ///
    /// # Safety
    /// As [`Peer::run`].
    pub(crate) unsafe fn run_unfenced(&self, dst: *mut u8, src: *const u8, length: usize) {
        let call = match self.call {
            Call::Memset(memset, byte, flags) => Call::Memset(memset, byte, flags | NO_DRAIN),
            Call::Memcpy(memcpy, flags) => Call::Memcpy(memcpy, flags | NO_DRAIN),
            fenced @ Call::Persist(_) => fenced,
        };
        // SAFETY: passed on from the caller.
        unsafe { Peer { call, ..*self }.run(dst, src, length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every peer does what its operation says; where libpmem is missing, that is said.
    #[test]
    fn peers_do_their_operation() {
        for operation in Operation::ALL {
            let peers = match peers(operation) {
                Ok(peers) => peers,
                Err(reason) => {
                    assert!(reason.contains("apt-get install libpmem1"));
                    eprintln!("not checked: {reason}");
                    return;
                }
            };
            for peer in peers {
                let (mut dst, src) = (vec![1u8; 5000], vec![2u8; 5000]);
                let (mut unfenced, length) = (dst.clone(), dst.len());
                // SAFETY: vectors of that length.
                unsafe {
                    peer.run(dst.as_mut_ptr(), src.as_ptr(), length);
                    peer.run_unfenced(unfenced.as_mut_ptr(), src.as_ptr(), length);
                }
                bulkmem::method::fence();
                assert_eq!(dst, unfenced, "{operation} by {}", peer.name);
                let expected = match operation {
                    Operation::Clear => 0,
                    Operation::Fill | Operation::FillPersist => crate::engine::FILL_BYTE,
                    Operation::Copy | Operation::CopyPersist => 2,
                    Operation::Persist => 1,
                };
                assert!(dst.iter().all(|&byte| byte == expected), "{operation} by {}", peer.name);
                // SAFETY: as above.
                unsafe { peer.filling(9).run(dst.as_mut_ptr(), src.as_ptr(), 5000) }
                let fills = matches!(operation, Operation::Clear | Operation::Fill | Operation::FillPersist);
                let expected = if fills { 9 } else { expected };
                assert!(dst.iter().all(|&byte| byte == expected), "{operation} by {}", peer.name);
            }
        }
    }
}
