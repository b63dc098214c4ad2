//! Verdicts about the cache state that are carried from call to call, for a large total that arrives in calls which are
//! too short to [look](crate::look) each.
//!
//! The calls of one thread and operation are taken for one stream: a verdict holds for its next megabytes. A thread is
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

/// The state of a stream between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is looking: so many bytes took so many ticks.
    Looking { bytes: usize, ticks: u64 },
    /// It has looked. The verdict, `None` if the clock failed, holds for so many bytes more.
    Known { verdict: Option<CacheVerdict>, left: usize },
}

/// Of the 64 bits of a stream, the lowest say what they mean, the next 24 count bytes, and the rest ticks.
const KIND_BITS: u32 = 3;
const BYTES_BITS: u32 = 24;
const MOST_BYTES: usize = (1 << BYTES_BITS) - 1;
const MOST_TICKS: u64 = u64::MAX >> (KIND_BITS + BYTES_BITS);

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

    pub(crate) fn load(&self) -> State {
        let word = self.0.load(Relaxed);
        let bytes = (word >> KIND_BITS) as usize & MOST_BYTES;
        let known = |verdict| State::Known { verdict, left: bytes };
        match word & ((1 << KIND_BITS) - 1) {
            0 => State::Looking { bytes, ticks: word >> (KIND_BITS + BYTES_BITS) },
            1 => known(Some(CacheVerdict::Cached)),
            2 => known(Some(CacheVerdict::Uncached)),
            3 => known(Some(CacheVerdict::Unmapped)),
            _ => known(None),
        }
    }

    /// Stores a state; another thread that shares the stream may overwrite it.
    pub(crate) fn store(&self, state: State) {
        let (kind, bytes, ticks) = match state {
            State::Looking { bytes, ticks } => (0, bytes, ticks),
            State::Known { verdict: Some(CacheVerdict::Cached), left } => (1, left, 0),
            State::Known { verdict: Some(CacheVerdict::Uncached), left } => (2, left, 0),
            State::Known { verdict: Some(CacheVerdict::Unmapped), left } => (3, left, 0),
            State::Known { verdict: None, left } => (4, left, 0),
        };
        let counts = bytes.min(MOST_BYTES) as u64 | (ticks.min(MOST_TICKS) << BYTES_BITS);
        self.0.store(kind | (counts << KIND_BITS), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_every_state() {
        let stream = Stream::new();
        assert_eq!(stream.load(), State::Looking { bytes: 0, ticks: 0 });
        let verdicts = [CacheVerdict::Cached, CacheVerdict::Uncached, CacheVerdict::Unmapped];
        let known = verdicts.map(Some).into_iter().chain([None]);
        let known = known.map(|verdict| State::Known { verdict, left: 4 << 20 });
        for state in known.chain([State::Looking { bytes: 12345, ticks: 1 << 36 }]) {
            stream.store(state);
            assert_eq!(stream.load(), state);
        }
        stream.store(State::Looking { bytes: usize::MAX, ticks: u64::MAX });
        assert_eq!(stream.load(), State::Looking { bytes: MOST_BYTES, ticks: MOST_TICKS });
    }

    #[test]
    fn a_thread_and_operation_find_their_stream_again() {
        let stream = || std::ptr::from_ref(Stream::of_this_thread(Operation::Clear));
        assert_eq!(stream(), stream());
        assert_ne!(stream(), std::ptr::from_ref(Stream::of_this_thread(Operation::Fill)));
    }
}
