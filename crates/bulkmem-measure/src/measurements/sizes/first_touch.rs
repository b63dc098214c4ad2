//! The kernel's own clearing: the first touch of fresh memory.

use std::time::Instant;

use bulkmem::Mapping;

use crate::MeasureError;
use crate::engine::PageSize;
use crate::engine::reservation::Reservation;
use crate::engine::run::Sample;
use crate::engine::threads;

/// Fresh memory, prefaulted by several threads with a part each. The time includes that the kernel allocates, clears and
/// maps the pages.
#[derive(Debug)]
pub(super) struct FirstTouch {
    /// Bytes of each part.
    parts: Vec<usize>,
    pages: PageSize,
    _reservation: Option<Reservation>,
}

impl FirstTouch {
    /// Prepares samples. Maps nothing yet.
    ///
    /// # Errors
    /// If there is no memory left for it.
    pub(super) fn new(bytes: u64, pages: PageSize, threads: usize) -> Result<FirstTouch, MeasureError> {
        Reservation::check(bytes, pages)?;
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let page = usize::try_from(pages.bytes()).unwrap_or(length);
        let part = length.div_ceil(threads.max(1)).next_multiple_of(page).min(length);
        let parts: Vec<usize> = (0..length).step_by(part).map(|from| part.min(length - from)).collect();
        let whole: usize = parts.iter().map(|part| part.next_multiple_of(page)).sum();
        Ok(FirstTouch { parts, pages, _reservation: Reservation::of(whole as u64, pages)? })
    }

    /// GB/s.
    pub(super) fn sample(&self) -> Result<Sample, MeasureError> {
        let mapping = |bytes| move |source| MeasureError::Mapping { bytes, source };
        let fresh = |part: &usize| Mapping::new(*part, self.pages.0).map_err(mapping(*part as u64));
        let mut regions: Vec<Mapping> = self.parts.iter().map(fresh).collect::<Result<_, _>>()?;
        let start = Instant::now();
        let (first, others) = regions.split_first_mut().expect("no memory is refused before");
        let outcome = std::thread::scope(|scope| {
            let others = others.iter_mut().map(|region| threads::spawn(scope, || region.prefault()));
            let others = others.collect::<Result<Vec<_>, _>>()?;
            let first = first.prefault();
            Ok(others.into_iter().fold(first, |so_far, thread| {
                let other = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                so_far.and(other)
            }))
        })?;
        let ns = start.elapsed().as_secs_f64() * 1e9;
        let length: usize = self.parts.iter().sum();
        outcome.map_err(mapping(length as u64))?;
        Ok((length as f64 / ns).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_a_part_and_samples_can_be_taken_again_and_again() {
        for (bytes, threads) in [(1, 1), (4096, 4), (1 << 20, 3), (10 * 4096 + 1, 2)] {
            let touch = FirstTouch::new(bytes, "4K".parse().unwrap(), threads).unwrap();
            assert_eq!(touch.parts.iter().sum::<usize>() as u64, bytes);
            assert!(touch.parts.len() <= threads, "{touch:?}");
            for _ in 0..3 {
                assert!(touch.sample().unwrap().value > 0.0);
            }
        }
        assert!(FirstTouch::new(1 << 46, "4K".parse().unwrap(), 1).is_err());
    }
}
