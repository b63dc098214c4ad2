//! The queue of steps: which part comes next, and whether the limits have room for it.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Cause;
use crate::memory::Memory;
use crate::numa::NumberList;
use crate::room::Room;

/// A contiguous part whose pages come from the same nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    /// `None` for any.
    pub(crate) nodes: Option<NumberList>,
}

/// The room is read again after this time; the steps since then are subtracted.
const READ_AGAIN: Duration = Duration::from_millis(1);
/// Longest wait for the steps of other threads, before the caller's cancellation is checked again.
const WAIT: Duration = Duration::from_millis(2);

pub(crate) struct Queue<'a> {
    memory: &'a dyn Memory,
    state: Mutex<State<'a>>,
    ended: Condvar,
}

struct State<'a> {
    room: Room<'a>,
    /// The parts that no thread has begun.
    rest: Vec<Piece>,
    /// Bytes of steps that have begun and not ended.
    in_flight: u64,
    read: Option<Reading>,
}

/// A reading of the room.
struct Reading {
    at: Instant,
    piece: usize,
    bytes: u64,
    /// Bytes of steps that this reading may not contain.
    since: u64,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(memory: &'a dyn Memory, pieces: Vec<Piece>, room: Room<'a>) -> Queue<'a> {
        let state = State { room, rest: pieces, in_flight: 0, read: None };
        Queue { memory, state: Mutex::new(state), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next part of a piece, of about `want` bytes; `None` at its end, or if `stopped`. Waits for the steps of
    /// other threads if the room may not suffice for all of them.
    ///
    /// # Errors
    /// If a limit has no room for one more page.
    pub(crate) fn next(
        &self,
        piece: usize,
        want: u64,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Range<u64>>, Cause> {
        let mut state = self.lock();
        loop {
            let rest = state.rest[piece].range.clone();
            if rest.is_empty() || stopped() {
                return Ok(None);
            }
            let mut part = rest.start..self.end(rest.start, want).min(rest.end);
            if !state.has_room(piece, part.end - part.start) {
                if state.in_flight > 0 {
                    let waited = self.ended.wait_timeout(state, WAIT);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    state.read = None;
                    continue;
                }
                part = self.fitting(&mut state, piece, part)?;
            }
            let bytes = part.end - part.start;
            state.rest[piece].range.start = part.end;
            state.in_flight += bytes;
            if let Some(read) = &mut state.read {
                read.since += bytes;
            }
            return Ok(Some(part));
        }
    }

    /// Returns the part of a step that the limits have room for.
    fn fitting(&self, state: &mut State<'a>, piece: usize, part: Range<u64>) -> Result<Range<u64>, Cause> {
        let nodes = state.rest[piece].nodes.clone();
        let left = state.room.left(nodes.as_ref(), true);
        state.read = None;
        let page = self.memory.page();
        // Pages that exist need no room.
        if left.bytes >= part.end - part.start || self.memory.missing(&part) <= left.bytes {
            return Ok(part);
        }
        let first = part.start..(part.start + page).min(part.end);
        match left.bytes / page * page {
            0 if self.memory.missing(&first) == 0 => Ok(first),
            0 => Err(left.into_cause(page)),
            fits => Ok(part.start..part.end.min(part.start + fits)),
        }
    }

    /// Returns the end of a step of about `want` bytes: at a multiple of the unit, so that threads share no huge page.
    fn end(&self, start: u64, want: u64) -> u64 {
        let (unit, origin) = (self.memory.unit(), self.memory.origin());
        let end = ((origin + start + want.max(unit)) / unit * unit).saturating_sub(origin);
        if end > start { end } else { start + want }
    }

    /// Ends the step of a part.
    pub(crate) fn done(&self, part: &Range<u64>) {
        self.lock().in_flight -= part.end - part.start;
        self.ended.notify_all();
    }
}

impl State<'_> {
    /// Returns true if the limits have room for so many more bytes, for certain.
    fn has_room(&mut self, piece: usize, bytes: u64) -> bool {
        let nodes = self.rest[piece].nodes.as_ref();
        if self.room.take(nodes, bytes) {
            return true;
        }
        let old = self.read.take().filter(|read| read.piece == piece && read.at.elapsed() < READ_AGAIN);
        let read = old.unwrap_or_else(|| {
            let left = self.room.left(nodes, false).bytes;
            Reading { at: Instant::now(), piece, bytes: left, since: self.in_flight }
        });
        let rest = read.bytes.checked_sub(read.since.saturating_add(bytes));
        self.read = Some(read);
        // Without enough room, nothing is left to later steps: each must read it anew.
        self.room.leave(nodes, rest.unwrap_or(0));
        rest.is_some()
    }
}
