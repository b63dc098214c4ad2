//! Checks of options that several measurements have.

use std::time::Duration;

pub(crate) use crate::engine::error::{bad, invalid, require};
use crate::engine::{PageSize, Reservation, Result};

/// The largest length, bytes.
const MAX_LENGTH: u64 = 1 << 40;
/// More threads than this are a typing error.
const MAX_THREADS: usize = 4096;
/// The same where each number of threads is measured.
pub(crate) const MOST_THREADS: usize = 1024;
/// Shortest and longest sample that lasts a given time: during one, there is no progress and no stopping.
const SAMPLE_TIMES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(2)];

pub(crate) fn check_budget(budget: Duration) -> Result<()> {
    match budget.as_secs_f64() {
        s if s < 0.1 => invalid("--budget", "less than 0.1 s measures nothing; give more time"),
        s if s > 86_400.0 => invalid("--budget", "more than a day; give at most 86400 s"),
        _ => Ok(()),
    }
}

pub(crate) fn sample_time(time: Duration) -> Result<()> {
    let [shortest, longest] = SAMPLE_TIMES;
    let reason = format!("{time:?} for a sample; give {shortest:?} to {longest:?}, and more --runs");
    require((shortest..=longest).contains(&time), "--time", reason)
}

/// Checks a share of reads, percent.
pub(crate) fn mix(percent: u8) -> Result<()> {
    require(percent <= 100, "--mix", format!("{percent} % is more than all; give 0 to 100"))
}

pub(crate) fn check_length(option: &'static str, length: u64) -> Result<()> {
    let reason = format!("{length} bytes is outside 1 to {MAX_LENGTH} bytes");
    require((1..=MAX_LENGTH).contains(&length), option, reason)
}

pub(crate) fn check_threads(threads: usize) -> Result<()> {
    require(threads <= MAX_THREADS, "--threads", format!("{threads} is more than {MAX_THREADS}"))
}

pub(crate) fn threads(numbers: &[usize]) -> Result<()> {
    numbers.iter().try_for_each(|it| {
        let reason = format!("{it} is not from 1 to {MOST_THREADS} threads");
        require((1..=MOST_THREADS).contains(it), "--threads", reason)
    })
}

/// Checks that `bytes` of memory in pages of each size can be allocated.
pub(crate) fn memory(bytes: u64, page_sizes: &[PageSize]) -> Result<()> {
    page_sizes.iter().try_for_each(|pages| Reservation::check(bytes, *pages))
}

pub(crate) fn blocks(blocks: &[u64]) -> Result<()> {
    blocks.iter().try_for_each(|block| {
        let reason = format!("{block} bytes are not whole cache lines; give a multiple of 64");
        require(*block > 0 && block.is_multiple_of(64), "--block", reason)
    })
}
