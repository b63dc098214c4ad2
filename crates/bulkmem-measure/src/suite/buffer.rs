//! Memory to measure in, of a page size, taken once and touched before anything is timed.

use bulkmem::Region;

use super::PageSize;
use super::reservation::Reservation;
use crate::MeasureError;
use crate::arena::{Stretch, available_memory, write_something};

/// Memory in pages of one size, every byte written.
#[derive(Debug)]
pub(crate) struct Buffer {
    region: Region,
    /// Huge pages that were reserved for it.
    _reservation: Option<Reservation>,
}

/// What memory holds before it is measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Content {
    /// Bytes of which no line is like the next.
    #[default]
    Mixed,
    /// Zeros, which some processors move faster.
    Zeros,
}

impl Buffer {
    /// Takes and touches `bytes`. Huge pages that are missing are reserved, and given back when it is dropped.
    ///
    /// # Errors
    /// Where that is more than three quarters of the available memory, the machine lacks such pages, or the
    /// kernel refuses them.
    pub(crate) fn new(bytes: u64, pages: PageSize, content: Content) -> Result<Buffer, MeasureError> {
        pages.check()?;
        Reservation::check(bytes, pages)?;
        let reservation = Reservation::of(bytes, pages)?;
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut region =
            Region::new(length, pages.0).map_err(|source| MeasureError::Mapping { bytes, source })?;
        let part = length.div_ceil(bulkmem::machine::Machine::current().processors.clamp(1, 16));
        std::thread::scope(|scope| {
            for part in region.chunks_mut(part.next_multiple_of(64)) {
                scope.spawn(move || match content {
                    Content::Mixed => write_something(part),
                    Content::Zeros => part.fill(0),
                });
            }
        });
        Ok(Buffer { region, _reservation: reservation })
    }

    /// Where it is. Valid as long as the buffer lives; nobody forms references to it meanwhile.
    pub(crate) fn stretch(&mut self) -> Stretch {
        Stretch { start: self.region.as_mut_ptr(), length: self.region.len() }
    }

    /// The size of the pages behind it, as the kernel reports it.
    pub(crate) fn backing_page_size(&self) -> Option<usize> {
        self.region.backing_page_size().ok()
    }
}

/// Whether so many bytes can be taken without anybody suffering.
///
/// # Errors
/// [`MeasureError::TooLarge`] where they cannot.
pub(crate) fn fits(bytes: u64) -> Result<(), MeasureError> {
    let available = available_memory();
    if bytes <= available / 4 * 3 { Ok(()) } else { Err(MeasureError::TooLarge { needed: bytes, available }) }
}
