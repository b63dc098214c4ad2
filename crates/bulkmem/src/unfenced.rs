//! The type that makes a forgotten fence a compile error.
//!
//! Weakly ordered stores (non-temporal ones, CLZERO, MOVDIR64B, and write-backs of cache lines) may become visible to
//! other threads after later stores of the same thread: a flag that says "the data is complete" can overtake the data. A
//! fence prevents that. One fence after many operations costs less than one after each, but before it the bytes must not
//! be used.
//!
//! [`fence_scope`] enforces that: in it operations return an [`Unfenced`], and only [`Unfenced::fence`] returns the bytes:
//!
//! ```
//! let mut left = vec![1; 4096];
//! let mut right = vec![1; 4096];
//! bulkmem::fence_scope(|scope| {
//!     let both = scope.clear(&mut left).join(scope.fill(&mut right, 7));
//!     let (left, right) = both.fence(); // one fence for both
//!     assert_eq!((left[0], right[0]), (0, 7));
//! });
//! assert_eq!((left[4095], right[4095]), (0, 7));
//! ```
//!
//! # Why a scope
//!
//! A guard that fences when it is dropped does not suffice: safe code may forget a guard (`mem::forget`, a cycle of
//! `Rc`s), the borrow ends, and the bytes are used unfenced. `std::thread::scoped` had the same flaw before Rust 1.0, and
//! the solution is that of `std::thread::scope`: the bytes are borrowed for `'scope`, a lifetime that the caller cannot
//! name and that ends only after [`fence_scope`] has fenced, which it does when the closure returns and when it panics.
//! Forgetting an `Unfenced` then only means that its bytes are not available before the scope ends.
//!
//! A fence orders the stores of one thread, so neither the scope nor an `Unfenced` can be sent to another thread. Lifetimes
//! are invariant, so values of different scopes cannot be joined.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::error::Error;
use crate::kernel::Memory;
use crate::method;
use crate::operation::Operation;
use crate::options::Options;

/// Runs `f` with a scope in which operations do not fence, and fences once at the end if anything is still unfenced,
/// whether `f` returns or panics. [`FenceScope`] has the operations.
///
/// ```
/// let mut pages = vec![vec![1; 4096]; 64];
/// bulkmem::fence_scope(|scope| {
///     for page in &mut pages {
///         scope.clear(page).defer();
///     }
/// }); // one fence for all
/// assert!(pages.iter().flatten().all(|&byte| byte == 0));
/// ```
#[inline]
pub fn fence_scope<'env, R>(f: impl for<'scope> FnOnce(&'scope FenceScope<'scope, 'env>) -> R) -> R {
    Options::new().fence_scope(f)
}

impl<'p> Options<'p> {
    /// As [`fence_scope`], with these options. Operations on several threads fence on each thread before they return.
    #[inline]
    pub fn fence_scope<'env, R>(&self, f: impl for<'scope> FnOnce(&'scope FenceScope<'scope, 'env>) -> R) -> R
    where
        'p: 'env,
    {
        // `f` must do with every 'scope up to 'env, so all that it lends for 'scope is borrowed for 'env; and 'env is a
        // parameter, so it outlives this call. The scope is dropped, and fences, before the call ends in either way.
        let scope = FenceScope {
            options: self.deferred(),
            debt: Debt::default(),
            scope: PhantomData,
            env: PhantomData,
        };
        f(&scope)
    }
}

/// The operations that do not fence; see [`fence_scope`].
#[derive(Debug)]
pub struct FenceScope<'scope, 'env: 'scope> {
    options: Options<'env>,
    debt: Debt,
    /// Invariant, as in `std::thread::Scope`: else `'scope` could shrink to less than the scope's time.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> FenceScope<'scope, '_> {
    /// Sets every byte of `dst` to zero.
    #[inline]
    pub fn clear(&'scope self, dst: &'scope mut [u8]) -> Unfenced<'scope, &'scope mut [u8]> {
        self.write(Operation::Clear, dst, 0)
    }

    /// Fills `dst` with `byte`.
    #[inline]
    pub fn fill(&'scope self, dst: &'scope mut [u8], byte: u8) -> Unfenced<'scope, &'scope mut [u8]> {
        self.write(Operation::Fill, dst, byte)
    }

    #[inline]
    fn write(
        &'scope self,
        operation: Operation,
        dst: &'scope mut [u8],
        byte: u8,
    ) -> Unfenced<'scope, &'scope mut [u8]> {
        let plan = self.options.plan_fill(operation, dst.len());
        // SAFETY: a mutable slice is valid for writes.
        let weak = unsafe { plan.unfenced(Memory::filled(dst.as_mut_ptr(), dst.len(), byte)) };
        self.owe(weak, dst)
    }

    /// Copies `src` to `dst`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    #[inline]
    pub fn copy(
        &'scope self,
        dst: &'scope mut [u8],
        src: &[u8],
    ) -> Result<Unfenced<'scope, &'scope mut [u8]>, Error> {
        let memory = Memory::pair(dst, src)?;
        // SAFETY: `pair` vouches for the slices.
        let weak = unsafe { self.options.plan_copy(&memory).unfenced(memory) };
        Ok(self.owe(weak, dst))
    }

    /// Copies `src` to `dst` and makes `dst` durable: it is, once fenced. See [`crate::copy_persist`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline]
    pub fn copy_persist(
        &'scope self,
        dst: &'scope mut [u8],
        src: &[u8],
    ) -> Result<Unfenced<'scope, &'scope mut [u8]>, Error> {
        let memory = Memory::pair(dst, src)?;
        let plan = self.options.plan_copy_persist(&memory)?;
        // SAFETY: `pair` vouches for the slices.
        let weak = unsafe { plan.unfenced(memory) };
        Ok(self.owe(weak, dst))
    }

    /// Sets every byte of `dst` to `byte` and makes `dst` durable, once fenced. See [`crate::fill_persist`].
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline]
    pub fn fill_persist(
        &'scope self,
        dst: &'scope mut [u8],
        byte: u8,
    ) -> Result<Unfenced<'scope, &'scope mut [u8]>, Error> {
        let plan = self.options.plan_fill_persist(dst.len())?;
        // SAFETY: a mutable slice is valid for writes.
        let weak = unsafe { plan.unfenced(Memory::filled(dst.as_mut_ptr(), dst.len(), byte)) };
        Ok(self.owe(weak, dst))
    }

    /// Sets every byte of `dst` to zero and makes `dst` durable, once fenced. See [`crate::clear_persist`].
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline]
    pub fn clear_persist(
        &'scope self,
        dst: &'scope mut [u8],
    ) -> Result<Unfenced<'scope, &'scope mut [u8]>, Error> {
        self.fill_persist(dst, 0)
    }

    /// Makes durable what ordinary stores have written to `bytes`: it is, once fenced. See [`crate::persist`].
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline]
    pub fn persist(&'scope self, bytes: &'scope [u8]) -> Result<Unfenced<'scope, &'scope [u8]>, Error> {
        let weak = match self.options.plan_persist(bytes.len())? {
            // SAFETY: a slice is valid for reads.
            Some(plan) => unsafe { plan.unfenced(Memory::written_back(bytes.as_ptr(), bytes.len())) },
            None => true,
        };
        Ok(self.owe(weak, bytes))
    }

    /// Fences everything that this scope has written so far. Earlier [`Unfenced`] values need no fence of their own then.
    #[inline]
    pub fn fence(&self) {
        self.debt.settle(self.debt.written.get());
    }

    #[inline]
    fn owe<T>(&'scope self, weak: bool, value: T) -> Unfenced<'scope, T> {
        let ticket = if weak { self.debt.write() } else { 0 };
        Unfenced { owed: Owed { debt: &self.debt, ticket, scope: PhantomData }, value }
    }
}

/// The writes of a scope that still need a fence. They are numbered from 1; one fence settles all earlier ones.
#[derive(Debug, Default)]
struct Debt {
    written: Cell<u64>,
    fenced: Cell<u64>,
}

impl Debt {
    /// Records a weakly ordered write and returns its number.
    #[inline]
    fn write(&self) -> u64 {
        let ticket = self.written.get() + 1;
        self.written.set(ticket);
        ticket
    }

    /// Fences, unless a fence came after the write of that number. No write has the number 0.
    #[inline]
    fn settle(&self, ticket: u64) {
        if ticket > self.fenced.get() {
            method::fence();
            self.fenced.set(self.written.get());
            #[cfg(test)]
            tests::FENCES.set(tests::FENCES.get() + 1);
        }
    }
}

impl Drop for Debt {
    #[inline]
    fn drop(&mut self) {
        self.settle(self.written.get());
    }
}

/// A fence that some bytes need. Dropping it fences.
#[derive(Debug)]
struct Owed<'scope> {
    debt: &'scope Debt,
    /// The last write that needs the fence; 0 if none does.
    ticket: u64,
    /// Invariant: parts of different scopes cannot be joined, as their numbers are of different debts.
    scope: PhantomData<&'scope mut &'scope ()>,
}

impl Drop for Owed<'_> {
    #[inline]
    fn drop(&mut self) {
        self.debt.settle(self.ticket);
    }
}

/// Bytes that need a fence before others can see them in order, or before they are durable. [`Unfenced::fence`] returns
/// them.
///
/// Dropping it fences; the bytes stay borrowed until the scope ends. If the stores were ordered, or a fence came after
/// them, no fence is issued.
#[must_use = "dropping it fences immediately: join it with others and fence them together, or `defer` it to the scope's end"]
pub struct Unfenced<'scope, T> {
    // Declared first, so dropped first.
    owed: Owed<'scope>,
    value: T,
}

impl<'scope, T> Unfenced<'scope, T> {
    /// Fences and returns the bytes.
    #[inline]
    pub fn fence(self) -> T {
        let Unfenced { owed, value } = self;
        drop(owed);
        value
    }

    /// Joins two values, which then need one fence.
    #[inline]
    pub fn join<U>(self, other: Unfenced<'scope, U>) -> Unfenced<'scope, (T, U)> {
        let Unfenced { mut owed, value } = self;
        let Unfenced { owed: mut others, value: second } = other;
        owed.ticket = owed.ticket.max(others.ticket);
        others.ticket = 0;
        Unfenced { owed, value: (value, second) }
    }

    /// Leaves the fence to the end of the scope, which also ends the borrow of the bytes.
    #[inline]
    pub fn defer(self) {
        let Unfenced { mut owed, .. } = self;
        owed.ticket = 0;
    }
}

/// Does not show the bytes, which must not be read yet.
impl<T> std::fmt::Debug for Unfenced<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unfenced").field("owed", &self.owed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! These run under Miri too: `owe` simulates weakly ordered writes, and the portable method is forced.

    use std::mem;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::method;
    use crate::policy::Choice;

    thread_local! {
        /// Fences that scopes of this thread have issued since a test set it to 0.
        pub(super) static FENCES: Cell<usize> = const { Cell::new(0) };
    }

    fn fences(during: impl FnOnce()) -> usize {
        FENCES.set(0);
        during();
        FENCES.get()
    }

    /// A write that needs a fence.
    fn weak<'scope>(
        scope: &'scope FenceScope<'scope, '_>,
        dst: &'scope mut [u8],
    ) -> Unfenced<'scope, &'scope mut [u8]> {
        dst.fill(7);
        scope.owe(true, dst)
    }

    /// Methods whose stores are ordered.
    fn ordered() -> Options<'static> {
        let portable = method::by_name("portable").unwrap();
        Options::new().method(Operation::Clear, Choice::of(portable, Operation::Clear)).unwrap()
    }

    #[test]
    fn a_fence_gives_the_bytes_back() {
        let mut bytes = [1; 100];
        let issued = fences(|| {
            ordered().fence_scope(|scope| {
                let back = weak(scope, &mut bytes).fence();
                assert_eq!(back, [7; 100]);
                back[0] = 9;
            });
        });
        assert_eq!((issued, bytes[0], bytes[99]), (1, 9, 7));
    }

    #[test]
    fn joined_parts_are_fenced_once() {
        let (mut a, mut b, mut c) = ([1; 10], [2; 20], [3; 30]);
        let issued = fences(|| {
            ordered().fence_scope(|scope| {
                let all = weak(scope, &mut a).join(weak(scope, &mut b)).join(scope.clear(&mut c));
                assert_eq!(FENCES.get(), 0);
                let ((a, b), c) = all.fence();
                assert_eq!((a.len(), b.len(), c.len()), (10, 20, 30));
            });
        });
        assert_eq!(issued, 1);
    }

    #[test]
    fn ordered_parts_need_no_fence() {
        let (mut a, mut b) = ([1; 10], [2; 20]);
        let issued = fences(|| {
            ordered().fence_scope(|scope| {
                drop(scope.clear(&mut a).join(scope.clear(&mut b)));
                scope.fence();
            });
        });
        assert_eq!((issued, a, b), (0, [0; 10], [0; 20]));
    }

    #[test]
    fn dropping_fences_once_and_serves_all_written_before() {
        let (mut a, mut b, mut c) = ([1; 10], [2; 20], [3; 30]);
        let issued = fences(|| {
            fence_scope(|scope| {
                let first = weak(scope, &mut a);
                let second = weak(scope, &mut b);
                drop(second);
                assert_eq!(FENCES.get(), 1);
                drop(first);
                assert_eq!(FENCES.get(), 1, "the fence came after both");
                drop(weak(scope, &mut c));
                assert_eq!(FENCES.get(), 2, "nothing fenced the third");
            });
        });
        assert_eq!(issued, 2, "nothing is left for the end");
    }

    #[test]
    fn a_fence_before_a_write_does_not_serve_it() {
        let (mut a, mut b) = ([1; 10], [2; 20]);
        let issued = fences(|| {
            fence_scope(|scope| {
                let first = weak(scope, &mut a);
                first.fence();
                let second = weak(scope, &mut b);
                second.fence();
            });
        });
        assert_eq!(issued, 2);
    }

    #[test]
    fn the_scope_fences_what_was_forgotten_or_deferred() {
        let mut pages = vec![[1_u8; 64]; 5];
        let issued = fences(|| {
            fence_scope(|scope| {
                for (at, page) in pages.iter_mut().enumerate() {
                    let unfenced = weak(scope, page);
                    if at % 2 == 0 { mem::forget(unfenced) } else { unfenced.defer() }
                }
                assert_eq!(FENCES.get(), 0);
            });
        });
        assert_eq!((issued, pages), (1, vec![[7; 64]; 5]));
    }

    #[test]
    fn a_panic_does_not_get_past_the_fence() {
        let mut bytes = [1; 100];
        let mut forgotten = [1; 100];
        let issued = fences(|| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                fence_scope(|scope| {
                    mem::forget(weak(scope, &mut forgotten));
                    let _kept = weak(scope, &mut bytes);
                    panic!("on purpose");
                });
            }));
            assert!(panicked.is_err());
        });
        assert_eq!((issued, bytes, forgotten), (1, [7; 100], [7; 100]));
    }

    #[test]
    fn scopes_nest_and_keep_their_own_account() {
        let (mut outer, mut inner) = ([1; 10], [2; 20]);
        let issued = fences(|| {
            fence_scope(|scope| {
                weak(scope, &mut outer).defer();
                fence_scope(|within| weak(within, &mut inner).defer());
                assert_eq!(FENCES.get(), 1, "the inner scope has ended");
            });
        });
        assert_eq!(issued, 2);
    }

    #[test]
    fn the_scope_passes_on_what_the_closure_gives() {
        let mut bytes = vec![1; 10];
        let sum: u32 = ordered()
            .fence_scope(|scope| scope.clear(&mut bytes).fence().iter().map(|&it| u32::from(it)).sum());
        assert_eq!(sum, 0);
    }

    #[test]
    fn debug_shows_no_bytes() {
        let mut bytes = *b"secret";
        fence_scope(|scope| {
            let unfenced = scope.owe(true, &mut bytes[..]);
            let text = format!("{unfenced:?}");
            assert!(text.contains("Unfenced") && !text.contains("115"), "{text}");
        });
    }
}
