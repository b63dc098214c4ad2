//! Durability as the library gives it: by the policy's choice, and by every method that the processor can run, in turns.

use bulkmem::method::Method;
use bulkmem::{Error, Operation};

use crate::program::Store;
use crate::rows::{flush_by, persist_by, rows};

/// The library, with every method that runs here.
pub(crate) struct Flushed {
    persist: Vec<&'static Method>,
    flush: Vec<&'static Method>,
}

impl Flushed {
    pub(crate) fn new() -> Flushed {
        Flushed { persist: rows(Operation::CopyPersist), flush: rows(Operation::Persist) }
    }
}

impl Store for Flushed {
    fn ways(&self) -> Vec<&'static str> {
        let rows = self.persist.iter().chain(&self.flush).map(|row| row.name);
        std::iter::once("the policy").chain(rows).collect()
    }

    fn record(&self, number: u64, to: &mut [u8], from: &[u8]) -> Result<(), Error> {
        let ways = 1 + self.persist.len() + self.flush.len();
        let way = (number % ways as u64) as usize;
        match way.checked_sub(1) {
            None => bulkmem::copy_persist(to, from),
            Some(way) if way < self.persist.len() => persist_by(self.persist[way], to, from),
            Some(way) => {
                to.copy_from_slice(from);
                flush_by(self.flush[way - self.persist.len()], to)
            }
        }
    }

    fn count(&self, count: u64, to: &mut [u8]) -> Result<(), Error> {
        to.copy_from_slice(&count.to_le_bytes());
        bulkmem::persist(to)
    }
}
