//! Memory to measure in, of one page size, allocated once and touched before anything is timed.

use bulkmem::Mapping;
use bulkmem::machine::Machine;

use crate::MeasureError;
use crate::engine::arena::{RawRange, write_something};
pub(crate) use crate::engine::error::fits;
use crate::engine::reservation::Reservation;
use crate::engine::threads;
use crate::engine::{PageSize, Run};

/// Memory is touched in pieces of this size; between them the user may stop the run.
const PIECE: usize = 256 << 20;

/// Memory in pages of one size, every byte written.
#[derive(Debug)]
pub(crate) struct Buffer {
    region: Mapping,
    /// Huge pages that were reserved for it.
    _reservation: Option<Reservation>,
}

/// Content of memory before it is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Content {
    /// Bytes of which no line is like the next.
    #[default]
    Mixed,
    /// Zeros, which some processors move faster.
    Zeros,
}

impl Buffer {
    /// Allocates and touches `bytes`. Reserves missing huge pages, and releases them when it is dropped.
    ///
    /// # Errors
    /// If that is more than three quarters of the available memory, the machine does not have such pages, or the
    /// kernel refuses them.
    pub(crate) fn new(bytes: u64, pages: PageSize, content: Content) -> Result<Buffer, MeasureError> {
        pages.check()?;
        Reservation::check(bytes, pages)?;
        let reservation = Reservation::of(bytes, pages)?;
        Buffer::touched(bytes, pages, content, reservation, |_| true)
            .map(|made| made.expect("it is not stopped"))
    }

    /// The same for a run, which reports the progress. `None` if the user stopped the run.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub(crate) fn of_run(
        run: &mut Run<'_>,
        bytes: u64,
        pages: PageSize,
        content: Content,
    ) -> Result<Option<Buffer>, MeasureError> {
        pages.check()?;
        Reservation::check(bytes, pages)?;
        run.say("getting memory ready", 0.0);
        let reservation = Reservation::of(bytes, pages)?;
        let made = Buffer::touched(bytes, pages, content, reservation, |ready| {
            run.say(&format!("getting memory ready: {:.0} %", ready * 100.0), 0.0);
            !run.stopped()
        })?;
        if let Some(buffer) = &made {
            run.backed_by(buffer.backing_page_size());
        }
        Ok(made)
    }

    /// Allocates memory and writes to all of it, with all processors; stops if `go_on`, which receives the share that
    /// is done, returns false.
    fn touched(
        bytes: u64,
        pages: PageSize,
        content: Content,
        reservation: Option<Reservation>,
        mut go_on: impl FnMut(f64) -> bool,
    ) -> Result<Option<Buffer>, MeasureError> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut region =
            Mapping::new(length, pages.0).map_err(|source| MeasureError::Mapping { bytes, source })?;
        let processors = Machine::current().processors.clamp(1, 16);
        for (number, piece) in region.chunks_mut(PIECE).enumerate() {
            if !go_on((number * PIECE) as f64 / length as f64) {
                return Ok(None);
            }
            let part = piece.len().div_ceil(processors).next_multiple_of(64);
            threads::share(processors, piece.chunks_mut(part), |part| match content {
                Content::Mixed => write_something(part),
                Content::Zeros => part.fill(0),
            });
        }
        Ok(Some(Buffer { region, _reservation: reservation }))
    }

    /// Returns its range, which is valid as long as the buffer lives. No references to it exist.
    pub(crate) fn raw_range(&mut self) -> RawRange {
        RawRange { start: self.region.as_mut_ptr(), length: self.region.len() }
    }

    /// Returns the size of the pages that back it, as the kernel reports it.
    pub(crate) fn backing_page_size(&self) -> Option<usize> {
        self.region.backing_page_size().ok()
    }
}
