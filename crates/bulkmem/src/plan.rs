//! How one call is executed: a kernel, its parameters, the number of threads, and the fence.

use std::marker::PhantomData;
use std::ops::Range;

use crate::carried::Stream;
use crate::clock;
use crate::kernel::{Kernel, Memory, Step};
use crate::looking::{Looking, Steps, looks_again};
use crate::method;
use crate::operation::{Intent, Operation};
use crate::policy::{CacheVerdict, Choice, Rules};
use crate::populate;
use crate::threads;
use crate::workers::Workers;

/// The data of a call that looks at the cache state. It finds nothing before that is needed: most calls do not look.
#[derive(Clone, Copy)]
pub(crate) struct PlannedLook<'c, K> {
    pub(crate) rules: &'c Rules,
    pub(crate) operation: Operation,
    pub(crate) intent: Intent,
    /// The length of the call.
    pub(crate) length: usize,
    /// The total length that the call is part of.
    pub(crate) total_len: usize,
    /// Shorter parts of a total [get the method for their own length](Rules::choose_part).
    pub(crate) shortest: usize,
    /// True if the kernel may map pages in advance.
    pub(crate) populate: bool,
    /// How many threads take part.
    pub(crate) threads: usize,
    pub(crate) kernel: PhantomData<K>,
}

/// How a call proceeds.
pub(crate) enum Followed<'c> {
    /// It looks.
    Looks,
    /// It [follows](crate::carried) the verdict of an earlier call.
    Choice(&'c Choice),
    /// By length: it is too short to look, or the policy has no method for the verdict that it follows, or the clock had failed.
    Otherwise,
}

impl<'c, K: Kernel> PlannedLook<'c, K> {
    /// The length from which a call looks on its own.
    #[inline(always)]
    pub(crate) fn from(&self) -> usize {
        let PlannedLook { rules, operation, intent, populate, .. } = *self;
        // Mapping pages pays as early as if the bytes are not used next.
        let intent = match intent {
            Intent::Reuse if populate && rules.finds_unmapped(operation) => Intent::Throughput,
            intent => intent,
        };
        rules.looks_from(operation, intent)
    }

    /// Decides how a call on one thread proceeds. Most calls of a stream follow the verdict of an earlier one, so that no look is
    /// prepared for them.
    #[inline(always)]
    pub(crate) fn follow(&self) -> Followed<'c> {
        self.follow_in(Stream::of_this_thread(self.operation))
    }

    #[inline(always)]
    fn follow_in(&self, stream: &Stream) -> Followed<'c> {
        let part_of_total = self.length < self.from();
        let class = Stream::class(part_of_total, self.length);
        match stream.follow(class, self.length) {
            None => Followed::Looks,
            Some(verdict) => {
                let choice = verdict.and_then(|verdict| self.choice(verdict));
                choice.map_or(Followed::Otherwise, Followed::Choice)
            }
        }
    }

    /// The choice for a verdict; `None` if there is none.
    #[inline(always)]
    fn choice(&self, verdict: CacheVerdict) -> Option<&'c Choice> {
        let PlannedLook { rules, operation, intent, length, total_len, .. } = *self;
        match verdict {
            CacheVerdict::Cached => Some(rules.choose(operation, length, rules.cached(operation, intent))),
            CacheVerdict::Uncached => {
                let situation = rules.uncached(operation, intent, self.threads);
                Some(rules.choose_part(operation, length, total_len, situation, 0))
            }
            CacheVerdict::Unmapped => Some(&rules.look(operation)?.unmapped.as_ref()?.choice),
        }
    }

    /// How it is executed; if the rules have no look after all, by length alone.
    #[inline(always)]
    fn execution(self) -> Result<Looking<'c, PlannedLook<'c, K>>, Step<'c, K>> {
        let PlannedLook { rules, operation, length, .. } = self;
        let look = rules.look(operation).ok_or_else(|| self.by_length())?;
        let stream = Stream::of_this_thread(operation);
        Ok(Looking { operation, look, from: self.from(), whole: length, steps: self, stream })
    }

    /// The step of a choice. Rules name only methods that support the operation.
    #[inline(always)]
    fn step(&self, choice: &'c Choice) -> Step<'c, K> {
        Step::new(choice, self.operation).expect(SUPPORTED)
    }
}

impl<'c, K: Kernel> Steps<'c> for PlannedLook<'c, K> {
    type Kernel = K;

    #[inline(always)]
    fn after(&self, verdict: CacheVerdict) -> Step<'c, K> {
        match self.choice(verdict) {
            Some(choice) => self.step(choice),
            None => self.by_length(),
        }
    }

    #[cold]
    #[inline(never)]
    fn by_length(&self) -> Step<'c, K> {
        let PlannedLook { rules, operation, length, total_len, intent, shortest, .. } = *self;
        self.step(rules.choose_part(operation, length, total_len, intent, shortest))
    }

    #[cold]
    #[inline(never)]
    fn populated(&self) -> Option<Step<'c, K>> {
        // The kernel has just cleared it, unless it is a file's; then the method costs time, and nothing else.
        (self.populate && populate::is_possible()).then(|| {
            let length = populate::PORTION.min(self.length);
            let cached = self.rules.cached(self.operation, self.intent);
            self.step(self.rules.choose(self.operation, length, cached))
        })
    }

    fn huge_from(&self) -> Option<u64> {
        let PlannedLook { rules, operation, intent, length, total_len, threads, .. } = *self;
        let huge = rules.look(operation)?.unmapped?.huge?;
        // Not if it looks for pages alone.
        let bypasses = length.max(total_len) >= rules.looks_from(operation, intent);
        (bypasses && huge.are_bypassed(length, total_len, threads)).then_some(huge.from)
    }

    fn may_be_cut(&self, verdict: CacheVerdict) -> bool {
        let by_method = || self.choice(verdict).is_some_and(Rules::may_be_cut);
        match verdict {
            // Whatever the method: it fits in a cache, and so does what is cut off. With one choice for both states, it may not.
            CacheVerdict::Cached => {
                self.choice(verdict) != self.choice(CacheVerdict::Uncached) || by_method()
            }
            CacheVerdict::Uncached => by_method(),
            CacheVerdict::Unmapped => true,
        }
    }
}

/// The parser of policies ([`Choice::parse`]) and the check of forced methods guarantee it.
pub(crate) const SUPPORTED: &str = "the chosen method supports the operation";

/// How the pieces of a call are executed.
#[derive(Clone, Copy)]
enum How<'c, K: 'static> {
    By(Step<'c, K>),
    /// The call looks at the cache state first.
    Looking(PlannedLook<'c, K>),
}

/// How one call is executed.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'c, K: 'static> {
    how: How<'c, K>,
    /// True if a fence is needed even after ordered stores: durability requires that every store has left the processor,
    /// and on write-combining memory ordinary stores are weakly ordered too.
    always: bool,
    /// How many threads may take part.
    threads: usize,
    /// Those that do, if they are not started for the call.
    workers: Option<&'c Workers>,
}

impl<'c, K: Kernel> Plan<'c, K> {
    #[inline(always)]
    pub(crate) fn new(step: Step<'c, K>, threads: usize, workers: Option<&'c Workers>) -> Plan<'c, K> {
        Plan { how: How::By(step), always: false, threads, workers }
    }

    /// A plan to look at the cache state first.
    #[inline(always)]
    pub(crate) fn looking(look: PlannedLook<'c, K>, workers: Option<&'c Workers>) -> Plan<'c, K> {
        Plan { how: How::Looking(look), always: false, threads: look.threads, workers }
    }

    /// The same plan with a fence at its end for every method.
    #[inline(always)]
    pub(crate) fn always_fenced(self) -> Plan<'c, K> {
        Plan { always: true, ..self }
    }

    /// Executes the plan. When it returns, each thread has fenced.
    ///
    /// # Safety
    /// As the kernel's type says, of the whole memory, but for what [`Step`] promises.
    #[inline(always)]
    pub(crate) unsafe fn fenced(self, memory: Memory) {
        // SAFETY: passed on from the caller.
        unsafe {
            if self.threads <= 1 {
                self.piece(&memory, 0..memory.length);
            } else {
                self.on_threads(memory);
            }
        }
    }

    /// Not inlined, so that a call on one thread keeps everything in registers.
    ///
    /// # Safety
    /// As [`Plan::fenced`].
    #[cold]
    #[inline(never)]
    unsafe fn on_threads(self, memory: Memory) {
        let memory = &memory;
        // SAFETY: passed on from the caller; pieces do not overlap.
        let work = |piece| unsafe { self.piece(memory, piece) };
        threads::run(memory.dst.addr(), memory.length, self.threads, self.workers, work);
    }

    /// # Safety
    /// As [`Plan::fenced`], of the piece.
    #[inline(always)]
    unsafe fn piece(self, memory: &Memory, piece: Range<usize>) {
        match self.how {
            How::Looking(look) => {
                // SAFETY: passed on from the caller.
                if unsafe { looking(look, memory, piece) } || self.always {
                    method::fence();
                }
            }
            How::By(Step { entry, parameters, .. }) => {
                let kernel = if self.always { entry.unfenced } else { entry.fenced };
                // SAFETY: passed on from the caller.
                unsafe { kernel.call(memory, piece, parameters) }
                if self.always {
                    method::fence();
                }
            }
        }
    }

    /// Executes the plan. Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As [`Plan::fenced`].
    #[inline(always)]
    #[must_use]
    pub(crate) unsafe fn unfenced(self, memory: Memory) -> bool {
        if self.threads > 1 {
            // No other thread's stores can be fenced from here.
            // SAFETY: passed on from the caller.
            unsafe { self.on_threads(memory) }
            return false;
        }
        let whole = 0..memory.length;
        let weak = match self.how {
            // SAFETY: passed on from the caller.
            How::Looking(look) => unsafe { looking(look, &memory, whole) },
            How::By(step) => {
                // SAFETY: passed on from the caller.
                unsafe { step.call(&memory, whole) }
                step.weak
            }
        };
        weak || self.always
    }
}

/// Works on a piece and looks at the cache state. Returns true if the calling thread must fence.
///
/// # Safety
/// As [`Plan::fenced`], of the piece.
#[inline(always)]
unsafe fn looking<K: Kernel>(planned: PlannedLook<'_, K>, memory: &Memory, piece: Range<usize>) -> bool {
    // Neither calls the other: signal handlers run on small stacks.
    // SAFETY: passed on from the caller.
    unsafe {
        if looks_again(piece.len(), planned.from()) {
            looking_by_interval(planned, memory, piece)
        } else {
            looking_once(planned, memory, piece)
        }
    }
}

/// # Safety
/// As [`looking`].
#[cold]
#[inline(never)]
unsafe fn looking_once<K: Kernel>(planned: PlannedLook<'_, K>, memory: &Memory, piece: Range<usize>) -> bool {
    // SAFETY: passed on from the caller.
    unsafe {
        match planned.execution() {
            Ok(looking) => looking.carry(memory, piece, clock::ticks),
            Err(step) => blindly(step, memory, piece),
        }
    }
}

/// # Safety
/// As [`looking`], and the piece is so long that it [`looks_again`].
#[cold]
#[inline(never)]
unsafe fn looking_by_interval<K: Kernel>(
    planned: PlannedLook<'_, K>,
    memory: &Memory,
    piece: Range<usize>,
) -> bool {
    // SAFETY: passed on from the caller.
    unsafe {
        match planned.execution() {
            Ok(looking) => looking.by_interval(memory, piece, clock::ticks),
            Err(step) => blindly(step, memory, piece),
        }
    }
}

/// # Safety
/// As [`looking`].
#[inline(always)]
unsafe fn blindly<K: Kernel>(step: Step<'_, K>, memory: &Memory, piece: Range<usize>) -> bool {
    // SAFETY: passed on from the caller.
    unsafe { step.call(memory, piece) }
    step.weak
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::carried::{AGREED, Known, PARTS};
    use crate::machine::Machine;
    use crate::method::FillFn;
    use crate::policy::{POLICY_FORMAT, POLICY_VERSION, Policy};

    const OPERATION: Operation = Operation::Clear;
    const FROM: usize = 64 << 10;

    /// A policy with a method of its own for each verdict, another one for long totals, and another one for the intent reuse.
    fn policy() -> Policy {
        policy_of(&format!(
            "rule clear uncached 1048576 nontemporal_sse2\nrule clear reuse 0 c_library\n\
             rule clear uncached_reuse 0 hybrid_sse2\nlook clear {FROM} 400 20000 store_sse2\n"
        ))
    }

    /// A policy with a method of its own for each verdict, and these lines.
    fn policy_of(lines: &str) -> Policy {
        let machine = Machine::current();
        let cpu = &machine.cpu;
        let text = format!(
            "{POLICY_FORMAT} {POLICY_VERSION}\ncpu {} {} {} {}\nrule clear throughput 0 c_library\nrule clear cached 0 rep_stosb\n\
             rule clear uncached 0 movnti\n{lines}end\n",
            cpu.family, cpu.model, cpu.stepping, cpu.vendor
        );
        Policy::from_file_bytes(text.as_bytes(), machine).unwrap()
    }

    /// A call of no bytes, on one thread.
    fn planned(policy: &Policy, intent: Intent) -> PlannedLook<'_, FillFn> {
        PlannedLook {
            rules: &policy.rules,
            operation: OPERATION,
            intent,
            length: 0,
            total_len: 0,
            shortest: 0,
            populate: false,
            threads: 1,
            kernel: PhantomData,
        }
    }

    /// Returns how a call of that length proceeds while that is known, and how many bytes the verdict holds for after it.
    fn follow(known: Known, length: usize, total_len: usize) -> (&'static str, u64) {
        follow_for(Intent::Throughput, known, length, total_len)
    }

    fn follow_for(intent: Intent, known: Known, length: usize, total_len: usize) -> (&'static str, u64) {
        let policy = policy();
        let planned = PlannedLook { length, total_len, ..planned(&policy, intent) };
        let stream = Stream::new();
        stream.store(known);
        let name = match planned.follow_in(&stream) {
            Followed::Looks => "looks",
            Followed::Choice(choice) => choice.method.name,
            Followed::Otherwise => "otherwise",
        };
        (name, stream.load().left)
    }

    #[test]
    fn long_calls_bypass_the_cache_in_new_huge_pages_unless_they_look_for_pages_alone() {
        const MIB: usize = 1 << 20;
        let policy = policy_of(&format!("look clear {FROM} 400 20000 store_sse2 90000 {}\n", 8 * MIB));
        let huge_from = |intent, (length, total_len), threads| {
            let planned = planned(&policy, intent);
            PlannedLook { length, total_len, threads, populate: true, ..planned }.huge_from()
        };
        let throughput = |lengths, threads| huge_from(Intent::Throughput, lengths, threads);
        assert_eq!(throughput((8 * MIB, 0), 1), Some(90_000));
        assert_eq!(throughput((8 * MIB - 1, 0), 1), None);
        assert_eq!(throughput((4 * MIB, 8 * MIB), 1), Some(90_000), "a part of a long total");
        assert_eq!([2, 3].map(|threads| throughput((8 * MIB, 0), threads)), [Some(90_000), None]);
        assert_eq!(huge_from(Intent::Reuse, (1 << 30, 0), 1), None, "no bypassing pays");
        let without = policy_of(&format!("look clear {FROM} 400 20000 store_sse2\n"));
        let planned = PlannedLook { length: 1 << 30, ..planned(&without, Intent::Throughput) };
        assert_eq!(planned.huge_from(), None);
    }

    #[test]
    fn calls_that_look_for_pages_alone_do_not_bypass_the_cache() {
        let choice = |policy: &Policy, populate, length| {
            let look = PlannedLook { length, populate, ..planned(policy, Intent::Reuse) };
            (look.from(), look.choice(CacheVerdict::Uncached).unwrap().method.name)
        };
        let cached = |policy: &Policy| {
            let look = PlannedLook { length: 1 << 20, ..planned(policy, Intent::Reuse) };
            look.choice(CacheVerdict::Cached).unwrap().method.name
        };
        let own = |rules: &str, unmapped: &str| {
            policy_of(&format!("rule clear reuse 0 c_library\n{rules}look clear {FROM} 400{unmapped}\n"))
        };
        let pages = " 20000 store_sse2";
        let from_1_mib =
            "rule clear uncached_reuse 0 c_library\nrule clear uncached_reuse 1048576 nontemporal_sse2\n";
        let with = own(from_1_mib, pages);
        assert_eq!(choice(&with, false, 1 << 20), (1 << 20, "nontemporal_sse2"));
        assert_eq!(choice(&with, true, 1 << 20), (FROM, "nontemporal_sse2"));
        assert_eq!(choice(&with, true, FROM), (FROM, "c_library"));
        assert_eq!(choice(&own("", pages), true, 1 << 20), (FROM, "c_library"), "no rules of its own");
        assert_eq!(choice(&own(from_1_mib, ""), true, 1 << 20).0, 1 << 20, "no look finds pages missing");
        // Rules for cached memory do not change what calls that do not look use.
        let both = own(&format!("{from_1_mib}rule clear cached_reuse 0 rep_stosb\n"), pages);
        assert_eq!([cached(&with), cached(&both)], ["c_library", "rep_stosb"]);
        assert_eq!(both.choose(OPERATION, 1 << 20, Intent::Reuse).unwrap().method.name, "c_library");
        let equal = "rule clear cached_reuse 0 nontemporal_sse2\n";
        let equal = own(&format!("rule clear uncached_reuse 0 nontemporal_sse2\n{equal}"), "");
        assert_eq!(equal.looks_from(OPERATION, Intent::Reuse), usize::MAX, "both do the same");
    }

    /// The method that a step belongs to.
    fn name(step: &Step<'_, FillFn>) -> &'static str {
        let is_its = |method: &&method::Method| {
            FillFn::entry(&method.code, OPERATION).is_some_and(|entry| std::ptr::eq(entry, step.entry))
        };
        method::all().find(is_its).unwrap().name
    }

    #[test]
    fn what_a_look_finds_decides_the_step() {
        const MIB: usize = 1 << 20;
        let policy = policy();
        let of = |length| PlannedLook { length, ..planned(&policy, Intent::Throughput) };
        let after = |length, verdict| name(&of(length).after(verdict));
        assert_eq!(after(FROM, CacheVerdict::Cached), "rep_stosb");
        assert_eq!([FROM, MIB].map(|it| after(it, CacheVerdict::Uncached)), ["movnti", "nontemporal_sse2"]);
        assert_eq!(after(FROM, CacheVerdict::Unmapped), "store_sse2");
        assert_eq!(name(&of(FROM).by_length()), "c_library");
        let populated = |populate| PlannedLook { populate, ..of(FROM) }.populated().map(|step| name(&step));
        assert_eq!(populated(false), None);
        assert_eq!(populated(true), populate::is_possible().then_some("rep_stosb"));

        // The look finds no unmapped memory, so that it is by length. Short parts get the method for their own length.
        let policy = policy_of(&format!(
            "rule clear reuse 0 c_library\nrule clear reuse 65536 movnti\nlook clear {FROM} 400\n"
        ));
        let part = |shortest| PlannedLook {
            length: 4096,
            total_len: MIB,
            shortest,
            ..planned(&policy, Intent::Reuse)
        };
        let by_length = |shortest| {
            [part(shortest).by_length(), part(shortest).after(CacheVerdict::Unmapped)].map(|step| name(&step))
        };
        assert_eq!(by_length(0), ["movnti"; 2]);
        assert_eq!(by_length(4096), ["movnti"; 2]);
        assert_eq!(by_length(4097), ["c_library"; 2]);
    }

    #[test]
    fn calls_are_cut_unless_that_slows_down_the_method() {
        const MIB: usize = 1 << 20;
        let policy = policy_of(&format!(
            "rule clear uncached {MIB} rep_stosb\nlook clear {FROM} 400 20000 store_sse2\n"
        ));
        let may_be_cut = |length| {
            let planned = PlannedLook { length, ..planned(&policy, Intent::Throughput) };
            [CacheVerdict::Cached, CacheVerdict::Uncached, CacheVerdict::Unmapped]
                .map(|verdict| planned.may_be_cut(verdict))
        };
        assert_eq!(may_be_cut(MIB - 1), [true; 3]);
        // One method for both states: what is found cached may be long, too.
        assert_eq!(may_be_cut(MIB), [false, false, true]);
    }

    #[test]
    fn a_call_follows_the_verdict_of_an_earlier_one_without_a_look() {
        let known =
            |verdict| Known { verdict, class: 17, agreed: AGREED, left: 300 << 10, ..Known::default() };
        let length = 128 << 10;
        for (verdict, expected) in [
            (Some(CacheVerdict::Cached), "rep_stosb"),
            (Some(CacheVerdict::Uncached), "movnti"),
            (Some(CacheVerdict::Unmapped), "store_sse2"),
            (None, "otherwise"),
        ] {
            assert_eq!(follow(known(verdict), length, 0), (expected, 172 << 10), "{verdict:?}");
        }
        let known = known(Some(CacheVerdict::Cached));
        assert_eq!(follow(known, 2 * length, 0), ("looks", known.left), "another class");
        assert_eq!(follow(known, FROM - 1, 0), ("looks", known.left), "a part");
        let little = Known { left: length as u64 - 1, ..known };
        assert_eq!(follow(little, length, 0), ("looks", little.left));
        // Parts of a total.
        let parts = Known { class: PARTS, ..known };
        assert_eq!(follow(parts, FROM - 1, 1 << 30), ("rep_stosb", (300 << 10) - (FROM as u64 - 1)));
        assert_eq!(follow(Known { left: 1, ..parts }, FROM - 1, 1 << 30), ("rep_stosb", 0));
        let uncached = Known { verdict: Some(CacheVerdict::Uncached), ..parts };
        assert_eq!(follow(uncached, FROM - 1, 1 << 30).0, "nontemporal_sse2");
        assert_eq!(follow(uncached, FROM - 1, FROM).0, "movnti");
        let uncached = Known { class: 17, ..uncached };
        assert_eq!(follow_for(Intent::Reuse, uncached, length, 0).0, "hybrid_sse2");
        assert_eq!(follow(parts, length, 1 << 30), ("looks", parts.left));
    }
}
