//! Derivation of the module's parameters from a measured policy.

use std::ops::RangeInclusive;

use bulkmem::method::{self, CacheEffect};
use bulkmem::policy::{Choice, Policy};
use bulkmem::{Intent, Operation};
use serde::Serialize;

use crate::{Method, Settings};

/// The size of a huge page, which is the longest call that clears one page fault, and the module's default chunk.
const HUGE_PAGE: u64 = 2 << 20;
/// The longest chunk that the module accepts.
const LONGEST_CHUNK: u64 = 1 << 30;
/// The longest time that a chunk may take, in nanoseconds: the processor runs nothing else until its end.
const LONGEST_CHUNK_NS: f64 = 10e6;
/// A longer chunk must be faster by more than this share.
const MIN_GAIN: f64 = 0.05;
/// The values that `prefetch_distance` takes.
const DISTANCES: RangeInclusive<u64> = 64..=65536;

/// How long one method took to clear an aligned range that was not in the cache, on one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClearTime {
    /// The method and its tunables.
    pub choice: Choice,
    /// Bytes cleared in one call.
    pub length: u64,
    /// Nanoseconds for one call.
    pub ns: f64,
}

impl ClearTime {
    fn bytes_per_ns(&self) -> f64 {
        self.length as f64 / self.ns
    }
}

/// The module's parameters that follow from a policy, with the reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// The parameters.
    pub settings: Settings,
    /// The reason for each parameter, including what the module cannot do as the policy says.
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
    /// The policy has no measured rules for clearing.
    #[error("the profile has no rules for clearing: `bulkmem calibrate` measures it")]
    NoRules,
}

impl Plan {
    /// Derives the parameters from the policy's rules for clearing with [`Intent::Throughput`], in calls of at most a huge
    /// page: the method for the largest total lengths, the total length from which it is chosen, and the method below that.
    ///
    /// `times` are the measurements behind the policy. They select a substitute for a method that the module does not
    /// have, and the chunk. Without them, the substitute depends on the cache effect alone and the chunk is left as it is.
    ///
    /// # Errors
    /// [`PlanError::NoRules`] if the policy's rules for clearing were not measured.
    pub fn derive(policy: &Policy, times: &[ClearTime]) -> Result<Plan, PlanError> {
        const CLEAR: (Operation, Intent) = (Operation::Clear, Intent::Throughput);
        let mut steps: Vec<u64> =
            policy.rules(CLEAR.0, CLEAR.1).iter().map(|rule| rule.from as u64).collect();
        if steps.is_empty() || !policy.is_measured(CLEAR.0, CLEAR.1) {
            return Err(PlanError::NoRules);
        }
        // Total lengths beyond the last step all get the same answer.
        let largest = steps.last().copied().unwrap_or_default().max(LONGEST_CHUNK);
        let answer = |total: u64| {
            let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            let choice = policy.choose_part(CLEAR.0, size(total.min(HUGE_PAGE)), size(total), CLEAR.1);
            choice.unwrap_or_else(|| Choice::of(method::c_library(), Operation::Clear))
        };
        let choice = answer(largest);
        let large = Equivalent::of(&choice).or_measured(times, largest);
        let is_alike = |total: u64| {
            let method = Equivalent::of(&answer(total)).method;
            if large.method.caches() { method == Equivalent::of(&choice).method } else { !method.caches() }
        };
        // The threshold is the start of the last run of steps that are alike. The first rule starts at 0.
        let mut threshold = steps.pop().unwrap_or_default();
        while let Some(from) = steps.pop().filter(|from| is_alike(*from)) {
            threshold = from;
        }

        let mut plan = Plan { settings: Settings::default(), reasons: Vec::new() };
        if large.method == Method::Movnti {
            plan.settings.ignore_quirks = Some(true);
            plan.give_reason(
                "ignore_quirks",
                "stores that bypass the cache were measured to be the best on this machine, whatever is published",
            );
        }
        plan.set_chunk(times, &large.choice);
        let small =
            (threshold > 0).then(|| (HUGE_PAGE.min(threshold - 1), answer(HUGE_PAGE.min(threshold - 1))));
        let cached = small.map(|(total, choice)| {
            let equivalent = Equivalent::of(&choice).or_measured(times, total);
            (total, equivalent.caching())
        });
        let distance = large.distance.or(cached.as_ref().and_then(|(_, equivalent)| equivalent.distance));
        if let Some(distance) = distance {
            plan.settings.prefetch_distance = Some(distance);
            plan.give_reason("prefetch_distance", "the profile's distance for that method");
        }
        plan.settings.threshold = Some(threshold);
        let from = if threshold == 0 { "every length".to_owned() } else { format!("{threshold} bytes on") };
        plan.give_reason("threshold", format!("from {from} the profile chooses what `method` stands for"));
        match cached {
            Some((total, equivalent)) => {
                plan.settings.cached_method = Some(equivalent.method);
                plan.give_reason("cached_method", format!("{} for {total} bytes in total", equivalent.why));
            }
            None => plan.give_reason("cached_method", "no length is below the threshold"),
        }
        plan.settings.method = Some(large.method);
        plan.give_reason("method", format!("{} for large lengths", large.why));
        Ok(plan)
    }

    fn give_reason(&mut self, parameter: &'static str, why: impl Into<String>) {
        let set = self.settings.values().into_iter().find(|(name, _)| *name == parameter);
        self.reasons.push(Reason { parameter, value: set.map(|(_, value)| value), why: why.into() });
    }

    /// Sets the chunk to the shortest length, from a huge page on, that is about as fast as any, if it was measured.
    fn set_chunk(&mut self, times: &[ClearTime], choice: &Choice) {
        let mut rates: Vec<(u64, f64)> = usable(times)
            .filter(|time| time.choice == *choice && (HUGE_PAGE..=LONGEST_CHUNK).contains(&time.length))
            .filter(|time| time.length == HUGE_PAGE || time.ns <= LONGEST_CHUNK_NS)
            .map(|time| (time.length, time.bytes_per_ns()))
            .collect();
        rates.sort_by_key(|(length, _)| *length);
        let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        match rates.iter().find(|(_, rate)| *rate >= best * (1.0 - MIN_GAIN)) {
            Some((length, _)) => {
                // The module accepts whole pages only.
                self.settings.chunk = Some(length / 4096 * 4096);
                let why = if *length == rates[0].0 {
                    "no shorter call of a huge page or more was measured, and longer ones are not faster"
                } else {
                    "shorter ones are slower"
                };
                self.give_reason("chunk", format!("{choice} was measured in calls of this length; {why}"));
            }
            None => self.give_reason(
                "chunk",
                format!(
                    "the profile has no figures of {choice} in calls from {HUGE_PAGE} bytes that last less than 10 ms"
                ),
            ),
        }
    }
}

fn usable(times: &[ClearTime]) -> impl Iterator<Item = &ClearTime> {
    times.iter().filter(|time| time.ns > 0.0)
}

/// The module's method for a choice of the policy.
struct Equivalent {
    method: Method,
    /// The choice whose measurements apply to `method`.
    choice: Choice,
    /// False if the module only has something similar.
    exact: bool,
    /// The distance for [`Method::Prefetchw`].
    distance: Option<u64>,
    why: String,
}

impl Equivalent {
    /// The same method, or the most similar one.
    fn of(choice: &Choice) -> Equivalent {
        let name = choice.method.name;
        let distance = u64::from(choice.parameters.write_distance);
        let (method, exact) = match (name, choice.method.effect) {
            // Both sizes of the string instruction perform the same.
            ("rep_stosb" | "rep_stosq", _) => (Method::RepStosb, true),
            ("movnti", _) => (Method::Movnti, true),
            ("clzero", _) => (Method::Clzero, true),
            (_, CacheEffect::Bypasses) => (Method::Movnti, false),
            // Ordinary stores of any width; the module's are 8 bytes wide.
            (_, CacheEffect::Allocates) if distance > 0 && !name.contains("rep_") => {
                (Method::Prefetchw, true)
            }
            _ => (Method::Stock, false),
        };
        let distance = (method == Method::Prefetchw)
            .then(|| distance.clamp(*DISTANCES.start(), *DISTANCES.end()).next_multiple_of(64));
        let why = match (name == method.name(), method) {
            (true, _) => format!("the profile chooses {choice}"),
            (_, Method::Stock) => {
                format!("the profile chooses {choice}, mapped to stock, as the module has nothing like it,")
            }
            _ => format!("the profile chooses {choice}, mapped to {method},"),
        };
        Equivalent { method, choice: *choice, exact, distance, why }
    }

    /// If the module does not have the method: of those that it has with the same cache effect, the one that was measured
    /// to be the fastest at about this total length, if any was measured.
    fn or_measured(self, times: &[ClearTime], total: u64) -> Equivalent {
        if self.exact {
            return self;
        }
        let is_near = |length: u64| length >= total / 2 && length / 2 <= total;
        let exact = usable(times).filter(|time| is_near(time.length)).filter_map(|time| {
            let equivalent = Equivalent::of(&time.choice);
            let fits = equivalent.exact && equivalent.method.caches() == self.method.caches();
            fits.then_some((time, equivalent))
        });
        let fastest =
            exact.max_by(|(one, _), (other, _)| one.bytes_per_ns().total_cmp(&other.bytes_per_ns()));
        let Some((time, fastest)) = fastest else { return self };
        let why = format!(
            "the profile chooses {}, which the module does not have; of its methods with the same cache effect, {} was \
             measured the fastest at {} bytes, mapped to {},",
            self.choice, fastest.choice, time.length, fastest.method
        );
        Equivalent { why, ..fastest }
    }

    /// The equivalent for `cached_method`, which must not bypass the cache.
    fn caching(self) -> Equivalent {
        if self.method.caches() {
            return self;
        }
        let why = format!("{} which does not cache: stock", self.why);
        Equivalent { method: Method::Stock, distance: None, why, ..self }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use bulkmem::machine::{Features, Machine};
    use bulkmem::method::Parameters;
    use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn choice(method: &str, write_distance: u32) -> Choice {
        let method = method::by_name(method).unwrap();
        let parameters = Parameters { write_distance, ..method.default_parameters(Operation::Clear) };
        Choice { method, parameters }
    }

    /// A policy with these rules for clearing: from, method, write distance. Its machine has every instruction.
    fn policy(rules: &[(u64, &str, u32)]) -> Policy {
        let machine = Machine { features: Features::all(), ..Machine::current().clone() };
        let cpu = &machine.cpu;
        let mut text = format!(
            "{POLICY_FORMAT} {POLICY_VERSION}\ncpu {} {} {} {}\n",
            cpu.family, cpu.model, cpu.stepping, cpu.vendor
        );
        for (from, method, distance) in rules {
            text += &format!("rule clear throughput {from} {}\n", choice(method, *distance));
        }
        text += "end\n";
        Policy::from_file_bytes(text.as_bytes(), &machine).unwrap()
    }

    fn time(method: &str, length: u64, gb_per_s: f64) -> ClearTime {
        let choice = Choice { parameters: Parameters::default(), ..choice(method, 0) };
        ClearTime { choice, length, ns: length as f64 / gb_per_s }
    }

    fn settings(rules: &[(u64, &str, u32)]) -> Settings {
        Plan::derive(&policy(rules), &[]).unwrap().settings
    }

    fn reason<'p>(plan: &'p Plan, parameter: &str) -> &'p str {
        &plan.reasons.iter().find(|reason| reason.parameter == parameter).unwrap().why
    }

    #[test]
    fn the_threshold_is_where_stores_that_bypass_the_cache_begin() {
        let found = settings(&[(0, "c_library", 0), (64 << 10, "rep_stosb", 0), (24 * MIB, "clzero", 0)]);
        let expected = Settings {
            threshold: Some(24 * MIB),
            cached_method: Some(Method::RepStosb),
            method: Some(Method::Clzero),
            ..Settings::default()
        };
        assert_eq!(found, expected);
        // The threshold includes an earlier method that bypasses the cache. REP STOSB for 4 MiB does not end that range,
        // because calls of 2 MiB are too short for its rule.
        let rules = [
            (0, "rep_stosb", 0),
            (MIB, "movnti", 0),
            (4 * MIB, "rep_stosb", 0),
            (8 * MIB, "nontemporal_avx512", 0),
            (32 * MIB, "clzero", 0),
        ];
        let found = settings(&rules);
        assert_eq!((found.threshold, found.method), (Some(MIB), Some(Method::Clzero)));
        assert_eq!(found.cached_method, Some(Method::RepStosb));
    }

    #[test]
    fn measured_movnti_overrides_published_quirks() {
        for name in ["movnti", "movnti_4", "nontemporal_avx512", "movdir64b", "nontemporal_streams_sse2"] {
            let found = settings(&[(0, "rep_stosb", 0), (8 * MIB, name, 0)]);
            assert_eq!((found.ignore_quirks, found.method), (Some(true), Some(Method::Movnti)), "{name}");
            assert_eq!(found.values()[0].0, "ignore_quirks");
        }
        assert_eq!(settings(&[(0, "rep_stosb", 0), (MIB, "clzero", 0)]).ignore_quirks, None);
    }

    #[test]
    fn write_prefetch_keeps_its_distance() {
        let found = settings(&[(0, "rep_stosb", 0), (MIB, "write_prefetch_avx512", 2048)]);
        assert_eq!((found.method, found.prefetch_distance), (Some(Method::Prefetchw), Some(2048)));
        assert_eq!((found.threshold, found.cached_method), (Some(MIB), Some(Method::RepStosb)));
        let found = settings(&[(0, "write_prefetch_8", 640), (16 * MIB, "clzero", 0)]);
        assert_eq!((found.cached_method, found.prefetch_distance), (Some(Method::Prefetchw), Some(640)));
    }

    #[test]
    fn a_missing_method_is_replaced_by_the_fastest_that_was_measured() {
        let policy = policy(&[(0, "c_library", 0), (4 * MIB, "nontemporal_avx512", 0)]);
        let mut times = vec![
            time("nontemporal_avx512", 1024 * MIB, 88.0),
            time("clzero", 1024 * MIB, 79.0),
            time("movnti", 1024 * MIB, 40.0),
            time("rep_stosb", 1024 * MIB, 84.0),
            time("rep_stosq", 2 * MIB, 33.0),
            time("store_8", 2 * MIB, 34.0),
            time("movnti", 2 * MIB, 40.0),
        ];
        let plan = Plan::derive(&policy, &times).unwrap();
        // REP STOSB is faster than CLZERO there, but would fill the cache.
        assert_eq!((plan.settings.method, plan.settings.ignore_quirks), (Some(Method::Clzero), None));
        assert_eq!(plan.settings.cached_method, Some(Method::RepStosb));
        for word in [
            "nontemporal_avx512, which the module does not have",
            "clzero was measured the fastest",
            "mapped to clzero",
        ] {
            assert!(reason(&plan, "method").contains(word), "{word}: {plan:?}");
        }
        // Measurements of very different lengths do not count.
        times.retain(|time| time.length > 2 * MIB && time.choice.method.name != "clzero");
        let found = Plan::derive(&policy, &times).unwrap().settings;
        assert_eq!((found.method, found.cached_method), (Some(Method::Movnti), Some(Method::Stock)));
    }

    #[test]
    fn methods_without_an_equivalent_become_stock_with_the_reason() {
        let plan = Plan::derive(&policy(&[(0, "portable", 0)]), &[]).unwrap();
        assert_eq!((plan.settings.method, plan.settings.threshold), (Some(Method::Stock), Some(0)));
        assert_eq!(plan.settings.cached_method, None);
        let why = reason(&plan, "method");
        assert!(why.contains("portable, mapped to stock, as the module has nothing"), "{plan:?}");
        assert!(reason(&plan, "cached_method").contains("no length is below"), "{plan:?}");
        for (name, value) in plan.settings.values() {
            let reason = plan.reasons.iter().find(|reason| reason.parameter == name).unwrap();
            assert_eq!(reason.value, Some(value), "every value has its reason");
        }
    }

    #[test]
    fn the_chunk_is_the_shortest_that_is_fast_and_never_takes_too_long() {
        let policy = policy(&[(0, "rep_stosq", 0)]);
        let chunk = |rates: &[(u64, f64)]| {
            let times: Vec<ClearTime> =
                rates.iter().map(|(length, rate)| time("rep_stosq", *length, *rate)).collect();
            Plan::derive(&policy, &times).unwrap().settings.chunk
        };
        let flat = [(MIB, 99.0), (2 * MIB, 9.8), (8 * MIB, 10.0), (64 * MIB, 10.0)];
        assert_eq!(chunk(&flat), Some(2 * MIB));
        assert_eq!(chunk(&[(2 * MIB, 10.0), (8 * MIB, 15.0), (32 * MIB, 20.0)]), Some(32 * MIB));
        // 1 GiB at 36 GB/s takes 30 ms.
        assert_eq!(chunk(&[(2 * MIB, 14.8), (32 * MIB, 22.0), (1024 * MIB, 36.0)]), Some(32 * MIB));
        assert_eq!(chunk(&[(2 * MIB, 0.01), (8 * MIB, 0.02)]), Some(2 * MIB));
        assert_eq!(chunk(&[(MIB, 1.0)]), None);
    }

    #[test]
    fn a_policy_that_was_not_measured_is_refused() {
        let error = Plan::derive(&policy(&[]), &[]).unwrap_err();
        assert!(error.to_string().contains("bulkmem calibrate"), "{error}");
        let error = Plan::derive(&Policy::defaults(Machine::current()), &[]).unwrap_err();
        assert_eq!(error, PlanError::NoRules);
    }
}
