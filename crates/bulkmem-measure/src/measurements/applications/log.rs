//! A log: a header with the number of committed records, and records, of which the newest overwrite the oldest.

use bulkmem::method;
use bulkmem::{Mapping, Pages};

use super::{Application, store_words};
use crate::engine::arena::write_something;
use crate::engine::buffer::map;
use crate::engine::{Implementation, RawRange, Result};
use crate::measurements::persist::write_by;

pub(super) const HEADER: usize = 64;

#[derive(Debug)]
pub(super) struct Log {
    header: *mut u8,
    records: *mut u8,
    /// How many records fit.
    capacity: u64,
    /// The next record: its number, and other bytes.
    record: Mapping,
    appended: u64,
}

impl Log {
    /// Formats memory as an empty log.
    ///
    /// # Safety
    /// The memory is valid for writes as long as the log lives, and only the log uses it.
    pub(super) unsafe fn new(memory: RawRange, record: usize) -> Result<Log> {
        let capacity = ((memory.length - HEADER) / record) as u64;
        let records = memory.start.wrapping_add(HEADER);
        let mut record = map(record, Pages::Base)?;
        write_something(&mut record);
        let log = Log { header: memory.start, records, capacity, record, appended: 0 };
        log.put_header();
        method::fence();
        Ok(log)
    }

    fn put_header(&self) {
        // SAFETY: the header lies in the memory, which is valid as `new` requires.
        unsafe { store_words(self.header, &[self.appended]) }
    }
}

impl Application for Log {
    /// Appends a group of records and commits it.
    fn step(&mut self, by: &Implementation<'_>, group: u64) -> u64 {
        for _ in 0..group {
            self.record[..8].copy_from_slice(&self.appended.to_ne_bytes());
            let at = (self.appended % self.capacity) as usize * self.record.len();
            // SAFETY: the record lies in the memory, which is valid as `new` requires, and apart from the next one.
            unsafe { write_by(by, self.records.wrapping_add(at), self.record.as_ptr(), self.record.len()) };
            self.appended += 1;
        }
        // The records are durable before the number that counts them.
        method::fence();
        self.put_header();
        method::fence();
        group
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
