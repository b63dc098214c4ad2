//! Finding out whether the memory of a call is cached: the time that its first part takes tells.

use super::Choice;

/// When and how an operation [looks at the cache state](crate::look): it takes the time of a part by a method that stores
/// through the cache, and chooses the method for what follows by that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Look {
    /// The smallest length in bytes for which a look pays.
    pub from: usize,
    /// Bytes whose time is taken.
    pub part: usize,
    /// A part that takes fewer ticks of the time stamp counter is cached.
    pub cached_below: u64,
    /// The pages of a part that takes at least so many ticks are not mapped yet.
    pub unmapped_from: u64,
    /// The method for the part.
    pub choice: Choice,
    /// The method for memory whose pages are not mapped yet.
    pub unmapped: Choice,
}

/// What the time of a part says about the memory that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheVerdict {
    /// It is in a cache.
    Cached,
    /// It is not.
    Uncached,
    /// Its pages are not mapped yet. The kernel zeroes each of them through the cache just before the stores reach it, so
    /// that stores through the cache are the fastest there, too.
    Unmapped,
}

impl Look {
    /// Judges by the time of a whole part. `None` if the clock stands still, ran backwards or jumped.
    pub(crate) fn judge(&self, ticks: u64) -> Option<CacheVerdict> {
        /// Half a minute of the fastest clocks.
        const LONGEST: u64 = 1 << 37;
        match ticks {
            0 | LONGEST.. => None,
            ticks if ticks < self.cached_below => Some(CacheVerdict::Cached),
            ticks if ticks < self.unmapped_from => Some(CacheVerdict::Uncached),
            _ => Some(CacheVerdict::Unmapped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;
    use crate::policy::built_in;

    #[test]
    fn the_time_of_a_part_tells_the_state_of_the_cache() {
        let choice = *built_in(Operation::Clear);
        let look = Look {
            from: 65536,
            part: 16384,
            cached_below: 400,
            unmapped_from: 20_000,
            choice,
            unmapped: choice,
        };
        for (ticks, verdict) in [
            (1, CacheVerdict::Cached),
            (399, CacheVerdict::Cached),
            (400, CacheVerdict::Uncached),
            (19_999, CacheVerdict::Uncached),
            (20_000, CacheVerdict::Unmapped),
            (1 << 36, CacheVerdict::Unmapped),
        ] {
            assert_eq!(look.judge(ticks), Some(verdict), "{ticks}");
        }
        for nonsense in [0, 0_u64.wrapping_sub(1), 5_u64.wrapping_sub(1000), 1 << 37] {
            assert_eq!(look.judge(nonsense), None, "{nonsense}");
        }
    }
}
