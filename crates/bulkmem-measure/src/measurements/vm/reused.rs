//! Memory of an earlier guest, cleared for the next one.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bulkmem::{Intent, Operation, Options, Threads};

use crate::MeasureError;
use crate::engine::Peers;
use crate::engine::arena::RawRange;
use crate::engine::buffer::{Buffer, Content};
use crate::engine::implementation::Implementation;
use crate::engine::threads::split;
use crate::measurements::participants::{participants, sampler};
use crate::measurements::vm::{Memory, Metric, PIECE, PageSize, Run, VmOptions};

impl VmOptions {
    /// Measures clearing the same memory by every participant.
    pub(super) fn reused(&self, run: &mut Run<'_>, pages: PageSize) -> Result<(), MeasureError> {
        run.say(&format!("preparing memory in {pages} pages"), 0.0);
        let mut memory = Buffer::new(self.size, pages, Content::Mixed)?;
        run.backed_by(memory.backing_page_size());
        let whole = memory.raw_range();
        let intents = [Intent::Throughput];
        let mut implementations =
            participants(run, Operation::Clear, &intents, whole.length, &self.methods, self.peers)?;
        if self.peers == Peers::All {
            implementations.push(Implementation::Read);
        }
        let stop = run.stop_flag();
        let mut samplers = Vec::new();
        for &threads in &self.threads {
            let config = self.config(pages, threads, Memory::Reused);
            for &implementation in &implementations {
                samplers.push(sampler(implementation.candidate(), &config, threads == 1, move || {
                    let start = Instant::now();
                    clear(implementation, whole, threads, stop)?;
                    Ok(self.sample(start.elapsed().as_secs_f64(), &[]))
                }));
            }
        }
        let what = format!("reused, {pages} pages");
        run.interleave(&what, Metric::Seconds, self.runs, &mut samplers)
    }
}

/// Clears memory, or reads it, piece by piece, by several threads with a part each.
fn clear(
    implementation: Implementation<'_>,
    whole: RawRange,
    threads: usize,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    match (implementation, NonZeroUsize::new(threads)) {
        // As in a program: the library divides the work among threads.
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
                // SAFETY: within the range, which no other code uses concurrently.
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
