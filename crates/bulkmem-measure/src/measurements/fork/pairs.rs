//! The page work of a fork, within this process: a program cannot choose how the kernel clears and copies pages, so this
//! clears and copies as many, by pairs of methods.

use std::ptr::null;
use std::time::Instant;

use bulkmem::Operation;

use super::{BASE, ForkOptions, SHORT_SAMPLE, mean_time};
use crate::engine::{
    Buffer, Candidate, Config, Content, Implementation, Kind, Metric, Result, Run, implementation, units,
};
use crate::measurements::participants::sampler;

/// Pages that the source's kernel cleared for each fork.
const CLEARED: usize = 3;
/// Pages that it copied besides those of the buffer.
const COPIED: usize = 8;

/// Pairs of methods: the candidate's name, the method that clears, and the one that copies. As in the source, loops store 16
/// bytes at a time and copies prefetch.
const PAIRS: [(&str, &str, &str); 5] = [
    (STRING_PAGES, "rep_stosd", "rep_movsd"),
    (CACHED_PAGES, CACHED[0], CACHED[1]),
    (BYPASSING_PAGES, BYPASSING[0], BYPASSING[1]),
    (BYPASSING_COPIES, CACHED[0], BYPASSING[1]),
    (BYPASSING_CLEARS, BYPASSING[0], CACHED[1]),
];
const CACHED: [&str; 2] = ["store_sse2", "store_sse2[read_distance=512]"];
const BYPASSING: [&str; 2] = ["nontemporal_sse2", "nontemporal_sse2[read_distance=512]"];

pub(crate) const STRING_PAGES: &str = "pages by string instructions";
pub(crate) const CACHED_PAGES: &str = "pages through the cache";
pub(crate) const BYPASSING_PAGES: &str = "pages past the cache";
pub(crate) const BYPASSING_COPIES: &str = "pages copied past the cache";
pub(crate) const BYPASSING_CLEARS: &str = "pages cleared past the cache";

impl ForkOptions {
    /// Clears, copies and uses the pages of a fork with each pair that this machine supports.
    pub(super) fn pairs(&self, run: &mut Run<'_>, size: u64) -> Result<()> {
        let page = BASE.bytes();
        let copied = COPIED + usize::try_from(size / page).unwrap_or(usize::MAX);
        let mut memory = Buffer::new((CLEARED + 2 * copied) as u64 * page, BASE, Content::Mixed)?;
        let start = memory.raw_range().start;
        let config = Config { size: Some(size), page_size: Some(BASE), ..Config::default() };
        let mut samplers = Vec::new();
        for (name, clear, copy) in PAIRS {
            let named = |name, operation| implementation::named(name, operation).map(Implementation::Method);
            let (Ok(clear), Ok(copy)) = (named(clear, Operation::Clear), named(copy, Operation::Copy)) else {
                continue;
            };
            let once = move || {
                // SAFETY: the buffer, which holds so many pages, lives as long as the samplers, and no other code uses it.
                Ok(unsafe { fork_work(start, page as usize, copied, &clear, &copy) })
            };
            let sample = mean_time(None, SHORT_SAMPLE, run.observer.stop, Vec::new(), once);
            samplers.push(sampler(Candidate::named(Kind::Method, name), &config, true, sample));
        }
        let what = format!("{}, pages", units::bytes(size));
        run.interleave(&what, Metric::Nanoseconds, self.candidates.runs, &mut samplers)
    }
}

/// Clears and copies pages one by one, and uses some 100 bytes of each. The memory is that of the last call, because the
/// kernel hands out first what was freed last.
///
/// # Safety
/// From `start` on, `CLEARED + 2 * copied` pages are valid for reads and writes, and no other code uses them.
unsafe fn fork_work(
    start: *mut u8,
    page: usize,
    copied: usize,
    clear: &Implementation<'_>,
    copy: &Implementation<'_>,
) -> std::time::Duration {
    let results = CLEARED + copied;
    let at = |index: usize| start.wrapping_add(index * page);
    // SAFETY: the pages lie in the range, which the caller vouches for.
    unsafe {
        // The parent uses its buffer before it forks.
        (results..results + copied).for_each(|index| at(index).write_volatile(1));
        let began = Instant::now();
        (0..CLEARED).for_each(|index| clear.run(1, Operation::Clear, 0, (at(index), null(), page)));
        for index in CLEARED..results {
            let source = at(index + copied).cast_const();
            copy.run(1, Operation::Copy, 0, (at(index), source, page));
        }
        for index in 0..results {
            at(index).write_volatile(2);
            _ = at(index).wrapping_add(page / 2).read_volatile();
        }
        began.elapsed()
    }
}
