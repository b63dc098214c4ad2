//! Finding out whether the memory of a call is cached: the time of a few stores tells.

use super::Choice;

/// When and how an operation [looks at the cache state](crate::look): it stores to a few places, and chooses the method by
/// the time that takes. Times are in ticks of the time stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Look {
    /// The smallest length in bytes for which a look pays.
    pub from: usize,
    /// The lines are cached if storing to them, or even reaching their pages, takes fewer ticks.
    pub cached_below: u64,
    /// How memory is recognized whose pages are not mapped yet; `None` if it cannot be told from other memory.
    pub unmapped: Option<Unmapped>,
}

/// How a look recognizes memory whose pages are not mapped yet, and the method for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Unmapped {
    /// Reaching the pages takes at least so many ticks.
    pub from: u64,
    /// The method.
    pub choice: Choice,
    /// How long calls recognize new huge pages, in which they store past the cache; `None` if that does not pay.
    pub huge: Option<NewHugePages>,
}

/// How a look recognizes huge pages that are not mapped yet, and the calls that treat them as memory that is not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NewHugePages {
    /// Reaching the first page takes at least so many ticks: the kernel clears all of it.
    pub from: u64,
    /// Calls of at least so many bytes, and of at least 4 MiB for each thread. What the kernel cleared for shorter ones stays in the cache,
    /// and their stores, too.
    pub length: usize,
}

/// Bytes from a look to the next while stores go through the cache. Shorter pieces of calls do not tell huge pages.
pub(crate) const INTERVAL: usize = 4 << 20;

/// Bytes that a look needs: shorter calls never look.
pub(crate) const LEAST_LOOKED: usize = 4096;

/// What the time of a look says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheVerdict {
    /// The memory is in a cache.
    Cached,
    /// It is not.
    Uncached,
    /// Its pages are not mapped yet. The kernel zeroes each of them through the cache just before the stores reach it, so
    /// that stores through the cache are the fastest there, too, but for [huge pages](NewHugePages) in long calls.
    Unmapped,
}

impl Look {
    /// Judges by the time until the pages were reached, and that of stores to their lines, which is `None` if the first was short
    /// enough. `None` if the clock stands still, ran backwards or jumped.
    #[inline(always)]
    pub(crate) fn judge(&self, reaching: u64, storing: Option<u64>) -> Option<CacheVerdict> {
        /// Half a minute of the fastest clocks.
        const LONGEST: u64 = 1 << 37;
        let possible = |ticks: u64| (1..LONGEST).contains(&ticks);
        if !possible(reaching) || !storing.is_none_or(possible) {
            return None;
        }
        Some(match self.unmapped {
            Some(unmapped) if reaching >= unmapped.from => CacheVerdict::Unmapped,
            _ if storing.is_none_or(|storing| storing < self.cached_below) => CacheVerdict::Cached,
            _ => CacheVerdict::Uncached,
        })
    }
}

impl NewHugePages {
    /// True if a call of that length that is part of `total_len` bytes, which so many threads share, bypasses the cache in new huge
    /// pages. Pieces of less than 4 MiB never do.
    #[must_use]
    pub fn are_bypassed(&self, length: usize, total_len: usize, threads: usize) -> bool {
        length.max(total_len) >= self.length && length / threads.max(1) >= INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;
    use crate::policy::built_in;

    #[test]
    fn the_times_of_a_look_tell_the_state_of_the_cache() {
        let unmapped = Unmapped { from: 20_000, choice: *built_in(Operation::Clear), huge: None };
        let look = Look { from: 65536, cached_below: 400, unmapped: Some(unmapped) };
        assert_eq!(look.judge(399, None), Some(CacheVerdict::Cached));
        for (reaching, storing, verdict) in [
            (400, 1, CacheVerdict::Cached),
            (19_999, 399, CacheVerdict::Cached),
            (400, 400, CacheVerdict::Uncached),
            (19_999, 1 << 36, CacheVerdict::Uncached),
            (20_000, 1, CacheVerdict::Unmapped),
            (1 << 36, 500, CacheVerdict::Unmapped),
        ] {
            assert_eq!(look.judge(reaching, Some(storing)), Some(verdict), "{reaching}, {storing}");
            let mapped = if storing < 400 { CacheVerdict::Cached } else { CacheVerdict::Uncached };
            let look = Look { unmapped: None, ..look };
            assert_eq!(look.judge(reaching, Some(storing)), Some(mapped), "{reaching}, {storing}");
        }
        for nonsense in [0, 0_u64.wrapping_sub(1), 5_u64.wrapping_sub(1000), 1 << 37] {
            for storing in [None, Some(9)] {
                assert_eq!(look.judge(nonsense, storing), None, "{nonsense}");
            }
            assert_eq!(look.judge(9, Some(nonsense)), None, "{nonsense}");
        }
    }

    #[test]
    fn long_calls_bypass_the_cache_in_new_huge_pages() {
        let huge = NewHugePages { from: 90_000, length: 16 << 20 };
        assert!(huge.are_bypassed(16 << 20, 0, 1));
        assert!(!huge.are_bypassed((16 << 20) - 1, 0, 1), "they stay in the cache");
        assert!(huge.are_bypassed(4 << 20, 16 << 20, 1), "a part of a long total");
        assert!(!huge.are_bypassed((4 << 20) - 1, 16 << 20, 1), "a short part");
        assert_eq!(
            [4, 5].map(|threads| huge.are_bypassed(16 << 20, 0, threads)),
            [true, false],
            "short pieces"
        );
    }
}
