//! Counts of memory operations by length, in memory that the counting processes share with the reader.
//!
//! The reader [prepares](prepare) a file. Each process of a program maps it as a [`Histogram`], [claims](Histogram::claim) a
//! [`Record`] and counts in it. Claiming is one atomic addition, so that the child of a fork can do it even if it may make
//! no system call. The reader [reads](read) the records, also those of processes that were killed.

mod reader;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bulkmem::Operation;

pub use reader::{Count, Process, Processes, prepare, read};

/// Size of the file in bytes: a header and the records. Pages that no process counts in take no memory.
pub const FILE_BYTES: usize = (1 + RECORDS) * RECORD_BYTES;
/// The most processes that can be counted separately.
pub const RECORDS: usize = 4096;
/// Number of length classes: 0, 1, 2–3, 4–7, …; the last one is open.
pub const CLASSES: usize = 48;

const RECORD_BYTES: usize = WORDS * 8;
const WORDS: usize = COUNTS + (CALLS + OPERATIONS) * CLASSES * 2;

// Words of the header.
const MAGIC_AT: usize = 0;
const CLAIMED: usize = 1;
/// Contains the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"bmhist\x00\x01");

// Words of a record.
const PID: usize = 0;
/// The process that forked this one, and else 0.
const FORKED_FROM: usize = 1;
/// 1 if the record includes children that could not claim one.
const WITH_CHILDREN: usize = 2;
const NAME: usize = 3;
const NAME_WORDS: usize = 32;
/// Calls and bytes of copies below the threshold that the policy executed because of page aliasing.
const ALIASED: usize = NAME + NAME_WORDS;
const _: () = assert!(ALIASED + 2 <= COUNTS, "the words of a record do not overlap");
/// For each call, then for each operation: calls and bytes of each class.
const COUNTS: usize = 64;

const CALLS: usize = Call::ALL.len();
/// Clear, fill and copy, which are the first of all operations.
const OPERATIONS: usize = Operation::Copy as usize + 1;

/// A kind of call that is counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `memcpy` and `__memcpy_chk`; likewise for the others.
    Memcpy,
    /// `memmove`.
    Memmove,
    /// `mempcpy`.
    Mempcpy,
    /// `memset` to 0.
    MemsetZero,
    /// `memset` to another value.
    MemsetOther,
    /// `bzero`.
    Bzero,
    /// `explicit_bzero`.
    ExplicitBzero,
}

impl Call {
    /// Every kind of call.
    pub const ALL: [Call; 7] = [
        Call::Memcpy,
        Call::Memmove,
        Call::Mempcpy,
        Call::MemsetZero,
        Call::MemsetOther,
        Call::Bzero,
        Call::ExplicitBzero,
    ];

    /// Returns the name of the C library's function.
    pub fn function(self) -> &'static str {
        match self {
            Call::Memcpy => "memcpy",
            Call::Memmove => "memmove",
            Call::Mempcpy => "mempcpy",
            Call::MemsetZero | Call::MemsetOther => "memset",
            Call::Bzero => "bzero",
            Call::ExplicitBzero => "explicit_bzero",
        }
    }

    /// Returns the operation.
    pub fn operation(self) -> Operation {
        match self {
            Call::Memcpy | Call::Memmove | Call::Mempcpy => Operation::Copy,
            Call::MemsetZero | Call::Bzero | Call::ExplicitBzero => Operation::Clear,
            Call::MemsetOther => Operation::Fill,
        }
    }
}

/// Returns the class of a length.
#[inline]
fn class_of(length: usize) -> usize {
    let class = (usize::BITS - length.leading_zeros()) as usize;
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// Returns the smallest and the largest length of a class.
pub fn lengths_of(class: usize) -> (u64, u64) {
    let from = if class == 0 { 0 } else { 1 << (class - 1) };
    let to = if class + 1 < CLASSES { (1 << class) - 1 } else { u64::MAX };
    (from, to)
}

/// The file, as processes map it.
#[derive(Debug)]
#[repr(C)]
pub struct Histogram {
    header: [AtomicU64; WORDS],
    records: [Record; RECORDS],
}

/// The counts of one process.
#[derive(Debug)]
#[repr(transparent)]
pub struct Record([AtomicU64; WORDS]);

impl Histogram {
    /// Returns a record for the calling process, and counts it. `None` if all are in use, or if the file is not a histogram
    /// of this version.
    pub fn claim(&self, pid: u32, forked_from: Option<&Record>, name: &[u8]) -> Option<&Record> {
        if self.header[MAGIC_AT].load(Relaxed) != MAGIC {
            return None;
        }
        let claimed = usize::try_from(self.header[CLAIMED].fetch_add(1, Relaxed)).ok()?;
        let Record(words) = self.records.get(claimed)?;
        if let Some(Record(parent)) = forked_from {
            words[FORKED_FROM].store(parent[PID].load(Relaxed), Relaxed);
            let name = words.iter().zip(parent).skip(NAME).take(NAME_WORDS);
            name.for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        } else {
            for (word, chunk) in words[NAME..][..NAME_WORDS].iter().zip(name.chunks(8)) {
                let mut bytes = [0; 8];
                bytes.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
                word.store(u64::from_le_bytes(bytes), Relaxed);
            }
        }
        words[PID].store(pid.into(), Relaxed);
        Some(&self.records[claimed])
    }
}

impl Record {
    /// Counts a call; `above_threshold` if the policy chooses its method.
    #[inline]
    pub fn count(&self, call: Call, length: usize, above_threshold: bool) {
        self.add(call as usize, length);
        if above_threshold {
            self.add(CALLS + call.operation() as usize, length);
        }
    }

    /// Counts a copy below the threshold that the policy executed, because page aliasing would slow it down in the C library.
    #[inline]
    pub fn count_aliased(&self, length: usize) {
        self.0[ALIASED].fetch_add(1, Relaxed);
        self.0[ALIASED + 1].fetch_add(length as u64, Relaxed);
    }

    #[inline]
    fn add(&self, row: usize, length: usize) {
        let at = COUNTS + (row * CLASSES + class_of(length)) * 2;
        self.0[at].fetch_add(1, Relaxed);
        self.0[at + 1].fetch_add(length as u64, Relaxed);
    }

    /// Notes that a child of the process counts in this record, too.
    pub fn include_children(&self) {
        self.0[WITH_CHILDREN].store(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
