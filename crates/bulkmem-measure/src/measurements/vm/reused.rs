//! Memory that was a guest's before, cleared for the next one.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bulkmem::{Intent, Operation, Options, Threads};

use crate::engine::Peers;
use crate::engine::arena::RawRange;
use crate::engine::buffer::{Buffer, Content};
use crate::engine::implementation::{self, Implementation};
use crate::engine::threads::split;
use crate::measurements::vm::{Memory, Metric, PIECE, PageSize, Run, Sampler, VmOptions};
use crate::{Kind, MeasureError};

impl VmOptions {
    /// The same memory, cleared again by everybody.
    pub(super) fn reused(&self, run: &mut Run<'_>, pages: PageSize) -> Result<(), MeasureError> {
        run.say(&format!("getting {pages} memory ready"), 0.0);
        let mut memory = Buffer::new(self.size, pages, Content::Mixed)?;
        run.backed_by(memory.backing_page_size());
        let whole = memory.raw_range();
        let mut implementations =
            vec![Implementation::policy(run.policy(), Intent::Throughput, whole.length)];
        implementations.extend(
            implementation::methods(&self.methods, Operation::Clear)?.into_iter().map(Implementation::Method),
        );
        if self.peers == Peers::All {
            match implementation::libraries(Operation::Clear) {
                Ok(libraries) => implementations.extend(libraries),
                Err(reason) => run.note(reason),
            }
            implementations.push(Implementation::Read);
        } else {
            implementations.retain(|implementation| implementation.candidate().kind != Kind::Peer);
        }
        let stop = run.stop_flag();
        let mut samplers = Vec::new();
        for &threads in &self.threads {
            for &implementation in &implementations {
                samplers.push(Sampler {
                    candidate: implementation.candidate(),
                    config: self.config(pages, threads, Memory::Reused),
                    sample: Box::new(move || {
                        let start = Instant::now();
                        clear(implementation, whole, threads, stop)?;
                        Ok(self.sample(start.elapsed().as_secs_f64(), &[]))
                    }),
                    counted: threads == 1,
                });
            }
        }
        let what = format!("reused, {pages} pages");
        run.interleave(&what, Metric::Seconds, self.runs, &mut samplers)
    }
}

/// Clears all of it (or reads it), so many threads a part each, piece by piece.
fn clear(
    implementation: Implementation<'_>,
    whole: RawRange,
    threads: usize,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    match (implementation, NonZeroUsize::new(threads)) {
        // As a caller has it: the public interface shares the work among threads.
        (Implementation::Policy(policy, intent, extent, _), Some(count)) if threads > 1 => {
            let bulk = Options::new()
                .total_len(extent)
                .intent(intent)
                .threads(Threads::Exactly(count))
                .policy(policy);
            let bulk = bulk.map_err(|_| MeasureError::Policy)?;
            // Large enough that starting threads anew for each costs nothing.
            let piece = PIECE.saturating_mul(threads);
            for at in (0..whole.length).step_by(piece) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // SAFETY: within the range, which nobody else uses meanwhile.
                unsafe { bulk.clear_raw(whole.start.wrapping_add(at), piece.min(whole.length - at)) }
            }
        }
        _ => split(threads, whole.start, std::ptr::null(), whole.length, |start, _, length| {
            for at in (0..length).step_by(PIECE) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let start = start.wrapping_add(at);
                // SAFETY: as above, and no other thread gets this part; clearing has no source.
                unsafe { implementation.run(Operation::Clear, start, start, PIECE.min(length - at), 0) }
            }
        }),
    }
    if stop.load(Ordering::Relaxed) { Err(MeasureError::Interrupted) } else { Ok(()) }
}
