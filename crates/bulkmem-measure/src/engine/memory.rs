//! How much memory a measurement may take of what this process may still use.

pub use bulkmem_prefault::limits::{MemoryLeft, MemoryLimit, memory_left};

/// The parts of the memory left that measurements use.
pub(crate) trait Share {
    /// Returns the most that one measurement takes at a time: three quarters. The rest is for stacks, the results, and
    /// others.
    fn most(&self) -> u64;

    /// Returns the note in results and output when defaults had to be smaller than usual: only a limit that was set on
    /// purpose is named, and only if it is below what the largest defaults need.
    fn note(&self) -> Option<String>;
}

impl Share for MemoryLeft {
    fn most(&self) -> u64 {
        self.bytes / 4 * 3
    }

    fn note(&self) -> Option<String> {
        /// Half of this, 4 GiB, is the largest default.
        const PLENTY: u64 = 8 << 30;
        let set = self.limit != MemoryLimit::Available && self.bytes < PLENTY;
        set.then(|| {
            format!("sizes that were not named are chosen to fit the {self}; what needs more is left out")
        })
    }
}

/// The default sizes that this process may use, each of which needs so much memory; at least the smallest.
pub(crate) fn defaults(sizes: impl IntoIterator<Item = u64>, needed: impl Fn(u64) -> u64) -> Vec<u64> {
    let most = memory_left().most();
    let mut sizes: Vec<u64> = sizes.into_iter().collect();
    let smallest = sizes.iter().min().copied();
    sizes.retain(|size| needed(*size) <= most || Some(*size) == smallest);
    sizes
}

#[cfg(test)]
mod tests;
