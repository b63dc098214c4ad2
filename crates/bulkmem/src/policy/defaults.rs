//! The answers without a profile: from instructions, caches and what is published of the microarchitecture.

use super::known::{self, BYPASS_COPY, From, Microarchitecture, PAST_LAST_LEVEL, Step, Want, plain};
use super::rules::{RuleOrigin, Rules};
use super::{Basis, Choice};
use crate::machine::{Caches, CpuIdentity, Features, Target};
use crate::method::{self, CacheEffect};
use crate::operation::{Intent, Operation};

/// Nothing beyond the C library's own choice begins below a page.
const LEAST: u64 = 4096;

const C_LIBRARY: &[Want] = &[plain("c_library")];
const ONLY_DURABLE: &str =
    "makes bytes durable; nothing is published about the speed of this architecture's methods";
const C_LIBRARY_REASON: &str = "no other method is known to be faster at this length";

/// Copies that stay in the cache, also where the C library would begin to bypass it.
const CACHED_COPY: &[Want] =
    &[plain("store_avx"), plain("store_sse2"), plain("rep_movsb"), plain("rep_movsq")];
/// Cached stores, each line written back immediately. 8 and 16 bytes at a time were the fastest of Patocka's table, CLWB and
/// CLFLUSHOPT alike.
const WRITE_BACK: &[Want] = &[
    plain("store_sse2_clwb"),
    plain("store_8_clwb"),
    plain("store_sse2_clflushopt"),
    plain("store_8_clflushopt"),
];
/// The same, with CLFLUSH as the last resort: it waits for each line.
const WRITE_BACK_CACHED: &[Want] = &[
    plain("store_sse2_clwb"),
    plain("store_8_clwb"),
    plain("store_sse2_clflushopt"),
    plain("store_8_clflushopt"),
    plain("store_sse2_clflush"),
    plain("store_8_clflush"),
];
const FLUSH: &[Want] = &[plain("clwb"), plain("clflushopt"), plain("clflush")];
const FLUSH_AWAY: &[Want] = &[plain("clflushopt"), plain("clwb"), plain("clflush")];
/// The length from which writing back beats non-temporal stores on persistent memory.
const WRITE_BACK_FROM: From = From::Bytes(768);

/// The lengths at which rules may begin, on one machine.
struct Sizes {
    level2: u64,
    last_level: u64,
}

impl Sizes {
    fn of(caches: Caches, row: &Microarchitecture) -> Sizes {
        let caches = caches.sane_or(Caches { l3: row.last_level, ..Caches::FALLBACK });
        Sizes { level2: caches.l2, last_level: caches.l3.max(caches.l2) }
    }

    fn start(&self, from: From) -> usize {
        let bytes = match from {
            From::Bytes(bytes) => bytes,
            From::Level2 => self.level2.max(LEAST),
            From::LastLevelQuarters(quarters) => (self.last_level / 4).saturating_mul(quarters).max(LEAST),
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// Gives every operation and intent that has no rules the defaults. Does not allocate; calls `caches` if there is any.
pub(super) fn complete(rules: &mut Rules, machine: Target, caches: impl FnOnce() -> Caches) {
    let missing = |rules: &Rules, operation, intent| rules.thresholds(operation, intent).is_empty();
    let all =
        || Operation::ALL.into_iter().flat_map(|operation| Intent::ALL.map(|intent| (operation, intent)));
    if !all().any(|(operation, intent)| missing(rules, operation, intent)) {
        return;
    }
    let row = known::of(machine.cpu);
    let mut build = Builder { features: machine.features, sizes: Sizes::of(caches(), row), rules };
    for (operation, intent) in all() {
        if missing(build.rules, operation, intent) {
            build.table(row, operation, intent);
        }
    }
}

/// Returns the basis of the defaults for a processor.
pub(super) fn basis(cpu: &CpuIdentity) -> Basis {
    let row = known::of(cpu.as_key());
    let name = row.name.to_owned();
    let CpuIdentity { family, model, stepping, .. } = cpu;
    let microarchitecture = if row.is_measured() {
        name
    } else if row.vendor == cpu.vendor {
        // The name says the vendor.
        format!("{name} ({family}:{model}:{stepping})")
    } else {
        format!("{name} ({})", cpu.key())
    };
    Basis::Defaults { microarchitecture, why: row.known.to_owned(), source: row.source.to_owned() }
}

struct Builder<'r> {
    features: Features,
    sizes: Sizes,
    rules: &'r mut Rules,
}

impl Builder<'_> {
    fn table(&mut self, row: &Microarchitecture, operation: Operation, intent: Intent) {
        match (operation, intent) {
            (Operation::Clear | Operation::Fill, Intent::Stream) => self.build(
                operation,
                intent,
                (C_LIBRARY, C_LIBRARY_REASON),
                &[Step {
                    from: From::Bytes(LEAST),
                    methods: row.bypass,
                    reason: "leaves the cache to others",
                }],
            ),
            (Operation::Clear | Operation::Fill, _) => {
                self.build(operation, intent, (C_LIBRARY, C_LIBRARY_REASON), row.clear);
            }
            (Operation::Copy, _) => self.copy(row, intent),
            (Operation::FillPersist | Operation::CopyPersist, _) => {
                self.store_persist(row, operation, intent)
            }
            (Operation::Persist, Intent::Stream) => self.build(
                operation,
                intent,
                (FLUSH_AWAY, "CLFLUSHOPT writes back and leaves the cache to others"),
                &[],
            ),
            (Operation::Persist, _) => self.build(
                operation,
                intent,
                (FLUSH, "CLWB writes back and may keep the line; CLFLUSH waits for each"),
                &[],
            ),
        }
    }

    fn copy(&mut self, row: &Microarchitecture, intent: Intent) {
        let step = |from, methods, reason| [Step { from, methods, reason }];
        let cached = step(
            From::Level2,
            CACHED_COPY,
            "stays in the cache, which the C library bypasses for lengths of its own choosing",
        );
        let bypass = step(From::Bytes(LEAST), BYPASS_COPY, "leaves the cache to others");
        let steps = match intent {
            Intent::Throughput => row.copy,
            Intent::Reuse => &cached,
            Intent::Stream => &bypass,
        };
        self.build(Operation::Copy, intent, (C_LIBRARY, C_LIBRARY_REASON), steps);
    }

    fn store_persist(&mut self, row: &Microarchitecture, operation: Operation, intent: Intent) {
        let short = "short: non-temporal stores write 512-byte blocks to persistent memory 1.3 times as fast as cached \
                     stores with CLFLUSHOPT (Patocka, dm-writecache, 2020)";
        let long = "cached stores with a write-back for each line are 1.25 times as fast as non-temporal ones (Patocka, \
                    memcpy_flushcache, 2020), from 768 bytes on (dm-writecache)";
        let past = "more than the cache holds: non-temporal stores spare a read of the destination (Arora 2020, 2022)";
        let always = "calibrations chose stores that bypass the cache at every length on the measured AMD processors (Zen 1, 3, 4, 5) and on \
                      an Emerald Rapids";
        match intent {
            Intent::Throughput if !row.write_back_pays => {
                self.build(operation, intent, (BYPASS_COPY, always), &[]);
            }
            Intent::Throughput => {
                let steps = [
                    Step { from: WRITE_BACK_FROM, methods: WRITE_BACK, reason: long },
                    Step { from: PAST_LAST_LEVEL, methods: BYPASS_COPY, reason: past },
                ];
                let steps = if row.bypass_pays { &steps[..] } else { &steps[..1] };
                self.build(operation, intent, (BYPASS_COPY, short), steps);
            }
            Intent::Reuse => self.build(
                operation,
                intent,
                (WRITE_BACK_CACHED, "passes through the cache; CLWB may keep the line"),
                &[],
            ),
            Intent::Stream => self.build(
                operation,
                intent,
                (
                    BYPASS_COPY,
                    "non-temporal stores disturb the cache least (Patocka, memcpy_flushcache, 2020)",
                ),
                &[],
            ),
        }
    }

    /// Adds the first of `small` that can be used, then each step's; a step of which none can is left out. The C library
    /// ends the chain.
    fn build(
        &mut self,
        operation: Operation,
        intent: Intent,
        small: (&[Want], &'static str),
        steps: &[Step],
    ) {
        let first = self.pick(operation, intent, small.0);
        // Durable by a store that bypasses the cache is better than not durable, whatever the intent.
        let first = first.or_else(|| self.pick(operation, Intent::Throughput, BYPASS_COPY));
        let (first, reason) = match first.or_else(|| self.pick_durable(operation)) {
            Some(first) if small.0.iter().chain(BYPASS_COPY).any(|want| want.name == first.method.name) => {
                (first, small.1)
            }
            Some(first) => (first, ONLY_DURABLE),
            None => (Choice::of(method::c_library(), operation), small.1),
        };
        let mut next = (0, first, reason);
        for step in steps {
            if let Some(choice) = self.pick(operation, intent, step.methods) {
                // On a machine with odd caches a step may begin below the one before it, and then replaces it.
                let from = self.sizes.start(step.from).max(next.0);
                if from > next.0 {
                    self.push(operation, intent, next);
                }
                next = (from, choice, step.reason);
            }
        }
        self.push(operation, intent, next);
    }

    fn push(&mut self, operation: Operation, intent: Intent, rule: (usize, Choice, &'static str)) {
        let (from, choice, reason) = rule;
        // A table has few rules, and they rise.
        let pushed = self.rules.push((operation, intent), from, choice, RuleOrigin::Default(reason));
        debug_assert_eq!(pushed, Ok(()));
    }

    /// The first method of the table that makes bytes durable, for architectures without published measurements.
    fn pick_durable(&self, operation: Operation) -> Option<Choice> {
        let usable =
            |method: &&method::Method| method.does(operation) && self.features.contains(method.requires);
        let method = method::all().find(usable).filter(|_| operation.persists())?;
        Some(Choice::of(method, operation))
    }

    /// The first of the wanted methods that does the operation, that the machine can run, and that does not bypass the
    /// cache where the bytes are wanted there.
    fn pick(&self, operation: Operation, intent: Intent, wanted: &[Want]) -> Option<Choice> {
        wanted.iter().find_map(|want| {
            let method = method::by_name(want.name)?;
            let tunables = method.tunables(operation)?;
            let kept = intent != Intent::Reuse || method.effect != CacheEffect::Bypasses;
            if !kept || !self.features.contains(method.requires) {
                return None;
            }
            let mut choice = Choice::of(method, operation);
            for (tunable, value) in want.set {
                choice.parameters.set(tunable, *value);
            }
            choice.parameters.is_valid_for(tunables).then_some(choice)
        })
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;

    /// A misspelt name would never be chosen, and nothing would say so.
    #[test]
    fn every_wanted_method_is_in_the_table() {
        for (operation, lists) in [
            (Operation::Copy, &[C_LIBRARY, BYPASS_COPY, CACHED_COPY][..]),
            (Operation::CopyPersist, &[BYPASS_COPY, WRITE_BACK, WRITE_BACK_CACHED]),
            (Operation::Persist, &[FLUSH, FLUSH_AWAY]),
        ] {
            for want in lists.iter().copied().flatten() {
                known::tests::check(want, operation);
            }
        }
    }
}
