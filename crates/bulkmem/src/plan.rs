//! How one call is executed: a kernel, its parameters, the number of threads, and the fence.

use std::ops::Range;

use crate::carried::Stream;
use crate::kernel::{Kernel, Memory, Step};
use crate::looking::Looking;
use crate::method;
use crate::operation::{Intent, Operation};
use crate::policy::{CacheVerdict, Rules, Situation};
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
    unsafe fn looking(self, look: PlannedLook<'c>, memory: &Memory, piece: Range<usize>) -> bool {
        let PlannedLook { rules, operation, intent, total_len } = look;
        // Rules name only methods that support the operation.
        let Some(look) = rules.look(operation) else {
            // SAFETY: passed on from the caller.
            unsafe { self.step.call(memory, piece) }
            return self.step.weak;
        };
        let uncached = || {
            let situation = rules.uncached(operation, intent, self.threads);
            rules.choose_part(operation, memory.length, total_len, situation, 0)
        };
        let cached = || rules.choose(operation, memory.length, Situation::cached(intent));
        // Short calls are over so soon that they must not look for what they do not need.
        let step_for = |verdict| {
            let choice = match verdict {
                CacheVerdict::Cached => cached(),
                CacheVerdict::Uncached => uncached(),
                CacheVerdict::Unmapped => match &look.unmapped {
                    Some(unmapped) => &unmapped.choice,
                    None => return self.step,
                },
            };
            Step::new(choice, operation).unwrap_or(self.step)
        };
        let may_be_cut = |verdict| match verdict {
            // Whatever the method: it fits in a cache, and so does what is cut off. With one choice for both states, it may not.
            CacheVerdict::Cached => cached() != uncached() || Rules::may_be_cut(cached()),
            CacheVerdict::Uncached => Rules::may_be_cut(uncached()),
            CacheVerdict::Unmapped => true,
        };
        let looking = Looking {
            operation,
            look,
            from: rules.looks_from(operation, intent),
            step_for,
            may_be_cut,
            otherwise: self.step,
            whole: memory.length,
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
