//! How one call is executed: a kernel, its parameters, the number of threads, and the fence.

use std::ops::Range;

use crate::carried::Stream;
use crate::kernel::{Kernel, Memory, Step};
use crate::looking::Looking;
use crate::method;
use crate::operation::{Intent, Operation};
use crate::policy::{CacheVerdict, Choice, Rules, Situation};
use crate::populate;
use crate::threads;
use crate::workers::Workers;

/// What a call needs to look at the cache state. Small, because most calls do not look.
#[derive(Clone, Copy)]
pub(crate) struct PlannedLook<'c> {
    pub(crate) rules: &'c Rules,
    pub(crate) operation: Operation,
    pub(crate) intent: Intent,
    /// The total length that the call is part of.
    pub(crate) total_len: usize,
    /// True if the kernel may map pages in advance.
    pub(crate) populate: bool,
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

impl<'c> PlannedLook<'c> {
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

    /// Decides how a call of that length on one thread proceeds. Most calls of a stream follow the verdict of an earlier one, so that
    /// no look is prepared for them: that took 200 instructions more.
    #[inline(always)]
    pub(crate) fn follow(&self, length: usize) -> Followed<'c> {
        self.follow_in(Stream::of_this_thread(self.operation), length)
    }

    #[inline(always)]
    fn follow_in(&self, stream: &Stream, length: usize) -> Followed<'c> {
        let part_of_total = length < self.from();
        let class = Stream::class(part_of_total, length);
        match stream.follow(class, length) {
            None => Followed::Looks,
            Some(verdict) => {
                let choice = verdict.and_then(|verdict| self.choice(verdict, length, 1));
                choice.map_or(Followed::Otherwise, Followed::Choice)
            }
        }
    }

    /// If a call of that length on so many threads is to bypass the cache in new huge pages, the ticks from which reaching a page means that it
    /// is one.
    fn huge_from(&self, length: usize, threads: usize) -> Option<u64> {
        let PlannedLook { rules, operation, intent, total_len, .. } = *self;
        let huge = rules.look(operation)?.unmapped?.huge?;
        // Not if it looks for pages alone.
        let bypasses = length.max(total_len) >= rules.looks_from(operation, intent);
        (bypasses && huge.are_bypassed(length, total_len, threads)).then_some(huge.from)
    }

    /// The choice for a call of that length that so many threads take part in; `None` if there is none for the verdict.
    #[inline(always)]
    fn choice(&self, verdict: CacheVerdict, length: usize, threads: usize) -> Option<&'c Choice> {
        let PlannedLook { rules, operation, intent, total_len, .. } = *self;
        match verdict {
            CacheVerdict::Cached => Some(rules.choose(operation, length, Situation::cached(intent))),
            CacheVerdict::Uncached => {
                let situation = match intent {
                    // It looks for pages alone: bypassing the cache does not pay.
                    Intent::Reuse if length.max(total_len) < rules.looks_from(operation, intent) => {
                        Situation::Reuse
                    }
                    intent => rules.uncached(operation, intent, threads),
                };
                Some(rules.choose_part(operation, length, total_len, situation, 0))
            }
            CacheVerdict::Unmapped => Some(&rules.look(operation)?.unmapped.as_ref()?.choice),
        }
    }
}

/// How one call is executed.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'c, K: 'static> {
    step: Step<'c, K>,
    /// Set if the call looks at the cache state.
    look: Option<PlannedLook<'c>>,
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
    pub(crate) fn new(
        step: Step<'c, K>,
        look: Option<PlannedLook<'c>>,
        threads: usize,
        workers: Option<&'c Workers>,
    ) -> Plan<'c, K> {
        Plan { step, look, always: false, threads, workers }
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
        if let Some(look) = self.look {
            // SAFETY: passed on from the caller.
            if unsafe { self.looking(look, memory, piece) } || self.always {
                method::fence();
            }
            return;
        }
        let Step { entry, parameters, .. } = self.step;
        let kernel = if self.always { entry.unfenced } else { entry.fenced };
        // SAFETY: passed on from the caller.
        unsafe { kernel.call(memory, piece, parameters) }
        if self.always {
            method::fence();
        }
    }

    /// Works on a piece and looks at the cache state. Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As [`Plan::fenced`], of the piece.
    #[cold]
    #[inline(never)]
    unsafe fn looking(self, planned: PlannedLook<'c>, memory: &Memory, piece: Range<usize>) -> bool {
        let PlannedLook { rules, operation, .. } = planned;
        // Rules name only methods that support the operation.
        let Some(look) = rules.look(operation) else {
            // SAFETY: passed on from the caller.
            unsafe { self.step.call(memory, piece) }
            return self.step.weak;
        };
        let choice = |verdict| planned.choice(verdict, memory.length, self.threads);
        // Short calls are over so soon that they must not look for what they do not need.
        let step_of = |choice: Option<&'c Choice>| choice.and_then(|choice| Step::new(choice, operation));
        let step_for = |verdict| step_of(choice(verdict)).unwrap_or(self.step);
        let may_be_cut = |verdict| {
            let by_method = || choice(verdict).is_some_and(Rules::may_be_cut);
            match verdict {
                // Whatever the method: it fits in a cache, and so does what is cut off. With one choice for both states, it may not.
                CacheVerdict::Cached => choice(verdict) != choice(CacheVerdict::Uncached) || by_method(),
                CacheVerdict::Uncached => by_method(),
                CacheVerdict::Unmapped => true,
            }
        };
        let looking = Looking {
            operation,
            look,
            from: planned.from(),
            step_for,
            may_be_cut,
            otherwise: self.step,
            // The kernel has just cleared it, unless it is a file's; then the method costs time, and nothing else.
            populated: (planned.populate && populate::is_possible()).then(|| {
                let length = populate::PORTION.min(memory.length);
                step_of(planned.choice(CacheVerdict::Cached, length, 1)).unwrap_or(self.step)
            }),
            whole: memory.length,
            huge_from: planned.huge_from(memory.length, self.threads),
            stream: Stream::of_this_thread(operation),
        };
        // SAFETY: passed on from the caller.
        unsafe { looking.run(memory, piece) }
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
        let weak = match self.look {
            // SAFETY: passed on from the caller.
            Some(look) => unsafe { self.looking(look, &memory, whole) },
            None => {
                // SAFETY: passed on from the caller.
                unsafe { self.step.call(&memory, whole) }
                self.step.weak
            }
        };
        weak || self.always
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::carried::{AGREED, Known, PARTS};
    use crate::machine::Machine;
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

    /// Returns how a call of that length proceeds while that is known, and how many bytes the verdict holds for after it.
    fn follow(known: Known, length: usize, total_len: usize) -> (&'static str, u64) {
        follow_for(Intent::Throughput, known, length, total_len)
    }

    fn follow_for(intent: Intent, known: Known, length: usize, total_len: usize) -> (&'static str, u64) {
        let policy = policy();
        let planned =
            PlannedLook { rules: &policy.rules, operation: OPERATION, intent, total_len, populate: false };
        let stream = Stream::new();
        stream.store(known);
        let name = match planned.follow_in(&stream, length) {
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
            let planned =
                PlannedLook { rules: &policy.rules, operation: OPERATION, intent, total_len, populate: true };
            planned.huge_from(length, threads)
        };
        let throughput = |lengths, threads| huge_from(Intent::Throughput, lengths, threads);
        assert_eq!(throughput((8 * MIB, 0), 1), Some(90_000));
        assert_eq!(throughput((8 * MIB - 1, 0), 1), None);
        assert_eq!(throughput((4 * MIB, 8 * MIB), 1), Some(90_000), "a part of a long total");
        assert_eq!([2, 3].map(|threads| throughput((8 * MIB, 0), threads)), [Some(90_000), None]);
        assert_eq!(huge_from(Intent::Reuse, (1 << 30, 0), 1), None, "no bypassing pays");
        let without = policy_of(&format!("look clear {FROM} 400 20000 store_sse2\n"));
        let planned = PlannedLook {
            rules: &without.rules,
            operation: OPERATION,
            intent: Intent::Throughput,
            total_len: 0,
            populate: false,
        };
        assert_eq!(planned.huge_from(1 << 30, 1), None);
    }

    #[test]
    fn calls_that_look_for_pages_alone_do_not_bypass_the_cache() {
        let choice = |policy: &Policy, populate, length| {
            let look = PlannedLook {
                rules: &policy.rules,
                operation: OPERATION,
                intent: Intent::Reuse,
                total_len: 0,
                populate,
            };
            (look.from(), look.choice(CacheVerdict::Uncached, length, 1).unwrap().method.name)
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
    }

    #[test]
    fn a_call_follows_the_verdict_of_an_earlier_one_without_a_look() {
        let known = |verdict| Known { verdict, class: 17, agreed: AGREED, left: 300 << 10 };
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
