//! A value that is made at its first use, without a lock: the child of a fork never waits for a thread of its parent.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is made at its first use and kept for good.
pub(crate) struct Once<T: Send + Sync + 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Once<T> {
    pub(crate) const fn new() -> Once<T> {
        Once(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value. Threads that need it first at the same time each make one, and the first one counts.
    pub(crate) fn get_or_init(&'static self, make: impl FnOnce() -> T) -> &'static T {
        // SAFETY: null, or a value that is never released or changed.
        if let Some(value) = unsafe { self.0.load(Ordering::Acquire).as_ref() } {
            return value;
        }
        let made = Box::into_raw(Box::new(make()));
        match self.0.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as above.
            Ok(_) => unsafe { &*made },
            Err(first) => {
                // SAFETY: made by `into_raw` above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: as above.
                unsafe { &*first }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_gets_the_same_value() {
        static VALUE: Once<String> = Once::new();
        let get = |number: usize| VALUE.get_or_init(|| number.to_string());
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|number| scope.spawn(move || ptr::from_ref(get(number)).addr())).collect();
            let found: Vec<usize> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert_eq!(found, [ptr::from_ref(get(9)).addr(); 8]);
        });
    }

    #[test]
    fn a_value_made_during_another_gives_way_to_it() {
        static VALUE: Once<u32> = Once::new();
        assert_eq!(VALUE.get_or_init(|| VALUE.get_or_init(|| 1) + 1), &1);
    }
}
