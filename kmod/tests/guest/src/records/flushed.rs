//! The store under test: the library, with the policy's choice and every method that the processor can run, in rotation.

use std::error::Error;

use bulkmem::Operation;
use bulkmem::method::Method;

use crate::methods::{copy_persist_by, methods, persist_by};
use crate::program::Store;

/// Every method that runs on this machine.
pub(crate) struct Flushed {
    copy_persist: Vec<&'static Method>,
    persist: Vec<&'static Method>,
}

impl Flushed {
    pub(crate) fn new() -> Flushed {
        Flushed { copy_persist: methods(Operation::CopyPersist), persist: methods(Operation::Persist) }
    }
}

impl Store for Flushed {
    fn ways(&self) -> Vec<&'static str> {
        let methods = self.copy_persist.iter().chain(&self.persist).map(|method| method.name);
        std::iter::once("the policy").chain(methods).collect()
    }

    fn record(&self, number: u64, to: &mut [u8], from: &[u8]) -> Result<(), Box<dyn Error>> {
        let ways = 1 + self.copy_persist.len() + self.persist.len();
        let way = (number % ways as u64) as usize;
        let done = match way.checked_sub(1) {
            None => bulkmem::copy_persist(to, from),
            Some(way) if way < self.copy_persist.len() => copy_persist_by(self.copy_persist[way], to, from),
            Some(way) => {
                to.copy_from_slice(from);
                persist_by(self.persist[way - self.copy_persist.len()], to)
            }
        };
        Ok(done?)
    }

    fn count(&self, count: u64, to: &mut [u8]) -> Result<(), Box<dyn Error>> {
        to.copy_from_slice(&count.to_le_bytes());
        Ok(bulkmem::persist(to)?)
    }
}
