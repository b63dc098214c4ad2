//! Derivation of the module's parameters from the measurements of a profile.

use std::collections::BTreeSet;

use bulkmem::machine::{Features, Machine};
use bulkmem::method::CacheEffect;
use bulkmem::policy::{Policy, movnti_is_slow};
use bulkmem::{Intent, Operation};
use serde::Serialize;

use crate::{Method, Settings};

/// The size of a huge page, and the module's default chunk.
const HUGE_PAGE: u64 = 2 << 20;
/// The module's default prefetch distance.
const DISTANCE: u64 = 4096;
/// The longest chunk that the module accepts.
const LONGEST_CHUNK: u64 = 1 << 30;
/// The longest time that a chunk may take, in nanoseconds: the processor runs nothing else until its end.
const LONGEST_CHUNK_NS: f64 = 10e6;
/// A longer chunk must be faster by more than this share.
const MIN_GAIN: f64 = 0.05;

/// The time that the instructions of one of the module's methods took, in user space on one thread, to clear memory that
/// was not in the cache, chunk by chunk and with one fence at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClearTime {
    /// The method.
    pub method: Method,
    /// The distance of [`Method::Prefetchw`] in bytes; 0 for all others.
    pub prefetch_distance: u64,
    /// Bytes cleared in total.
    pub extent: u64,
    /// Bytes cleared in one piece.
    pub chunk: u64,
    /// Nanoseconds for the extent.
    pub ns: f64,
    /// Half the width of the 95 % interval of `ns`; infinite if there were too few samples.
    pub noise_ns: f64,
}

impl ClearTime {
    fn is_usable(&self) -> bool {
        let short =
            self.chunk <= HUGE_PAGE || self.ns * self.chunk as f64 / self.extent as f64 <= LONGEST_CHUNK_NS;
        self.ns > 0.0 && (1..=LONGEST_CHUNK.min(self.extent)).contains(&self.chunk) && short
    }

    /// True if it is faster than another one by more than the noise. The best of several is compared, so that twice the
    /// noise of a single comparison is required.
    fn beats(&self, other: &ClearTime) -> bool {
        other.ns - self.ns > 2.0 * self.noise_ns.hypot(other.noise_ns)
    }
}

/// The module's parameters that follow from a profile, with the reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// The parameters.
    pub settings: Settings,
    /// The reason for each parameter that is set, and for each that the profile could set and does not.
    pub reasons: Vec<Reason>,
}

/// The reason why a parameter is set or left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reason {
    /// The parameter.
    pub parameter: &'static str,
    /// Its new value; `None`: it is left as it is.
    pub value: Option<String>,
    /// The reason.
    pub why: String,
}

/// An error that prevents a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There are no measurements of the module's methods.
    #[error("the profile has no measurements of the module's methods")]
    NotMeasured,
}

impl Plan {
    /// Derives the parameters for a machine from the measurements of the module's methods, and the threshold also from the
    /// policy's rules for clearing with [`Intent::Throughput`].
    ///
    /// Sets only methods that were measured, and others than the module's defaults only if they are faster beyond the noise.
    ///
    /// # Errors
    /// [`PlanError::NotMeasured`] if there are no measurements.
    pub fn derive(policy: &Policy, machine: &Machine, times: &[ClearTime]) -> Result<Plan, PlanError> {
        let times: Vec<ClearTime> = times.iter().filter(|time| time.is_usable()).copied().collect();
        let largest = times.iter().map(|time| time.extent).max().ok_or(PlanError::NotMeasured)?;
        let large = best(&times, largest, default_method(machine), |_| true);
        // Both methods use the same distance.
        let distance = large.as_ref().map_or(0, |(winner, _)| winner.prefetch_distance);
        let cached = best(&times, HUGE_PAGE.min(largest), default_cached_method(machine), |time| {
            time.method.caches() && (distance == 0 || [0, distance].contains(&time.prefetch_distance))
        });

        let mut plan = Plan { settings: Settings::default(), reasons: Vec::new() };
        if let Ok((winner, _)) = &large {
            if winner.method == Method::Movnti && movnti_is_slow(&machine.cpu) {
                plan.settings.ignore_quirks = Some(true);
                plan.give_reason(
                    "ignore_quirks",
                    "movnti measured best here, although it is published to be slow",
                );
            }
            plan.settings.chunk = Some(winner.chunk.max(HUGE_PAGE));
            let why = format!("longer chunks of {} are not faster, or take more than 10 ms", winner.method);
            plan.give_reason("chunk", why);
        }
        let winners = [&large, &cached].into_iter().flatten();
        let distance = winners.map(|(winner, _)| winner.prefetch_distance).find(|distance| *distance > 0);
        if let Some(distance) = distance {
            plan.settings.prefetch_distance = Some(distance);
            plan.give_reason("prefetch_distance", "prefetchw measured best at this distance");
        }
        if let (Ok((large, _)), Ok((cached, _))) = (&large, &cached) {
            plan.set_threshold(&times, large, cached, policy);
        }
        plan.settings.cached_method = cached.as_ref().ok().map(|(winner, _)| winner.method);
        plan.give_reason("cached_method", cached.map_or_else(|why| why, |(_, why)| why));
        plan.settings.method = large.as_ref().ok().map(|(winner, _)| winner.method);
        plan.give_reason("method", large.map_or_else(|why| why, |(_, why)| why));
        Ok(plan)
    }

    fn give_reason(&mut self, parameter: &'static str, why: impl Into<String>) {
        let set = self.settings.values().into_iter().find(|(name, _)| *name == parameter);
        self.reasons.push(Reason { parameter, value: set.map(|(_, value)| value), why: why.into() });
    }

    /// Sets the threshold to the shortest measured length from which `large` is faster than `cached`; if `large` bypasses
    /// the cache, at least to the length from which the policy does.
    fn set_threshold(&mut self, times: &[ClearTime], large: &ClearTime, cached: &ClearTime, policy: &Policy) {
        let ns = |extent: u64, like: &ClearTime| {
            let same = |it: &&ClearTime| {
                (it.method, it.prefetch_distance, it.extent) == (like.method, like.prefetch_distance, extent)
            };
            // Methods to which the chunk makes no difference were measured in one.
            let fitting = times.iter().filter(same).filter(|it| it.chunk <= large.chunk.max(HUGE_PAGE));
            fitting.max_by_key(|it| it.chunk).map(|it| it.ns)
        };
        let faster = |extent: u64| Some(ns(extent, large)? < ns(extent, cached)?);
        let extents: BTreeSet<u64> = times.iter().map(|time| time.extent).collect();
        let run = extents.into_iter().rev().take_while(|extent| faster(*extent) == Some(true));
        let (large, cached) = (large.method, cached.method);
        let Some(measured) = run.last() else {
            return self
                .give_reason("threshold", format!("{large} was not measured to be faster than {cached}"));
        };
        let bypass = if large.caches() { 0 } else { bypass_from(policy) };
        self.settings.threshold = Some(measured.max(bypass));
        let why = match bypass > measured {
            true => "from this length on the profile's rules bypass the cache".to_owned(),
            false => format!("the shortest measured length from which {large} is faster than {cached}"),
        };
        self.give_reason("threshold", why);
    }
}

/// Returns the length from which the policy's rules for clearing bypass the cache, in calls of at most a huge page; 0 if
/// they do not bypass it for large lengths.
fn bypass_from(policy: &Policy) -> u64 {
    const CLEAR: (Operation, Intent) = (Operation::Clear, Intent::Throughput);
    let bypasses = |total: &usize| {
        let choice = policy.choose_part(CLEAR.0, (*total).min(HUGE_PAGE as usize), *total, CLEAR.1);
        choice.is_some_and(|choice| choice.method.effect == CacheEffect::Bypasses)
    };
    let steps = policy.rules(CLEAR.0, CLEAR.1).into_iter().map(|rule| rule.from).rev();
    steps.take_while(bypasses).last().unwrap_or_default() as u64
}

/// Returns the measurement of the best suitable method for an extent, and why it is the best: the module's default unless
/// another one is faster beyond the noise. Each method takes part with its shortest chunk that is about as fast as any.
/// An error is the reason why there is none.
fn best(
    times: &[ClearTime],
    extent: u64,
    default: Method,
    is_suitable: impl Fn(&ClearTime) -> bool,
) -> Result<(ClearTime, String), String> {
    let suitable = || times.iter().filter(|time| time.extent == extent && is_suitable(time));
    let usual = |time: &&ClearTime| {
        time.method == default && time.chunk <= HUGE_PAGE && [0, DISTANCE].contains(&time.prefetch_distance)
    };
    let Some(usual) = suitable().find(usual) else {
        return Err(format!("{default}, the module's default, was not measured"));
    };
    let as_fast = |time: &&ClearTime| {
        let same = suitable()
            .filter(|it| (it.method, it.prefetch_distance) == (time.method, time.prefetch_distance));
        same.map(|it| it.ns).fold(f64::INFINITY, f64::min) >= time.ns * (1.0 - MIN_GAIN)
    };
    let shortest = |time: &&ClearTime| {
        let same = suitable()
            .filter(|it| (it.method, it.prefetch_distance) == (time.method, time.prefetch_distance));
        same.filter(as_fast).all(|it| it.chunk >= time.chunk)
    };
    let candidates = suitable().filter(as_fast).filter(shortest);
    let fastest = candidates.min_by(|one, other| one.ns.total_cmp(&other.ns)).unwrap_or(usual);
    let speed = |time: &ClearTime| format!("{:.1} GB/s", time.extent as f64 / time.ns);
    if fastest.beats(usual) {
        let of =
            if fastest.method == default { "with the module's defaults" } else { "by the module's default" };
        let why = format!("{} at {extent} bytes, {} {of}, {default}", speed(fastest), speed(usual));
        return Ok((*fastest, why));
    }
    Ok((
        *usual,
        format!("the module's default, {} at {extent} bytes; none is faster beyond the noise", speed(usual)),
    ))
}

/// Returns the module's default of `method` on a machine: that of `kmod/policy.c`.
fn default_method(machine: &Machine) -> Method {
    if machine.features.contains(Features::CLZERO) {
        Method::Clzero
    } else if !movnti_is_slow(&machine.cpu) {
        Method::Movnti
    } else if machine.features.contains(Features::PREFETCHW) {
        Method::Prefetchw
    } else {
        default_cached_method(machine)
    }
}

/// Returns the module's default of `cached_method` on a machine.
fn default_cached_method(machine: &Machine) -> Method {
    if machine.features.contains(Features::ERMS) { Method::RepStosb } else { Method::Stock }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use bulkmem::machine::CpuIdentity;
    use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine(cpu: CpuIdentity, features: Features) -> Machine {
        let mut machine = Machine::current().clone();
        (machine.cpu, machine.features) = (cpu, features);
        machine
    }

    fn zen5() -> Machine {
        machine(CpuIdentity::new("AuthenticAMD", 26, 2, 1), Features::all())
    }

    fn intel(model: u32) -> Machine {
        machine(CpuIdentity::new("GenuineIntel", 6, model, 0), Features::all() - Features::CLZERO)
    }

    /// A policy with these rules for clearing: from, method.
    fn policy(machine: &Machine, rules: &[(u64, &str)]) -> Policy {
        let cpu = &machine.cpu;
        let mut text = format!(
            "{POLICY_FORMAT} {POLICY_VERSION}\ncpu {} {} {} {}\n",
            cpu.family, cpu.model, cpu.stepping, cpu.vendor
        );
        for (from, method) in rules {
            text += &format!("rule clear throughput {from} {method}\n");
        }
        text += "end\n";
        Policy::from_file_bytes(text.as_bytes(), machine).unwrap()
    }

    /// Within 1 % of noise.
    fn time(method: Method, extent: u64, chunk: u64, gb_per_s: f64) -> ClearTime {
        let ns = extent as f64 / gb_per_s;
        let prefetch_distance = if method == Method::Prefetchw { DISTANCE } else { 0 };
        ClearTime { method, prefetch_distance, extent, chunk, ns, noise_ns: ns * 0.01 }
    }

    /// Times in chunks of 2 MiB, in GB/s over 2 and 32 MiB.
    fn times(speeds: &[(Method, f64, f64)]) -> Vec<ClearTime> {
        let both = |&(method, short, long): &(Method, f64, f64)| {
            [time(method, 2 * MIB, 2 * MIB, short), time(method, 32 * MIB, 2 * MIB, long)]
        };
        speeds.iter().flat_map(both).collect()
    }

    fn settings(machine: &Machine, rules: &[(u64, &str)], times: &[ClearTime]) -> Settings {
        Plan::derive(&policy(machine, rules), machine, times).unwrap().settings
    }

    fn reason<'p>(plan: &'p Plan, parameter: &str) -> &'p str {
        &plan.reasons.iter().find(|reason| reason.parameter == parameter).unwrap().why
    }

    const ZEN5: [(Method, f64, f64); 5] = [
        (Method::Stock, 44.0, 45.0),
        (Method::RepStosb, 50.0, 52.0),
        (Method::Movnti, 52.0, 53.3),
        (Method::Clzero, 84.0, 86.9),
        (Method::Prefetchw, 40.0, 41.0),
    ];

    #[test]
    fn a_policy_of_wider_stores_does_not_replace_the_fastest_method_of_the_module() {
        let machine = zen5();
        for wide in ["nontemporal_avx512", "movdir64b", "nontemporal_streams_sse2", "movnti_4"] {
            let rules = [(0, "c_library"), (24 * MIB, wide)];
            let plan = Plan::derive(&policy(&machine, &rules), &machine, &times(&ZEN5)).unwrap();
            let expected = Settings {
                chunk: Some(2 * MIB),
                threshold: Some(24 * MIB),
                cached_method: Some(Method::RepStosb),
                method: Some(Method::Clzero),
                ..Settings::default()
            };
            assert_eq!(plan.settings, expected, "{wide}: {plan:?}");
            assert!(reason(&plan, "method").contains("86.9 GB/s"), "{plan:?}");
            assert!(reason(&plan, "threshold").contains("rules bypass the cache"), "{plan:?}");
        }
    }

    #[test]
    fn a_method_that_was_not_measured_is_never_set() {
        let rules = [(0, "rep_stosb"), (8 * MIB, "movnti")];
        let machine = zen5();
        let error = Plan::derive(&policy(&machine, &rules), &machine, &[]).unwrap_err();
        assert_eq!(error, PlanError::NotMeasured);
        for left_out in ZEN5.map(|(method, ..)| method) {
            let left: Vec<ClearTime> =
                times(&ZEN5).into_iter().filter(|time| time.method != left_out).collect();
            let plan = Plan::derive(&policy(&machine, &rules), &machine, &left).unwrap();
            let Settings { method, cached_method, ignore_quirks, threshold, .. } = plan.settings;
            assert!(method != Some(left_out) && cached_method != Some(left_out), "{plan:?}");
            assert_eq!(ignore_quirks, None);
            if left_out == Method::Clzero {
                assert_eq!((method, threshold), (None, None));
                assert_eq!(reason(&plan, "method"), "clzero, the module's default, was not measured");
            }
        }
    }

    #[test]
    fn the_default_stays_unless_another_method_is_faster_beyond_the_noise() {
        let machine = intel(106);
        let rules = [(0, "c_library"), (8 * MIB, "movnti")];
        let mut measured = times(&[
            (Method::RepStosb, 10.0, 10.0),
            (Method::Stock, 10.1, 10.1),
            (Method::Movnti, 20.0, 20.0),
        ]);
        measured.push(time(Method::Prefetchw, 32 * MIB, 2 * MIB, 20.4));
        let found = settings(&machine, &rules, &measured);
        assert_eq!((found.method, found.cached_method), (Some(Method::Movnti), Some(Method::RepStosb)));
        assert_eq!((found.threshold, found.prefetch_distance), (Some(8 * MIB), None));
        measured.last_mut().unwrap().ns *= 0.9;
        let found = settings(&machine, &rules, &measured);
        assert_eq!((found.method, found.prefetch_distance), (Some(Method::Prefetchw), Some(DISTANCE)));
        // Too few samples to know the noise.
        measured.last_mut().unwrap().noise_ns = f64::INFINITY;
        assert_eq!(settings(&machine, &rules, &measured).method, Some(Method::Movnti));
    }

    #[test]
    fn movnti_overrides_the_published_quirk_only_if_it_measured_best() {
        let rules = [(0, "c_library"), (8 * MIB, "nontemporal_avx512")];
        let quirk = |model: u32, movnti: f64| {
            let measured = times(&[
                (Method::RepStosb, 9.0, 9.0),
                (Method::Movnti, movnti, movnti),
                (Method::Prefetchw, 12.0, 12.0),
            ]);
            let found = settings(&intel(model), &rules, &measured);
            (found.ignore_quirks, found.method)
        };
        assert_eq!(quirk(85, 9.0), (None, Some(Method::Prefetchw)));
        assert_eq!(quirk(85, 14.0), (Some(true), Some(Method::Movnti)));
        assert_eq!(quirk(106, 14.0), (None, Some(Method::Movnti)));
    }

    #[test]
    fn the_threshold_is_where_the_method_is_faster_and_never_below_a_huge_page() {
        let machine = intel(106);
        let found = |movnti: [f64; 3], rules: &[(u64, &str)]| {
            let lengths = [2 * MIB, 8 * MIB, 32 * MIB];
            let mut measured: Vec<ClearTime> = lengths
                .iter()
                .zip(movnti)
                .map(|(length, speed)| time(Method::Movnti, *length, 2 * MIB, speed))
                .collect();
            measured.extend(lengths.map(|length| time(Method::RepStosb, length, 2 * MIB, 10.0)));
            settings(&machine, rules, &measured).threshold
        };
        let bypasses = [(0, "rep_stosb"), (64 << 10, "movnti")];
        assert_eq!(found([11.0, 20.0, 20.0], &bypasses), Some(2 * MIB));
        assert_eq!(found([9.0, 20.0, 20.0], &bypasses), Some(8 * MIB));
        assert_eq!(found([11.0, 9.0, 20.0], &bypasses), Some(32 * MIB));
        assert_eq!(found([9.0, 9.0, 9.0], &bypasses), None);
        assert_eq!(found([11.0, 20.0, 20.0], &[(0, "rep_stosb")]), Some(2 * MIB));
        // Bypassing the cache for short lengths does not count if a longer one does not.
        let rules = [(0, "movnti"), (MIB, "rep_stosb"), (16 * MIB, "nontemporal_sse2"), (32 * MIB, "movnti")];
        assert_eq!(found([11.0, 20.0, 20.0], &rules), Some(16 * MIB));
    }

    #[test]
    fn the_chunk_is_the_shortest_that_is_fast_and_never_takes_too_long() {
        let machine = intel(85);
        let chunk = |rates: &[(u64, f64)]| {
            let mut measured = vec![time(Method::Prefetchw, 1024 * MIB, 2 * MIB, 5.0)];
            measured
                .extend(rates.iter().map(|(chunk, rate)| time(Method::RepStosb, 1024 * MIB, *chunk, *rate)));
            let found = settings(&machine, &[(0, "rep_stosb")], &measured);
            (found.method, found.chunk)
        };
        let rep = Some(Method::RepStosb);
        assert_eq!(chunk(&[(2 * MIB, 9.8), (8 * MIB, 10.0), (64 * MIB, 10.0)]), (rep, Some(2 * MIB)));
        assert_eq!(chunk(&[(2 * MIB, 4.0), (8 * MIB, 15.0), (32 * MIB, 20.0)]), (rep, Some(32 * MIB)));
        // 1 GiB at 36 GB/s takes 30 ms.
        assert_eq!(chunk(&[(2 * MIB, 14.8), (32 * MIB, 22.0), (1024 * MIB, 36.0)]), (rep, Some(32 * MIB)));
    }

    #[test]
    fn rep_stosq_is_not_taken_for_rep_stosb() {
        let machine = zen5();
        let mut measured = times(&ZEN5);
        measured.extend(times(&[(Method::RepStosq, 60.0, 60.0)]));
        let found = settings(&machine, &[(0, "rep_stosq")], &measured);
        assert_eq!((found.cached_method, found.method), (Some(Method::RepStosq), Some(Method::Clzero)));
        measured.retain(|time| time.method == Method::RepStosq);
        let found = settings(&machine, &[(0, "rep_stosq")], &measured);
        assert_eq!((found.cached_method, found.method), (None, None));
    }

    #[test]
    fn every_value_has_its_reason() {
        let machine = zen5();
        let plan = Plan::derive(&policy(&machine, &[]), &machine, &times(&ZEN5)).unwrap();
        for (name, value) in plan.settings.values() {
            let reason = plan.reasons.iter().find(|reason| reason.parameter == name).unwrap();
            assert_eq!(reason.value, Some(value));
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_module() {
        assert_eq!(default_method(&zen5()), Method::Clzero);
        let defaults = [106, 85].map(|model| default_method(&intel(model)));
        assert_eq!(defaults, [Method::Movnti, Method::Prefetchw]);
        let old = machine(intel(85).cpu, Features::SSE2);
        assert_eq!((default_method(&old), default_cached_method(&old)), (Method::Stock, Method::Stock));
    }
}
