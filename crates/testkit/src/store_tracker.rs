//! Follows the bytes of a range through a call: which were written back, how, and whether a barrier came afterwards.
//!
//! Non-temporal stores, write-backs and barriers are recorded by [`crate::breakpoints`], wherever they are in this
//! executable. Ordinary stores are not; those after a barrier or a write-back are noticed by the bytes that they change.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use crate::aarch64::{decode_at, length_at};
use crate::breakpoints::{Often, Recording, record};
use crate::guard::LINE;
use crate::image::Image;
#[cfg(target_arch = "riscv64")]
use crate::riscv64::{decode_at, length_at};
pub use crate::state::State;
use crate::step::{Kind, Step};

/// State of a range of memory after a call.
#[derive(Debug)]
pub struct StoreTracker {
    states: Vec<State>,
    /// Number of non-temporal stores and write-backs, to this range or elsewhere, that no barrier has followed.
    pub weak_pending: usize,
    /// Number of barriers.
    pub fences: usize,
    /// Number of non-temporal stores and write-backs.
    pub weak: usize,
    /// Number of bytes of this range that were changed and that no barrier has followed.
    pub stores_pending: usize,
}

impl StoreTracker {
    /// Runs `call`, which executes at most `limit` of the recorded instructions, and returns the state of `range` afterwards.
    /// Bytes that were not written back count as `before`, or as cached if the call changed them.
    ///
    /// # Errors
    /// As those of [`record`].
    pub fn during(
        limit: usize,
        range: Range<usize>,
        before: State,
        call: impl FnOnce(),
    ) -> Result<StoreTracker, String> {
        let steps = recorded()?;
        let start = bytes(&range);
        // SAFETY: the code is that of this executable. The tests run one after the other, on one thread, and the range is
        // that of memory that they own.
        let recording = unsafe { record(steps.values(), Often::Always, limit, range.clone(), call) }?;
        Ok(StoreTracker::of(steps, &recording, &range, before, &start))
    }

    fn of(
        steps: &BTreeMap<u64, Step>,
        recording: &Recording,
        range: &Range<usize>,
        before: State,
        start: &[u8],
    ) -> StoreTracker {
        let end = bytes(range);
        let changed = |from: &[u8]| from.iter().zip(&end).map(|(from, to)| from != to).collect::<Vec<_>>();
        let mut states = vec![before; end.len()];
        for (state, _) in states.iter_mut().zip(changed(start)).filter(|(_, changed)| *changed) {
            *state = (*state).max(State::Cached);
        }
        let (mut stores, mut write_backs, mut fences, mut weak) = (0, 0, 0, 0);
        for event in &recording.events {
            match steps[&event.address].kind {
                Kind::NontemporalStore | Kind::NontemporalCopy => {
                    weak += 1;
                    stores += 1;
                }
                Kind::WriteBack => {
                    weak += 1;
                    write_backs += 1;
                    let line = event.operand as usize / LINE * LINE;
                    for (at, written) in (line..).zip(event.line) {
                        // What changed afterwards is in the cache again.
                        if let Some(index) = range.contains(&at).then(|| at - range.start) {
                            states[index] =
                                if end[index] == written { State::Pending } else { State::Cached };
                        }
                    }
                }
                Kind::Barrier => {
                    fences += 1;
                    stores = 0;
                }
                Kind::Completion => {
                    fences += 1;
                    (stores, write_backs) = (0, 0);
                    let pending = states.iter_mut().filter(|state| **state == State::Pending);
                    pending.for_each(|state| *state = State::Durable);
                }
                Kind::NontemporalLoad | Kind::LoadBarrier | Kind::Other => {}
            }
        }
        let unordered = changed(&recording.before_last_barrier);
        StoreTracker {
            states,
            weak_pending: stores + write_backs,
            fences,
            weak,
            stores_pending: unordered.into_iter().filter(|changed| *changed).count(),
        }
    }

    /// Returns the index and state of the least advanced byte of the range; `None` if the range is empty.
    pub fn worst(&self) -> Option<(usize, State)> {
        self.states.iter().copied().enumerate().min_by_key(|(_, state)| *state)
    }
}

/// Copies the bytes of a range.
fn bytes(range: &Range<usize>) -> Vec<u8> {
    // SAFETY: the callers' ranges are memory that they own and that no other thread accesses; accesses through references
    // to it are before or after this one.
    range.clone().map(|at| unsafe { (at as *const u8).read_volatile() }).collect()
}

/// Returns the instructions of this executable that are recorded, by address.
fn recorded() -> Result<&'static BTreeMap<u64, Step>, String> {
    static RECORDED: OnceLock<Result<BTreeMap<u64, Step>, String>> = OnceLock::new();
    RECORDED.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<BTreeMap<u64, Step>, String> {
    let image = Image::current()?;
    let mut found = BTreeMap::new();
    for bounds in image.functions().filter_map(|start| image.bounds(start)) {
        let mut address = bounds.start;
        while address < bounds.end {
            // SAFETY: the address is within the mapped code of the executable.
            let decoded = unsafe { decode_at(address) };
            // SAFETY: as above.
            address += unsafe { length_at(address) };
            // Other instructions than the methods have may be unknown.
            let Ok(step) = decoded else { continue };
            address = address.max(step.address + step.length);
            let is = |kinds: &[Kind]| kinds.contains(&step.kind);
            let weak = [Kind::NontemporalStore, Kind::NontemporalCopy, Kind::WriteBack];
            if is(&weak) || is(&[Kind::Barrier, Kind::Completion]) {
                found.insert(step.address, step);
            }
        }
    }
    Ok(found)
}
