//! Checks of options that several measurements have.

use crate::engine::PageSize;
use crate::engine::reservation::Reservation;
use crate::{MeasureError, OptionName};

/// More threads than this are taken for a mistake.
pub(super) const MOST_THREADS: usize = 1024;

/// Rejects the value of an option. `reason` says what is wrong with it and what would be accepted.
pub(super) fn invalid<T>(option: OptionName, reason: impl Into<String>) -> Result<T, MeasureError> {
    Err(MeasureError::Option { option, reason: reason.into() })
}

/// Checks numbers of threads.
pub(super) fn threads(numbers: &[usize]) -> Result<(), MeasureError> {
    match numbers.iter().find(|threads| !(1..=MOST_THREADS).contains(*threads)) {
        None => Ok(()),
        Some(other) => {
            invalid(OptionName::Threads, format!("{other} is not from 1 to {MOST_THREADS} threads"))
        }
    }
}

/// Checks that `bytes` of memory in pages of each size can be allocated.
pub(super) fn memory(bytes: u64, page_sizes: &[PageSize]) -> Result<(), MeasureError> {
    page_sizes.iter().try_for_each(|pages| {
        pages.check()?;
        Reservation::check(bytes, *pages)
    })
}

/// Checks that blocks are whole cache lines.
pub(super) fn blocks(blocks: &[u64]) -> Result<(), MeasureError> {
    match blocks.iter().find(|block| **block == 0 || !block.is_multiple_of(64)) {
        None => Ok(()),
        Some(block) => invalid(
            OptionName::Block,
            format!("{block} bytes are not whole cache lines; give a multiple of 64"),
        ),
    }
}
