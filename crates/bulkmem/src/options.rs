//! Options for operations, and how they select a method.

use std::marker::PhantomData;

use crate::durability::Durability;
use crate::error::Error;
use crate::kernel::{Kernel, Memory, Step};
use crate::look_switch;
use crate::machine;
use crate::method::{self, CopyFn, FillFn, PersistFn};
use crate::operation::{Intent, Operation};
use crate::plan::{Followed, Plan, PlannedLook, SUPPORTED};
use crate::policy::{self, Choice, Policy, Rules};
use crate::short_calls::ShortPersists;
use crate::threads::Threads;
use crate::workers::Workers;

/// Options for one or more operations: total length, intent, threads, policy, method, durability.
///
/// Cheap to create and to copy. The default options are those of the free functions, such as [`clear`](crate::clear).
///
/// ```
/// use bulkmem::{Intent, Options};
///
/// let mut memory = vec![1; 8 << 20];
/// // Four calls that together clear 8 MiB, which is not read soon: each uses the method for 8 MiB.
/// let options = Options::new().total_len(memory.len()).intent(Intent::Stream);
/// for chunk in memory.chunks_mut(2 << 20) {
///     options.clear(chunk);
/// }
/// assert!(memory.iter().all(|&byte| byte == 0));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'p> {
    /// `None`: the process-wide policy.
    policy: Option<&'p Policy>,
    pub(crate) total_len: usize,
    intent: Intent,
    /// `None`: one, or with workers all.
    threads: Option<Threads>,
    /// `None`: each call starts its own threads.
    workers: Option<&'p Workers>,
    /// Checked: this machine can run the method, which supports the operation and these parameters.
    forced: Option<(Operation, Choice)>,
    /// `None`: what the policy says.
    durability: Option<Durability>,
    /// One fence follows several calls, so that a call does not have to be worth a fence of its own.
    deferred: bool,
    /// The method follows from the arguments alone.
    blind: bool,
    /// The kernel may map pages in advance.
    populate: bool,
}

// Always inlined, so that in a call with constant options everything that they leave at its default folds away.
impl Options<'static> {
    /// Returns the default options: each call stands alone, uses the process-wide policy, and runs on the calling thread.
    #[inline]
    pub fn new() -> Options<'static> {
        Options::default()
    }
}

impl<'p> Options<'p> {
    /// Sets the total length in bytes of the operation that the calls are parts of. The policy chooses the method for
    /// that length, or for the length of the call if that is longer; [`Policy::choose_part`] describes the exceptions.
    /// The default of 0 means that each call stands alone.
    #[inline]
    #[must_use]
    pub fn total_len(self, bytes: usize) -> Self {
        Options { total_len: bytes, ..self }
    }

    /// Sets what the caller will do next with the bytes.
    #[inline]
    #[must_use]
    pub fn intent(self, intent: Intent) -> Self {
        Options { intent, ..self }
    }

    /// Sets how many threads one call may use. Each call starts its own, unless there are [`workers`](Options::workers).
    #[inline]
    #[must_use]
    pub fn threads(self, threads: Threads) -> Self {
        Options { threads: Some(threads), ..self }
    }

    /// Splits each call over the calling thread and these threads, instead of starting threads. The split is that of
    /// [`Threads::Exactly`] with one more than there are workers, or with fewer if [`Options::threads`] says so.
    ///
    /// Every call of two pages or more wakes a worker, which can take longer than a short operation itself: pass
    /// [`Threads::One`] for those. [`Threads::Auto`] uses the lengths from which *starting* threads pays, so it is cautious
    /// here.
    #[inline]
    #[must_use]
    pub fn workers<'q>(self, workers: &'q Workers) -> Options<'q>
    where
        'p: 'q,
    {
        Options { workers: Some(workers), ..self }
    }

    /// Sets what survives a power failure, instead of what the policy says.
    #[inline]
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Options { durability: Some(durability), ..self }
    }

    /// Sets whether operations may [look at the cache state](crate::look) of the memory and choose the method by it; the
    /// default is true. False: the same arguments always lead to the same method.
    #[inline]
    #[must_use]
    pub fn look(self, look: bool) -> Self {
        Options { blind: !look, ..self }
    }

    /// Sets whether operations may have the kernel map pages in advance; the default is false.
    ///
    /// The first store to each page of new memory is a page fault, which in pages of 4 KiB takes several times as long as writing
    /// the page. With this option, an operation whose [look](crate::look) finds that the pages are not mapped yet has the kernel
    /// map 512 KiB at a time before it writes them (`MADV_POPULATE_WRITE`, Linux 5.14): 1.1 to 1.4 times as fast on an Emerald
    /// Rapids in pages of 4 KiB, the more the longer; huge pages gain nothing. The same pages are mapped as without it, at most
    /// 512 KiB earlier. Calls that do not look map nothing: short ones, those of a policy without looks, and copies that
    /// [page aliasing](crate::policy::PageAliasing) slows down.
    ///
    /// Operations make system calls then. A program that filters them allows `madvise`, or does not set this.
    ///
    /// ```
    /// use bulkmem::Options;
    ///
    /// let source = vec![7; 8 << 20];
    /// // Zeros from the allocator, which has them mapped when they are first written.
    /// let mut copy = vec![0; source.len()];
    /// Options::new().populate(true).copy(&mut copy, &source)?;
    /// assert_eq!(copy, source);
    /// # Ok::<(), bulkmem::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn populate(self, populate: bool) -> Self {
        Options { populate, ..self }
    }

    /// Uses this policy instead of the process-wide one.
    ///
    /// # Errors
    /// [`Error::ForeignPolicy`] if the policy uses instructions that this machine does not have.
    pub fn policy<'q>(self, policy: &'q Policy) -> Result<Options<'q>, Error>
    where
        'p: 'q,
    {
        if !policy.runs_here() {
            return Err(Error::ForeignPolicy);
        }
        if policy.rules.looks() {
            look_switch::start(policy::may_look);
        }
        Ok(Options { policy: Some(policy), ..self })
    }

    /// Forces a method for one operation, for every length and intent. Other operations follow the policy. A second call
    /// replaces the first; [`Policy::force`] forces several methods. A persisting operation with a method that is forced
    /// here writes cache lines back even if caches survive a power failure; a method that the policy forces does not.
    ///
    /// ```
    /// use bulkmem::{Operation, Options, method, policy::Choice};
    ///
    /// let choice = Choice::of(method::by_name("portable").unwrap(), Operation::Fill);
    /// let mut memory = vec![0; 5000];
    /// Options::new().method(Operation::Fill, choice)?.fill(&mut memory, 7);
    /// assert_eq!(memory, [7; 5000]);
    /// # Ok::<(), bulkmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongOperation`] if the method does not support the operation, [`Error::Unavailable`] if this machine
    /// cannot run it, [`Error::InvalidParameters`] if a tunable does not take its value.
    pub fn method(self, operation: Operation, choice: Choice) -> Result<Self, Error> {
        let method = choice.method;
        let Some(tunables) = method.tunables(operation) else {
            return Err(Error::WrongOperation { method: method.name, operation });
        };
        let missing = method.requires.difference(machine::features());
        if !missing.is_empty() {
            return Err(Error::Unavailable { method: method.name, missing });
        }
        if !choice.parameters.is_valid_for(tunables) {
            let parameters = choice.parameters;
            return Err(Error::InvalidParameters { method: method.name, operation, parameters });
        }
        Ok(Options { forced: Some((operation, choice)), ..self })
    }

    /// Returns the same options for calls that one fence follows.
    #[inline]
    pub(crate) fn deferred(self) -> Self {
        Options { deferred: true, ..self }
    }

    /// True if the process-wide policy chooses by operation and length alone, and one thread does the work.
    #[inline(always)]
    pub(crate) fn is_default(&self) -> bool {
        self.policy.is_none()
            && self.total_len == 0
            && matches!(self.intent, Intent::Throughput)
            && matches!(self.threads, None | Some(Threads::One))
            && self.workers.is_none()
            && self.forced.is_none()
            && !self.blind
            && !self.populate
    }

    /// The method of a short call of an operation that persists; `None` if it is not short, or if the options ask for anything
    /// that the process-wide policy's choice by length does not do.
    #[inline(always)]
    pub(crate) fn short<K: Kernel>(
        &self,
        short: &'static ShortPersists<K>,
        length: usize,
    ) -> Option<Step<'static, K>> {
        let by_length = Options { blind: false, populate: false, durability: None, ..*self };
        let survives = self.durability == Some(Durability::CachesIncluded);
        if by_length.is_default() && !survives { short.of(length) } else { None }
    }

    #[inline(always)]
    fn choose<'a>(&'a self, rules: Option<&'a Rules>, operation: Operation, length: usize) -> &'a Choice {
        match rules {
            Some(rules) if self.total_len <= length => rules.choose(operation, length, self.intent),
            Some(rules) => {
                rules.choose_part(operation, length, self.total_len, self.intent, self.shortest_part())
            }
            None => policy::built_in(operation),
        }
    }

    /// Shorter parts of a total get the method for their own length.
    #[inline(always)]
    fn shortest_part(&self) -> usize {
        if self.deferred { 0 } else { policy::SHORTEST_FENCED_PART }
    }

    /// The rules to use; `None` while the process-wide policy is being loaded.
    #[inline(always)]
    fn rules(&self) -> Option<&Rules> {
        match self.policy {
            Some(policy) => Some(&policy.rules),
            None => policy::rules(),
        }
    }

    /// How many threads a call may use.
    #[inline(always)]
    fn thread_count(&self, operation: Operation, length: usize) -> usize {
        let wanted = match self.threads {
            None if self.workers.is_some() => usize::MAX,
            None | Some(Threads::One) => 1,
            Some(Threads::Auto) => self.saturating_threads(operation, length),
            Some(Threads::Exactly(threads)) => threads.get(),
        };
        self.workers.map_or(wanted, |workers| wanted.min(workers.count() + 1))
    }

    /// The fewest threads that saturate memory, at most one for each processor. Not inlined, because it makes a system
    /// call.
    #[cold]
    #[inline(never)]
    fn saturating_threads(&self, operation: Operation, length: usize) -> usize {
        let threads = self.rules().map_or(1, |rules| rules.threads(operation, length));
        if threads > 1 { threads.min(machine::processors()) } else { 1 }
    }

    /// Plans an operation; `None` if no method of this architecture supports it.
    #[inline(always)]
    fn plan<K: Kernel>(&self, operation: Operation, length: usize) -> Option<Plan<'_, K>> {
        let threads = self.thread_count(operation, length);
        let choice = match &self.forced {
            // Without the policy, which need not be loaded then.
            Some((forced, choice)) if *forced == operation => choice,
            _ => {
                let rules = self.rules();
                let look = rules.and_then(|rules| self.look_by(rules, operation, length, threads));
                let followed = match look {
                    None => Followed::Otherwise,
                    Some(look) if threads <= 1 => look.follow(),
                    Some(_) => Followed::Looks,
                };
                match (followed, look) {
                    (Followed::Looks, Some(look)) => {
                        return Some(Plan::looking(look, self.workers));
                    }
                    (Followed::Choice(choice), _) => choice,
                    _ => self.choose(rules, operation, length),
                }
            }
        };
        Some(Plan::new(Step::new(choice, operation)?, threads, self.workers))
    }

    /// What a call needs to look at the cache state, if it does.
    #[inline(always)]
    fn look_by<'a, K: Kernel>(
        &self,
        rules: &'a Rules,
        operation: Operation,
        length: usize,
        threads: usize,
    ) -> Option<PlannedLook<'a, K>> {
        let Options { intent, total_len, populate, .. } = *self;
        let (shortest, kernel) = (self.shortest_part(), PhantomData);
        let look =
            PlannedLook { rules, operation, intent, length, total_len, shortest, populate, threads, kernel };
        let from = look.from();
        // Also with an endless total.
        if self.blind || from == usize::MAX {
            return None;
        }
        // Calls that are too short to look themselves look together if their total is large.
        let looks = length >= from || (total_len >= from && length >= policy::SHORTEST_FENCED_PART);
        (looks && look_switch::is_on()).then_some(look)
    }

    /// Plans [`Operation::Clear`] or [`Operation::Fill`].
    #[inline(always)]
    pub(crate) fn plan_fill(&self, operation: Operation, length: usize) -> Plan<'_, FillFn> {
        self.plan(operation, length).expect(SUPPORTED)
    }

    #[inline(always)]
    pub(crate) fn plan_copy(&self, memory: &Memory) -> Plan<'_, CopyFn> {
        let plan = match self.aliased(memory) {
            Some(choice) => {
                let threads = self.thread_count(Operation::Copy, memory.length);
                Step::new(choice, Operation::Copy).map(|step| Plan::new(step, threads, self.workers))
            }
            None => self.plan(Operation::Copy, memory.length),
        };
        plan.expect(SUPPORTED)
    }

    /// The choice if page aliasing would slow down the C library: without it, and without a look, which may choose it.
    #[inline(always)]
    fn aliased(&self, memory: &Memory) -> Option<&Choice> {
        let rules = self.rules()?;
        let aliasing = rules.aliasing().filter(|aliasing| memory.aliases(aliasing))?;
        if matches!(&self.forced, Some((Operation::Copy, _))) {
            return None;
        }
        let chosen = self.choose(Some(rules), Operation::Copy, memory.length);
        Some(if std::ptr::eq(chosen.method, method::c_library()) { &aliasing.choice } else { chosen })
    }

    #[inline(always)]
    pub(crate) fn plan_fill_persist(&self, length: usize) -> Result<Plan<'_, FillFn>, Error> {
        let operation = Operation::FillPersist;
        if self.caches_survive(operation) {
            return Ok(self.plan_fill(Operation::Fill, length).always_fenced());
        }
        self.plan(operation, length).ok_or(Error::NotDurable { operation })
    }

    #[inline(always)]
    pub(crate) fn plan_copy_persist(&self, memory: &Memory) -> Result<Plan<'_, CopyFn>, Error> {
        let operation = Operation::CopyPersist;
        if self.caches_survive(operation) {
            return Ok(self.plan_copy(memory).always_fenced());
        }
        self.plan(operation, memory.length).ok_or(Error::NotDurable { operation })
    }

    /// `None` if a fence suffices.
    #[inline(always)]
    pub(crate) fn plan_persist(&self, length: usize) -> Result<Option<Plan<'_, PersistFn>>, Error> {
        let operation = Operation::Persist;
        if self.caches_survive(operation) {
            return Ok(None);
        }
        self.plan(operation, length).ok_or(Error::NotDurable { operation }).map(Some)
    }

    /// True if the operation does not have to write cache lines back. A forced method does so in any case.
    #[inline(always)]
    fn caches_survive(&self, operation: Operation) -> bool {
        let by_policy = || self.rules().map_or(Durability::FlushToMemory, Rules::durability);
        let durability = self.durability.unwrap_or_else(by_policy);
        durability == Durability::CachesIncluded && self.forced.is_none_or(|(forced, _)| forced != operation)
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::policy::{POLICY_FORMAT, POLICY_VERSION};

    /// A policy of this machine: the C library up to 8 KiB, then MOVNTI; copies of 2 to 16 KiB are slow if they are aliased.
    fn policy(lines: &str) -> Policy {
        let machine = Machine::current();
        let cpu = &machine.cpu;
        let cpu = format!("cpu {} {} {} {}", cpu.family, cpu.model, cpu.stepping, cpu.vendor);
        let text = format!(
            "{POLICY_FORMAT} {POLICY_VERSION}\n{cpu}\nrule copy throughput 0 c_library\nrule copy throughput 8192 movnti\n\
             {lines}end\n"
        );
        Policy::from_file_bytes(text.as_bytes(), machine).unwrap()
    }

    #[test]
    fn an_aliased_copy_gets_the_method_for_it_in_place_of_the_c_library() {
        let with = policy("aliasing copy 2048 16384 store_sse2\n");
        let without = policy("");
        let source = vec![0_u8; 32 << 10];
        let mut destination = vec![0_u8; 32 << 10];
        let base = destination.as_mut_ptr();
        let behind = source.as_ptr().addr().wrapping_sub(base.addr()) % 4096;
        let name = |options: &Options<'_>, length: usize, distance: usize| {
            let dst = base.wrapping_add((behind + distance) % 4096);
            options.aliased(&Memory::copied(dst, source.as_ptr(), length)).map(|choice| choice.method.name)
        };
        let options = Options::new().policy(&with).unwrap();
        for distance in [1, 8, 31] {
            for (length, expected) in [
                (2047, None),
                (2048, Some("store_sse2")),
                (8191, Some("store_sse2")),
                (8192, Some("movnti")),
                (16383, Some("movnti")),
                (16384, None),
            ] {
                assert_eq!(name(&options, length, distance), expected, "{length} bytes, {distance}");
                assert_eq!(name(&Options::new().policy(&without).unwrap(), length, distance), None);
            }
        }
        for distance in [0, 32, 64, 4095] {
            assert_eq!(name(&options, 4096, distance), None, "{distance}");
        }
        // What the caller or the user chose is used as it is.
        let library = policy("").choose(Operation::Copy, 0, Intent::Throughput).unwrap();
        assert_eq!(name(&options.method(Operation::Copy, library).unwrap(), 4096, 8), None);
        let mut forced = with.clone();
        forced.force("copy:c_library").unwrap();
        assert_eq!(name(&Options::new().policy(&forced).unwrap(), 4096, 8), None);
        assert_eq!(with.page_aliasing().map(|it| (it.from, it.below)), Some((2048, 16384)));
        assert_eq!(forced.page_aliasing(), None);
    }
}
