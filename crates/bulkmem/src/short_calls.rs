//! How short calls with default options come to their method: below a length straight to the C library, and for operations that
//! persist straight to the policy's method.
//!
//! Such a call then costs one load and one comparison more than `memset` or `memcpy`, and some loads that do not depend on each
//! other more than the method. All of it counts after a fence: a persist of a few lines takes some 200 ns, and 10 of them were
//! the steps from the policy to the method.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use crate::durability::Durability;
use crate::kernel::{Kernel, Step};
use crate::method::{self, CopyFn, Entry, FillFn, Parameters, PersistFn};
use crate::operation::{Intent, Operation};
use crate::policy::{self, Rules};

/// By operation: the process-wide policy uses the C library below this length. 0 while the policy is not loaded.
static BELOW: [AtomicUsize; Operation::ALL.len()] = [const { AtomicUsize::new(0) }; Operation::ALL.len()];

/// As [`BELOW`], for copies that page aliasing does not slow down. Greater than [`BELOW`] if it slows down others.
static COPY_BELOW_UNLESS_ALIASED: AtomicUsize = AtomicUsize::new(0);

/// True if a copy of that length with default options goes to the C library, unless page aliasing slows it down.
#[inline(always)]
pub(crate) fn use_c_library_unless_aliased(length: usize) -> bool {
    length < COPY_BELOW_UNLESS_ALIASED.load(Relaxed)
}

/// True if a call of that length with default options goes to the C library.
#[inline(always)]
pub(crate) fn use_c_library(operation: Operation, length: usize) -> bool {
    // Every thread stores the same value, so the order does not matter.
    length < BELOW[operation as usize].load(Relaxed)
}

/// Finds the length that [`use_c_library`] compares with, unless that is known or the policy is still being loaded.
#[inline]
pub(crate) fn learn(operation: Operation) {
    if BELOW[operation as usize].load(Relaxed) == 0 {
        look_up(operation);
    }
}

#[cold]
fn look_up(operation: Operation) {
    if let Some(rules) = policy::rules() {
        let below = rules.first_without(method::c_library(), operation, Intent::Throughput);
        // A call that looks may use another method than the rule by length says.
        let mut below = below.min(rules.looks_from(operation, Intent::Throughput));
        if let (Operation::Copy, Some(aliasing)) = (operation, rules.aliasing()) {
            COPY_BELOW_UNLESS_ALIASED.store(below, Relaxed);
            below = below.min(aliasing.from);
        }
        // At least 1, because 0 means unknown; any method can do a call of no bytes.
        BELOW[operation as usize].store(below.max(1), Relaxed);
    }
}

/// The methods by which the process-wide policy executes an operation that persists, with default options and up to the length
/// from which it looks.
pub(crate) struct ShortPersists<K: 'static> {
    operation: Operation,
    /// False until the others are stored, which are never changed after that.
    known: AtomicBool,
    /// Rising; of the policy's rules, the first ones.
    rules: [ShortRule<K>; 4],
}

struct ShortRule<K: 'static> {
    /// A shorter call uses this method. 0 if there is no such rule.
    below: AtomicUsize,
    entry: AtomicPtr<Entry<K>>,
    parameters: AtomicPtr<Parameters>,
}

impl<K> ShortRule<K> {
    const fn none() -> ShortRule<K> {
        let (entry, parameters) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
        ShortRule { below: AtomicUsize::new(0), entry, parameters }
    }
}

pub(crate) static FILL_PERSIST: ShortPersists<FillFn> = ShortPersists::new(Operation::FillPersist);
pub(crate) static COPY_PERSIST: ShortPersists<CopyFn> = ShortPersists::new(Operation::CopyPersist);
pub(crate) static PERSIST: ShortPersists<PersistFn> = ShortPersists::new(Operation::Persist);

impl<K: Kernel> ShortPersists<K> {
    const fn new(operation: Operation) -> ShortPersists<K> {
        ShortPersists { operation, known: AtomicBool::new(false), rules: [const { ShortRule::none() }; 4] }
    }

    /// Returns the method of a call of that length; `None` if it looks, if the policy's rule for it is not among the first four, if
    /// caches survive a power failure, if this architecture has no method, or while the policy is being loaded.
    #[inline(always)]
    pub(crate) fn of(&self, length: usize) -> Option<Step<'static, K>> {
        if !self.known.load(Acquire) && !self.learn() {
            return None;
        }
        let rule = self.rules.iter().find(|rule| length < rule.below.load(Relaxed))?;
        // SAFETY: null, or static and never written to.
        let (entry, parameters) =
            unsafe { (rule.entry.load(Relaxed).as_ref()?, rule.parameters.load(Relaxed).as_ref()?) };
        // Whatever the method, what persists ends in a fence.
        Some(Step { entry, parameters, weak: true })
    }

    /// Finds the methods. False if the policy is still being loaded.
    #[cold]
    #[inline(never)]
    fn learn(&self) -> bool {
        let Some(rules) = policy::rules() else { return false };
        self.take(rules);
        true
    }

    /// Takes the methods from the rules. Every thread takes the same.
    fn take(&self, rules: &'static Rules) {
        // Where caches survive a power failure, it writes no lines back.
        if rules.durability() == Durability::FlushToMemory {
            for (rule, (below, choice)) in self.rules.iter().zip(rules.without_look(self.operation)) {
                let Some(Step { entry, parameters, .. }) = Step::<K>::new(choice, self.operation) else {
                    break;
                };
                rule.entry.store(ptr::from_ref(entry).cast_mut(), Relaxed);
                rule.parameters.store(ptr::from_ref(parameters).cast_mut(), Relaxed);
                rule.below.store(below, Relaxed);
            }
        }
        self.known.store(true, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_persists_use_the_methods_that_the_policy_chooses() {
        fn check<K: Kernel>(short: &ShortPersists<K>) {
            let operation = short.operation;
            // Waits until the rules are known.
            policy::Policy::global();
            let rules = policy::rules().unwrap();
            let mut found = 0;
            for length in (0..64).map(|power| 1_usize << power).flat_map(|at| [at - 1, at, at + 1]) {
                let Some(step) = short.of(length) else { continue };
                found += 1;
                assert!(length < rules.looks_from(operation, Intent::Throughput), "{operation} {length}");
                let choice = rules.choose(operation, length, Intent::Throughput);
                let expected = Step::<K>::new(choice, operation).unwrap();
                assert!(step.weak && ptr::eq(step.entry, expected.entry), "{operation} {length}");
                assert!(ptr::eq(step.parameters, expected.parameters), "{operation} {length}");
            }
            let method = rules.choose(operation, 0, Intent::Throughput).method;
            let persists = rules.durability() == Durability::FlushToMemory && method.does(operation);
            assert_eq!(found > 0, persists, "{operation}");
        }
        check(&FILL_PERSIST);
        check(&COPY_PERSIST);
        check(&PERSIST);
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn only_the_first_four_rules_are_short_and_none_where_caches_survive() {
        use crate::machine::Machine;
        use crate::policy::{POLICY_FORMAT, POLICY_VERSION, Policy};

        let machine = Machine::current();
        let cpu = &machine.cpu;
        let methods = |lines: &str| -> Vec<Option<&str>> {
            let text = format!(
                "{POLICY_FORMAT} {POLICY_VERSION}\ncpu {} {} {} {}\n{lines}end\n",
                cpu.family, cpu.model, cpu.stepping, cpu.vendor
            );
            let policy = Box::leak(Box::new(Policy::from_file_bytes(text.as_bytes(), machine).unwrap()));
            let short = ShortPersists::<FillFn>::new(Operation::FillPersist);
            short.take(&policy.rules);
            let named = |step: Step<'_, FillFn>| {
                let of = |it: &&method::Method| {
                    FillFn::entry(&it.code, Operation::FillPersist)
                        .is_some_and(|own| ptr::eq(own, step.entry))
                };
                method::all().find(of).map(|it| it.name)
            };
            [0, 99, 100, 200, 300, 399, 400, usize::MAX].map(|at| short.of(at).and_then(named)).to_vec()
        };
        let (a, b) = ("movnti", "nontemporal_sse2");
        let rule = |(at, name): (usize, &str)| format!("rule fill_persist throughput {at} {name}\n");
        let two = [(0, a), (100, b)].map(rule).concat();
        let six = [(0, a), (100, b), (200, a), (300, b), (400, a), (500, b)].map(rule).concat();
        assert_eq!(
            methods(&two),
            [a, a, b, b, b, b, b].map(Some).into_iter().chain([None]).collect::<Vec<_>>()
        );
        assert_eq!(methods(&six), [Some(a), Some(a), Some(b), Some(a), Some(b), Some(b), None, None]);
        assert_eq!(methods(&format!("durability caches-included\n{two}")), [None; 8]);
    }

    #[test]
    fn short_calls_are_those_for_which_the_policy_chooses_the_c_library() {
        let policy = policy::Policy::global();
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
            learn(operation);
            assert!(use_c_library(operation, 0), "{operation} is known now");
            for length in (0..64).map(|power| 1_usize << power).flat_map(|at| [at - 1, at, at + 1]) {
                let choice = policy.choose(operation, length, Intent::Throughput).unwrap();
                if length > 0 && use_c_library(operation, length) {
                    assert_eq!(choice.method, method::c_library(), "{operation} {length}");
                }
            }
        }
    }
}
