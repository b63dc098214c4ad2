//! Verdicts about the cache state that are carried from call to call: for a large total that arrives in calls which are too
//! short to [look](crate::look) each, and for calls that have found the same again and again.
//!
//! The calls of one thread and operation are taken for one stream: a verdict holds for so many of its next bytes. A thread is
//! recognized by the address of its stack, because thread-local memory may have to be allocated at its first use. Two threads
//! that share a slot by chance share verdicts, which costs time and nothing else.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::operation::Operation;
use crate::policy::CacheVerdict;

/// Each takes a cache line per operation. With more threads than slots, some threads share verdicts.
const SLOTS: usize = 16;

/// By operation and thread.
static STREAMS: [[Stream; SLOTS]; Operation::ALL.len()] =
    [const { [const { Stream::new() }; SLOTS] }; Operation::ALL.len()];

/// What is known about a stream of calls, in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Stream(AtomicU64);

/// What is known about a stream between two calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The verdict of the last look; `None` if its clock failed, or none took place.
    pub(crate) verdict: Option<CacheVerdict>,
    /// How many looks in a row have agreed with the one before, at most [`MOST_AGREED`].
    pub(crate) agreed: u8,
    /// Ticks that the first call of this verdict without a look took per KiB; 0 if that is not known, at most [`MOST_PACE`].
    pub(crate) pace: u64,
    /// The last one took another time.
    pub(crate) odd: bool,
    /// How many bytes more the verdict holds for, at most [`MOST_BYTES`].
    pub(crate) left: usize,
}

pub(crate) const MOST_AGREED: u8 = 12;
/// Of the 64 bits of a stream, the lowest name the verdict, the next count agreeing looks, then come ticks, whether the last call
/// was odd, and bytes.
const VERDICT_BITS: u32 = 2;
const AGREED_BITS: u32 = 4;
const PACE_BITS: u32 = 14;
const MOST_PACE: u64 = (1 << PACE_BITS) - 1;
const ODD: u64 = 1 << (VERDICT_BITS + AGREED_BITS + PACE_BITS);
const LEFT_FROM: u32 = VERDICT_BITS + AGREED_BITS + PACE_BITS + 1;
const MOST_BYTES: usize = usize::MAX >> LEFT_FROM;

impl Stream {
    pub(crate) const fn new() -> Stream {
        Stream(AtomicU64::new(0))
    }

    /// The stream of the calling thread and an operation.
    #[inline]
    pub(crate) fn of_this_thread(operation: Operation) -> &'static Stream {
        let on_stack = 0_u8;
        // Stacks are at least 16 KiB apart, mostly megabytes: the multiplication spreads either over the upper bits.
        let spread = ((&raw const on_stack).addr() as u64 >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &STREAMS[operation as usize][(spread >> 60) as usize % SLOTS]
    }

    #[inline]
    pub(crate) fn load(&self) -> Known {
        let word = self.0.load(Relaxed);
        let verdict = match word & ((1 << VERDICT_BITS) - 1) {
            1 => Some(CacheVerdict::Cached),
            2 => Some(CacheVerdict::Uncached),
            3 => Some(CacheVerdict::Unmapped),
            _ => None,
        };
        let agreed = (word >> VERDICT_BITS) as u8 & ((1 << AGREED_BITS) - 1);
        let pace = (word >> (VERDICT_BITS + AGREED_BITS)) & MOST_PACE;
        Known { verdict, agreed, pace, odd: word & ODD != 0, left: (word >> LEFT_FROM) as usize }
    }

    /// Another thread that shares the stream may overwrite it.
    #[inline]
    pub(crate) fn store(&self, known: Known) {
        let verdict: u64 = match known.verdict {
            None => 0,
            Some(CacheVerdict::Cached) => 1,
            Some(CacheVerdict::Uncached) => 2,
            Some(CacheVerdict::Unmapped) => 3,
        };
        let agreed = u64::from(known.agreed.min(MOST_AGREED)) << VERDICT_BITS;
        let pace = known.pace.min(MOST_PACE) << (VERDICT_BITS + AGREED_BITS);
        let left = (known.left.min(MOST_BYTES) as u64) << LEFT_FROM;
        self.0.store(verdict | agreed | pace | if known.odd { ODD } else { 0 } | left, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_what_is_known() {
        let stream = Stream::new();
        assert_eq!(stream.load(), Known::default());
        let verdicts = [CacheVerdict::Cached, CacheVerdict::Uncached, CacheVerdict::Unmapped];
        for verdict in verdicts.map(Some).into_iter().chain([None]) {
            for agreed in [0, 5, MOST_AGREED] {
                let known = Known { verdict, agreed, pace: 77, odd: agreed == 5, left: 4 << 20 };
                stream.store(known);
                assert_eq!(stream.load(), known);
                stream.store(Known { agreed: u8::MAX, pace: u64::MAX, left: usize::MAX, ..known });
                let most = Known { agreed: MOST_AGREED, pace: MOST_PACE, left: MOST_BYTES, ..known };
                assert_eq!(stream.load(), most);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri gives each variable of a stack an address anywhere")]
    fn a_thread_and_operation_find_their_stream_again() {
        let stream = || std::ptr::from_ref(Stream::of_this_thread(Operation::Clear));
        assert_eq!(stream(), stream());
        assert_ne!(stream(), std::ptr::from_ref(Stream::of_this_thread(Operation::Fill)));
    }
}
