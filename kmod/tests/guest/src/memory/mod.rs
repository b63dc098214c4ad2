//! Tests the memory of `/dev/bulkmem-memory`.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::device::{Device, MEMORY};
use crate::huge::{HugeMapping, MIDDLE, SMALL, Source};
use crate::module;

mod contents;
mod kvm;
mod limits;
mod poison;
mod pool;
mod refusals;
mod rights;
mod shared;
mod storm;

pub(crate) fn tests(suite: &mut Suite) {
    contents::tests(suite);
    shared::tests(suite);
    refusals::tests(suite);
    limits::tests(suite);
    pool::tests(suite);
    rights::tests(suite);
    poison::tests(suite);
    kvm::tests(suite);
    storm::tests(suite);
}

/// A cache attribute, with the numbers of the ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    Wb = 0,
    Wc = 1,
    Uc = 2,
}

impl Attribute {
    /// Returns its number in the processor's PAT register.
    fn memory_type(self) -> u64 {
        match self {
            Attribute::Wb => 6,
            Attribute::Wc => 1,
            Attribute::Uc => 7,
        }
    }
}

/// A kind of memory that the device provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    attribute: Attribute,
    page: usize,
}

/// Every kind.
const KINDS: [Kind; 6] = [
    Kind { attribute: Attribute::Wb, page: SMALL },
    Kind { attribute: Attribute::Wb, page: MIDDLE },
    Kind { attribute: Attribute::Wc, page: SMALL },
    Kind { attribute: Attribute::Wc, page: MIDDLE },
    Kind { attribute: Attribute::Uc, page: SMALL },
    Kind { attribute: Attribute::Uc, page: MIDDLE },
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = if self.page == SMALL { "4k" } else { "2m" };
        write!(f, "{:?}_{page}", self.attribute)
    }
}

/// Adds a test `memory::NAME::KIND` for every kind.
fn each_kind(suite: &mut Suite, name: &str, test: fn(Kind) -> Result<(), Failed>) {
    for kind in KINDS {
        suite.test(&format!("memory::{name}::{kind}"), move || {
            fresh()?;
            test(kind)
        });
    }
}

/// Adds a test `memory::NAME`.
fn once(suite: &mut Suite, name: &str, test: fn() -> Result<(), Failed>) {
    suite.test(&format!("memory::{name}"), move || {
        fresh()?;
        test()
    });
}

/// The most MiB in each pool, as after loading.
const POOL: usize = 32;

/// Loads the module and sets every parameter to its default. The pools keep their memory.
fn fresh() -> io::Result<()> {
    module::fresh()?;
    module::set("memory_unprivileged", "0")?;
    module::set("memory_pool", POOL.to_string())
}

/// Empties the pools.
fn drain() -> io::Result<()> {
    module::set("memory_pool", "0")?;
    module::set("memory_pool", POOL.to_string())
}

/// Reads a counter of the device's memory.
fn counter(name: &str) -> io::Result<usize> {
    let text = fs::read_to_string(format!("/sys/class/misc/bulkmem-memory/{name}"))?;
    text.trim().parse().map_err(io::Error::other)
}

/// `struct bulkmem_memory`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Description {
    size: u32,
    flags: u32,
    attribute: u32,
    page_shift: u32,
    node: i32,
    reserved: u32,
}

impl From<Kind> for Description {
    fn from(kind: Kind) -> Description {
        let page_shift = kind.page.trailing_zeros();
        Description {
            size: 24,
            flags: 0,
            attribute: kind.attribute as u32,
            page_shift,
            node: -1,
            reserved: 0,
        }
    }
}

/// `struct bulkmem_populate`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Range {
    size: u32,
    flags: u32,
    address: u64,
    length: u64,
}

impl Range {
    fn new(address: usize, length: usize) -> Range {
        Range { size: 24, flags: 0, address: address as u64, length: length as u64 }
    }
}

/// Makes the requests `BULKMEM_IOC_MEMORY` and `BULKMEM_IOC_POPULATE`.
const DESCRIBE: u64 = 0xc403;
const POPULATE: u64 = 0xc404;

impl Device {
    /// Opens the device and describes `kind`.
    fn of(kind: Kind) -> io::Result<Device> {
        let device = Device::open_at(MEMORY)?;
        device.describe(&kind.into())?;
        Ok(device)
    }

    fn describe(&self, description: &Description) -> io::Result<()> {
        self.ioctl(DESCRIBE, std::ptr::from_ref(description).addr())
    }

    fn populate(&self, range: &Range) -> io::Result<()> {
        self.ioctl(POPULATE, std::ptr::from_ref(range).addr())
    }

    /// Maps new memory, which is allocated when it is touched.
    fn reserve(&self, length: usize) -> io::Result<HugeMapping> {
        HugeMapping::of_file(self.0.as_fd(), length, SMALL)
    }

    /// Maps new memory and allocates it.
    fn map(&self, length: usize) -> io::Result<HugeMapping> {
        let mapping = self.reserve(length)?;
        self.populate(&Range::new(mapping.address(), length))?;
        Ok(mapping)
    }
}

/// Maps new memory of this kind.
fn memory(kind: Kind, length: usize) -> io::Result<HugeMapping> {
    Device::of(kind)?.map(length)
}

/// Calls `mmap` and unmaps the result immediately; returns the address or the error's number.
fn try_map(
    file: BorrowedFd<'_>,
    address: usize,
    length: usize,
    prot: i32,
    flags: i32,
    offset: i64,
) -> Result<(), i32> {
    let address = address as *mut libc::c_void;
    // SAFETY: the callers use MAP_FIXED only for address space that they reserved.
    let mapped = unsafe { libc::mmap(address, length, prot, flags, file.as_raw_fd(), offset) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    // SAFETY: just mapped, without references to it.
    unsafe { libc::munmap(mapped, length) };
    Ok(())
}

/// The mappings of a page: `struct answer` of `bulkmem_probe.c`.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    /// The entry in this process's page tables.
    user: Entry,
    /// The entry in the kernel's direct map.
    direct: Entry,
    frame: u64,
    node: u64,
    references: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// The number of bytes that it maps.
    size: u64,
    memory_type: u64,
}

/// The device of the probe.
#[derive(Debug)]
struct Probe(File);

impl Probe {
    fn open() -> io::Result<Probe> {
        const FILE: &str = "/dev/bulkmem_probe";
        if !fs::exists(FILE)? {
            let file = File::open("/bulkmem_probe.ko")?;
            // SAFETY: an open file and a NUL-terminated string, both valid during the call.
            let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Probe(File::open(FILE)?))
    }

    fn ask(&self, offset: u64) -> io::Result<Answer> {
        let mut bytes = [0; 72];
        self.0.read_exact_at(&mut bytes, offset)?;
        let word =
            |index: usize| u64::from_ne_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"));
        Ok(Answer {
            user: Entry { size: word(1), memory_type: word(2) },
            direct: Entry { size: word(4), memory_type: word(5) },
            frame: word(6),
            node: word(7),
            references: word(8),
        })
    }

    /// Reports the page at an address of this process.
    fn at(&self, address: usize) -> io::Result<Answer> {
        self.ask(address as u64)
    }

    /// Reports a frame, whichever process uses it; `user` is empty.
    fn frame(&self, frame: u64) -> io::Result<Answer> {
        self.ask(1 << 62 | frame)
    }
}

/// Dirties `length` bytes of ordinary memory and frees them.
fn dirt(length: usize) -> io::Result<()> {
    HugeMapping::new(Source::Transparent, length / MIDDLE)?.dirty();
    Ok(())
}

/// Returns a value of /proc/meminfo, in bytes.
fn meminfo(name: &str) -> io::Result<usize> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes
        .map(|number| number * 1024)
        .ok_or_else(|| io::Error::other(format!("/proc/meminfo has no {name}")))
}

/// Returns the unused bytes, including pages on the processors' own lists, which MemFree does not count.
fn free_memory() -> io::Result<usize> {
    let zones = fs::read_to_string("/proc/zoneinfo")?;
    let waiting =
        zones.lines().filter_map(|line| line.trim().strip_prefix("count:")?.trim().parse::<usize>().ok());
    Ok(meminfo("MemFree")? + waiting.sum::<usize>() * SMALL)
}

/// The tolerance for other uses of memory: page tables of the direct map, this program's heap.
const SLACK: usize = 24 << 20;

/// Fails unless the free memory returns to its previous amount, once the pools are empty.
fn all_back(before: usize) -> Result<(), Failed> {
    let mut now = 0;
    drain()?;
    let back = module::until("memory is missing", || {
        now = free_memory()?;
        Ok(now + SLACK >= before)
    });
    println!("missing: {} KiB of {} MiB", before.saturating_sub(now) >> 10, before >> 20);
    back.map_err(|error| {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        format!("{error}: {} MiB\n{meminfo}", before.saturating_sub(now) >> 20)
    })?;
    Ok(())
}

/// Fills the bytes with numbers that depend on their offset and on `seed`.
fn fill(bytes: &mut [u8], seed: u64) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    assert!(rest.is_empty());
    for (index, word) in words.iter_mut().enumerate() {
        *word = (index as u64 ^ seed).to_ne_bytes();
    }
}

/// Returns the offset of the first number that differs from what [`fill`] wrote.
fn first_change(bytes: &[u8], seed: u64) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    let changed =
        words.iter().enumerate().position(|(index, word)| *word != (index as u64 ^ seed).to_ne_bytes());
    changed.map(|index| index * 8)
}

fn holds(bytes: &[u8], seed: u64, whose: &str) -> Result<(), Failed> {
    match first_change(bytes, seed) {
        None => Ok(()),
        Some(at) => Err(format!("{whose} at offset {at:#x} are not what was written").into()),
    }
}

fn is_zero(mapping: &HugeMapping, what: &str) -> Result<(), Failed> {
    match mapping.first_dirt() {
        None => Ok(()),
        Some(at) => Err(format!("{what}: the byte at offset {at:#x} is not 0").into()),
    }
}

/// Reserved address space.
#[derive(Debug)]
struct Reserved {
    start: usize,
    length: usize,
}

impl Reserved {
    fn new(length: usize) -> io::Result<Reserved> {
        // SAFETY: without MAP_FIXED, the mapping replaces no other.
        let start = unsafe {
            libc::mmap(null_mut(), length, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Reserved { start: start.addr(), length })
    }

    /// Returns the first address in it that is a multiple of 2 MiB.
    fn aligned(&self) -> usize {
        self.start.next_multiple_of(MIDDLE)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the value's own address space, including what was mapped into it.
        unsafe { libc::munmap(self.start as *mut _, self.length) };
    }
}
