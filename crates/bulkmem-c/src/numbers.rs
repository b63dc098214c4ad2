//! The enums that C passes as numbers.

use bulkmem::{Intent, Operation};

use crate::error::{Error, Failed, fail};

/// An operation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "C passes the numbers")]
pub enum COperation {
    /// bulkmem_clear.
    Clear = 0,
    /// bulkmem_fill.
    Fill = 1,
    /// bulkmem_copy, and bulkmem_move of ranges that do not overlap.
    Copy = 2,
    /// bulkmem_fill_persist and bulkmem_clear_persist.
    FillPersist = 3,
    /// bulkmem_copy_persist.
    CopyPersist = 4,
    /// bulkmem_persist.
    Persist = 5,
}

/// The caller's intent for the bytes after the operation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "C passes the numbers")]
pub enum CIntent {
    /// Not known: the fastest method for the operation itself.
    Throughput = 0,
    /// Reads them soon: the fastest method for the operation and reading the bytes.
    Reuse = 1,
    /// Does not read them soon: the method that leaves the cache to others.
    Stream = 2,
}

/// The contents that survive a power failure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "C passes the numbers")]
pub enum CDurability {
    /// As the machine's policy file says; without one, memory and not the caches.
    Policy = 0,
    /// Memory, and not the caches (ADR): cache lines are written back.
    FlushToMemory = 1,
    /// Caches too (eADR): a fence suffices. On a machine where caches do not survive, a power failure loses data.
    CachesIncluded = 2,
}

/// # Errors
/// [`Error::Argument`].
pub(crate) fn operation(number: u32) -> Result<Operation, Failed> {
    Operation::all().nth(number as usize).ok_or_else(|| unknown_value("operation", number))
}

/// # Errors
/// [`Error::Argument`].
pub(crate) fn intent(number: u32) -> Result<Intent, Failed> {
    Intent::all().nth(number as usize).ok_or_else(|| unknown_value("intent", number))
}

pub(crate) fn unknown_value(kind: &str, value: u32) -> Failed {
    fail(Error::Argument, format_args!("unknown {kind} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_operations_are_those_of_the_library() {
        use COperation::*;
        let numbers = [Clear, Fill, Copy, FillPersist, CopyPersist, Persist].map(|number| number as u32);
        let operations = ["clear", "fill", "copy", "fill_persist", "copy_persist", "persist"];
        assert_eq!(Operation::all().len(), operations.len());
        for (number, name) in numbers.into_iter().zip(operations) {
            assert_eq!(operation(number).unwrap().name(), name);
        }
    }

    #[test]
    fn numbers_of_intents_are_those_of_the_library() {
        let numbers = [CIntent::Throughput, CIntent::Reuse, CIntent::Stream].map(|intent| intent as usize);
        let intents = [Intent::Throughput, Intent::Reuse, Intent::Stream];
        assert_eq!(Intent::all().len(), intents.len());
        for (number, intent) in numbers.into_iter().zip(intents) {
            assert_eq!(Intent::all().nth(number), Some(intent));
        }
    }
}
