//! The same program by `libpmem.so.1` alone, which maps, writes and persists.

use std::error::Error;
use std::ffi::c_int;
use std::path::Path;
use std::process::ExitCode;
use std::{io, ptr};

use functions::{Functions, PMEM_FILE_CREATE, PMEM_FILE_EXCL, PMEM_FILE_SPARSE};
use program::Store;

#[path = "../libpmem/functions.rs"]
mod functions;
#[path = "../pmem/map.rs"]
mod map;
mod program;
mod record;

const PMEM_F_MEM_NODRAIN: u32 = 1 << 0;
const PMEM_F_MEM_NONTEMPORAL: u32 = 1 << 1;
const PMEM_F_MEM_TEMPORAL: u32 = 1 << 2;
const PMEM_F_MEM_WC: u32 = 1 << 3;
const PMEM_F_MEM_NOFLUSH: u32 = 1 << 5;

/// The ways to write persistent memory. Those from `BY_REGION` on are for device DAX: on a file they call msync, which would
/// also make the records before them durable.
const PERSISTENT: [&str; 16] = [
    "memcpy_persist",
    "memmove_persist",
    "memmove_persist of overlapping ranges",
    "memset_persist",
    "memcpy_nodrain, drain",
    "memmove_nodrain, drain",
    "memset_nodrain, drain",
    "memcpy NONTEMPORAL",
    "memmove TEMPORAL",
    "memset WC NODRAIN, drain",
    "memmove 0, memset TEMPORAL",
    "memcpy NOFLUSH, persist",
    "stores, persist",
    "stores, flush, drain",
    "stores, deep_persist",
    "stores, deep_flush, deep_drain",
];
const BY_REGION: usize = 14;

/// The ways to write a file in the page cache.
const SYNCED: [&str; 5] = [
    "stores, msync",
    "memmove NOFLUSH, msync",
    "memset NOFLUSH, msync",
    "stores, deep_persist",
    "stores, deep_flush, deep_drain",
];

/// Writes in one of these ways; bytes that repeat at the end are filled, if it fills. Returns what a function returned that can
/// fail.
fn write(pmem: &Functions, way: &str, to: &mut [u8], from: &[u8]) -> c_int {
    assert_eq!(to.len(), from.len());
    let length = from.len();
    let byte = from[length - 1];
    let head = from.iter().rposition(|other| *other != byte).map_or(0, |last| last + 1);
    let (fill, byte) = (length - head, byte.into());
    let (to, from) = (to.as_mut_ptr(), from.as_ptr());
    let store = || {
        // SAFETY: different slices of the same length.
        unsafe { ptr::copy_nonoverlapping(from, to, length) }
    };
    // SAFETY: both ranges have this length and are not left; `head + fill` is the length.
    unsafe {
        match way {
            "memcpy_persist" => _ = (pmem.memcpy_persist)(to, from, length),
            "memmove_persist" => _ = (pmem.memmove_persist)(to, from, length),
            "memmove_persist of overlapping ranges" => {
                let shift = length / 3;
                ptr::copy_nonoverlapping(from, to.add(shift), length - shift);
                (pmem.memmove_persist)(to, to.add(shift), length - shift);
                (pmem.memmove_persist)(to.add(length - shift), from.add(length - shift), shift);
            }
            "memset_persist" => {
                (pmem.memcpy_persist)(to, from, head);
                (pmem.memset_persist)(to.add(head), byte, fill);
            }
            "memcpy_nodrain, drain" => {
                (pmem.memcpy_nodrain)(to, from, length);
                (pmem.drain)();
            }
            "memmove_nodrain, drain" => {
                (pmem.memmove_nodrain)(to, from, length);
                (pmem.drain)();
            }
            "memset_nodrain, drain" => {
                (pmem.memcpy_nodrain)(to, from, head);
                (pmem.memset_nodrain)(to.add(head), byte, fill);
                (pmem.drain)();
            }
            "memcpy NONTEMPORAL" => _ = (pmem.memcpy)(to, from, length, PMEM_F_MEM_NONTEMPORAL),
            "memmove TEMPORAL" => _ = (pmem.memmove)(to, from, length, PMEM_F_MEM_TEMPORAL),
            "memset WC NODRAIN, drain" => {
                (pmem.memcpy)(to, from, head, PMEM_F_MEM_WC | PMEM_F_MEM_NODRAIN);
                (pmem.memset)(to.add(head), byte, fill, PMEM_F_MEM_WC | PMEM_F_MEM_NODRAIN);
                (pmem.drain)();
            }
            "memmove 0, memset TEMPORAL" => {
                (pmem.memmove)(to, from, head, 0);
                (pmem.memset)(to.add(head), byte, fill, PMEM_F_MEM_TEMPORAL);
            }
            "memcpy NOFLUSH, persist" => {
                (pmem.memcpy)(to, from, length, PMEM_F_MEM_NOFLUSH);
                (pmem.persist)(to, length);
            }
            "stores, persist" => {
                store();
                (pmem.persist)(to, length);
            }
            "stores, flush, drain" => {
                store();
                (pmem.flush)(to, length);
                (pmem.drain)();
            }
            "stores, deep_persist" => {
                store();
                return (pmem.deep_persist)(to, length);
            }
            "stores, deep_flush, deep_drain" => {
                store();
                (pmem.deep_flush)(to, length);
                return (pmem.deep_drain)(to, length);
            }
            "stores, msync" => {
                store();
                return (pmem.msync)(to, length);
            }
            "memmove NOFLUSH, msync" => {
                (pmem.memmove)(to, from, length, PMEM_F_MEM_NOFLUSH);
                return (pmem.msync)(to, length);
            }
            "memset NOFLUSH, msync" => {
                (pmem.memcpy)(to, from, head, PMEM_F_MEM_NOFLUSH);
                (pmem.memset)(to.add(head), byte, fill, PMEM_F_MEM_NOFLUSH);
                return (pmem.msync)(to, length);
            }
            _ => unreachable!("{way} is in no list"),
        }
    }
    0
}

struct Libpmem {
    functions: Functions,
    ways: &'static [&'static str],
}

impl Libpmem {
    fn write(&self, way: &str, to: &mut [u8], from: &[u8]) -> Result<(), Box<dyn Error>> {
        match write(&self.functions, way, to, from) {
            0 => Ok(()),
            result => Err(format!("{way}: {result}, {}", io::Error::last_os_error()).into()),
        }
    }
}

impl Store for Libpmem {
    /// If there is a file, it is a device. A new one is not made durable first: `pmem_map_file` and the first write do that.
    fn map(
        &mut self,
        path: &Path,
        length: usize,
        synchronous: bool,
    ) -> Result<&'static mut [u8], Box<dyn Error>> {
        let create = PMEM_FILE_CREATE | PMEM_FILE_EXCL;
        let (length_or_all, flags, ways) = match (path.exists(), synchronous) {
            (true, _) => (0, 0, &PERSISTENT[..]),
            (false, true) => (length, create | PMEM_FILE_SPARSE, &PERSISTENT[..BY_REGION]),
            (false, false) => (length, create, &SYNCED[..]),
        };
        self.ways = ways;
        let mapped = self.functions.map(path, length_or_all, flags)?;
        if mapped.is_pmem != c_int::from(synchronous) {
            return Err(format!("pmem_map_file of {}: is_pmem is {}", path.display(), mapped.is_pmem).into());
        }
        mapped.bytes.get_mut(..length).ok_or_else(|| "the device is too small".into())
    }

    fn ways(&self) -> Vec<&'static str> {
        self.ways.to_vec()
    }

    fn record(&self, number: u64, to: &mut [u8], from: &[u8]) -> Result<(), Box<dyn Error>> {
        self.write(self.ways[(number % self.ways.len() as u64) as usize], to, from)
    }

    fn count(&self, count: u64, to: &mut [u8]) -> Result<(), Box<dyn Error>> {
        let way = if self.ways[0] == SYNCED[0] { SYNCED[0] } else { "stores, persist" };
        self.write(way, to, &count.to_le_bytes())
    }
}

fn main() -> ExitCode {
    match Functions::load() {
        Ok(functions) => program::run(&mut Libpmem { functions, ways: &[] }),
        Err(error) => {
            println!("pmem-records-libpmem: {error}");
            ExitCode::FAILURE
        }
    }
}
