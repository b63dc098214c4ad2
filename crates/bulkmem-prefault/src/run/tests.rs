//! Runs over planted memory.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use super::*;
use crate::pace::SystemClock;
use crate::supply::Supply;

const PAGE: u64 = 4096;

/// Memory without pages.
struct Planted<P: Fn(&Range<u64>) -> Result<(), Errno> + Sync> {
    length: u64,
    populate: P,
}

impl<P: Fn(&Range<u64>) -> Result<(), Errno> + Sync> Memory for Planted<P> {
    fn page(&self) -> u64 {
        PAGE
    }

    fn unit(&self) -> u64 {
        2 << 20
    }

    fn origin(&self) -> u64 {
        0
    }

    fn supply(&self) -> Supply<'_> {
        Supply::Reserved
    }

    fn populate(&self, part: &Range<u64>, _touch: bool) -> Result<(), Errno> {
        (self.populate)(part)
    }

    fn missing(&self, part: &Range<u64>) -> u64 {
        part.end - part.start
    }

    fn cause(&self, error: Errno, _part: &Range<u64>) -> Cause {
        Cause::System { doing: "populate planted memory", source: error.into() }
    }
}

impl<P: Fn(&Range<u64>) -> Result<(), Errno> + Sync> Planted<P> {
    fn run(&self, options: &Options<'_>) -> Result<Ready, Error> {
        let pieces = vec![Piece { range: 0..self.length, nodes: None }];
        run(self, 0..self.length, pieces, options, &SystemClock::new())
    }
}

#[test]
fn cancelling_ends_the_search_for_the_page_that_failed() {
    let (cancel, pages) = (AtomicBool::new(false), AtomicU64::new(0));
    let memory = Planted {
        length: 2 << 20,
        populate: |part: &Range<u64>| {
            if part.end - part.start > PAGE {
                return Err(Errno::NOMEM);
            }
            // The third page cancels.
            cancel.store(pages.fetch_add(1, Relaxed) == 2, Relaxed);
            Ok(())
        },
    };
    let error = memory.run(&Options::new().cancel(&cancel)).unwrap_err();
    assert!(matches!(error.cause, Cause::Cancelled), "{error:?}");
    assert_eq!((pages.into_inner(), error.ready), (3, 3 * PAGE));
}

#[test]
fn a_failure_of_another_thread_does_not_end_the_search() {
    let (waiting, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let memory = Planted {
        length: 4 << 20,
        populate: |part: &Range<u64>| {
            if part.end - part.start > PAGE {
                // Both threads have a step.
                waiting.fetch_add(1, Relaxed);
                while waiting.load(Relaxed) < 2 {
                    thread::yield_now();
                }
                return Err(Errno::NOMEM);
            }
            if part.start >= 2 << 20 {
                failed.store(true, Relaxed);
                return Err(Errno::NOMEM);
            }
            while !failed.load(Relaxed) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(20));
            Ok(())
        },
    };
    let error = memory.run(&Options::new().threads(2)).unwrap_err();
    assert!(matches!(error.cause, Cause::System { .. }), "{error:?}");
    assert_eq!(error.ready, 2 << 20, "the pages of the other step");
}

#[test]
fn a_panic_of_the_observer_ends_the_threads() {
    let (observed, populated) = (AtomicBool::new(false), AtomicU64::new(0));
    let memory = Planted {
        length: 1 << 30,
        populate: |part: &Range<u64>| {
            while !observed.load(Relaxed) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(4));
            populated.fetch_add(part.end - part.start, Relaxed);
            Ok(())
        },
    };
    let observer = |_: &Progress| -> ControlFlow<()> {
        observed.store(true, Relaxed);
        panic!("planted");
    };
    let run = || memory.run(&Options::new().threads(2).progress(&observer));
    let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"planted"));
    // Without an end, the threads populate everything before the panic goes on.
    assert!(populated.load(Relaxed) < 1 << 30);
}

#[test]
fn a_panic_of_a_thread_reaches_the_caller() {
    let memory = Planted { length: 1 << 30, populate: |_: &Range<u64>| panic!("planted") };
    for observer in [None, Some(&|_: &Progress| ControlFlow::Continue(()))] {
        let options = Options::new().threads(2);
        let options = match observer {
            Some(observer) => options.progress(observer),
            None => options,
        };
        assert!(catch_unwind(AssertUnwindSafe(|| memory.run(&options))).is_err());
    }
}
