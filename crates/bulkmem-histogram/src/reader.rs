//! Preparing the file, and reading the records.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bulkmem::Operation;

use crate::{
    ALIASED, CALLS, CLAIMED, CLASSES, COUNTS, Call, FILE_BYTES, FORKED_FROM, MAGIC, MAGIC_AT, NAME,
    NAME_WORDS, PID, RECORD_BYTES, RECORDS, WITH_CHILDREN,
};

/// A number of calls and the sum of their lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of calls.
    pub calls: u64,
    /// Sum of their lengths.
    pub bytes: u64,
}

/// The counts of a process. If a process has executed several programs one after the other, each has counts of its own.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number, in its own process namespace.
    pub pid: u32,
    /// The process that forked it, if it has not executed a program since.
    pub forked_from: Option<u32>,
    /// True if the counts include those of some of its children.
    pub with_children: bool,
    /// Name of the executed file.
    pub name: String,
    words: Vec<u64>,
}

/// All that was counted.
#[derive(Clone, Debug)]
pub struct Processes {
    /// In the order in which they started.
    pub processes: Vec<Process>,
    /// Number of processes for which there was no record. The counts of those that were forked are in the records of their
    /// parents; others are not counted.
    pub without_record: u64,
}

/// Makes an empty file a histogram without counts.
///
/// # Errors
/// If it cannot be written, or has no room.
pub fn prepare(file: &File) -> io::Result<()> {
    file.set_len(FILE_BYTES as u64)?;
    file.write_all_at(&MAGIC.to_le_bytes(), 8 * MAGIC_AT as u64)
}

/// Reads what the processes counted so far.
///
/// # Errors
/// If the file cannot be read.
pub fn read(file: &File) -> io::Result<Processes> {
    let claimed = record(file, 0)?[CLAIMED];
    let used = claimed.min(RECORDS as u64);
    let processes = (1..=used).map(|at| Ok(Process::of(record(file, at)?)));
    Ok(Processes { processes: processes.collect::<io::Result<_>>()?, without_record: claimed - used })
}

/// Reads a record, or the header, which comes first.
fn record(file: &File, at: u64) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0_u8; RECORD_BYTES];
    file.read_exact_at(&mut bytes, at * RECORD_BYTES as u64)?;
    let word = |word: &[u8]| word.try_into().map_or(0, u64::from_le_bytes);
    Ok(bytes.chunks_exact(8).map(word).collect())
}

impl Process {
    fn of(words: Vec<u64>) -> Process {
        let name: Vec<u8> = words[NAME..][..NAME_WORDS].iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Process {
            pid: words[PID] as u32,
            forked_from: Some(words[FORKED_FROM] as u32).filter(|pid| *pid != 0),
            with_children: words[WITH_CHILDREN] != 0,
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            words,
        }
    }

    /// Returns the calls of one kind with lengths of a class.
    pub fn calls(&self, call: Call, class: usize) -> Count {
        self.count(call as usize, class)
    }

    /// Returns the calls of an operation (clear, fill or copy) that the policy decided on, with lengths of a class.
    pub fn above_threshold(&self, operation: Operation, class: usize) -> Count {
        self.count(CALLS + operation as usize, class)
    }

    /// Returns the copies below the threshold that the policy executed, because page aliasing would slow them down in the C
    /// library.
    pub fn aliased(&self) -> Count {
        Count { calls: self.words[ALIASED], bytes: self.words[ALIASED + 1] }
    }

    fn count(&self, row: usize, class: usize) -> Count {
        let at = COUNTS + (row * CLASSES + class) * 2;
        Count { calls: self.words[at], bytes: self.words[at + 1] }
    }
}
