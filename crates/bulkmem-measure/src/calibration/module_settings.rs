//! From a profile to the module's parameters.

use serde::Serialize;

use bulkmem::machine::Machine;
use bulkmem::method::{self, CacheEffect};
use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation};
use bulkmem_kmod::{Method, Settings};

use super::{Condition, Cost, Figure, Profile, ProfileError};

/// What the module has at most of one extent between two points at which others may run, where a longer chunk does not
/// pay: a huge page, and the module's own default.
const CHUNK: u64 = 2 << 20;
/// The longest chunk that the module takes.
const LONGEST: u64 = 1 << 30;
/// A chunk lasts no longer, nanoseconds: others wait for the processor meanwhile.
const LONGEST_NS: f64 = 10e6;
/// A longer chunk pays where it is faster by more than this share.
const SAME: f64 = 0.05;
/// What `prefetch_distance` takes.
const DISTANCES: std::ops::RangeInclusive<u64> = 64..=65536;

/// The module's parameters that follow from a profile, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The parameters.
    pub settings: Settings,
    /// What each of them follows from, and what of the profile the module cannot do.
    pub reasons: Vec<Reason>,
}

/// Why a parameter is set, or left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The parameter.
    pub parameter: &'static str,
    /// What it is set to; `None`: it is left as it is.
    pub value: Option<String>,
    /// Why.
    pub why: String,
}

/// Why nothing follows from a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The profile is damaged, or another machine's.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// It does not say how to clear.
    #[error("the profile has no rules for clearing: `bulkmem calibrate` measures it")]
    NoRules,
}

/// A method of the library as the module has it.
struct Mapped {
    method: Method,
    /// The library's method whose figures are its.
    of: Choice,
    /// Whether it is the module's own, too, rather than the nearest to it.
    itself: bool,
    /// For [`Method::Prefetchw`].
    distance: Option<u64>,
    /// What was mapped to what.
    why: String,
}

impl Plan {
    /// What a profile of this machine says of clearing for throughput, in calls of at most a huge page: the method for
    /// the largest extents, the extent from which it is chosen, and the method below that.
    ///
    /// # Errors
    /// Where the profile cannot be used on this machine, or says nothing of clearing.
    pub fn from_profile(profile: &Profile, machine: &Machine) -> Result<Plan, PlanError> {
        let policy = profile.policy(machine)?;
        let of_clearing = profile
            .rules
            .iter()
            .filter(|rule| (rule.operation, rule.intent) == (Operation::Clear, Intent::Throughput));
        let mut steps: Vec<u64> = of_clearing.map(|rule| rule.from).collect();
        if steps.is_empty() {
            return Err(PlanError::NoRules);
        }
        // Extents that no rule tells from larger ones are the largest.
        let largest = steps.last().copied().unwrap_or_default().max(LONGEST);
        let answer = |extent: u64| {
            let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            let choice = policy.choose_part(
                Operation::Clear,
                size(extent.min(CHUNK)),
                size(extent),
                Intent::Throughput,
            );
            choice.unwrap_or_else(|| Choice::of(method::c_library(), Operation::Clear))
        };
        let choice = answer(largest);
        let large = Mapped::of(&choice).or_measured(profile, largest);
        let alike = |extent: u64| {
            let method = Mapped::of(&answer(extent)).method;
            if large.method.caches() { method == Mapped::of(&choice).method } else { !method.caches() }
        };
        // The start of the last run of steps that are alike; the first rule holds from 0 on.
        let mut threshold = steps.pop().unwrap_or_default();
        while let Some(from) = steps.pop().filter(|from| alike(*from)) {
            threshold = from;
        }

        let mut plan = Plan { settings: Settings::default(), reasons: Vec::new() };
        if large.method == Method::Movnti {
            plan.settings.ignore_quirks = Some(true);
            let why = "stores past the cache were measured to be the best here, whatever is published";
            plan.because("ignore_quirks", why);
        }
        plan.chunk(profile, &large.of);
        let small = (threshold > 0).then(|| (CHUNK.min(threshold - 1), answer(CHUNK.min(threshold - 1))));
        let cached = small.map(|(extent, choice)| {
            let mapped = Mapped::of(&choice).or_measured(profile, extent);
            (extent, mapped.cached())
        });
        let distance = large.distance.or(cached.as_ref().and_then(|(_, mapped)| mapped.distance));
        if let Some(distance) = distance {
            plan.settings.prefetch_distance = Some(distance);
            plan.because("prefetch_distance", "as the profile has it for that method");
        }
        plan.settings.threshold = Some(threshold);
        let from = if threshold == 0 { "every extent".to_owned() } else { format!("{threshold} bytes on") };
        plan.because("threshold", format!("from {from} the profile chooses what `method` stands for"));
        match cached {
            Some((extent, mapped)) => {
                plan.settings.cached_method = Some(mapped.method);
                plan.because("cached_method", format!("{} for extents of {extent} bytes", mapped.why));
            }
            None => plan.because("cached_method", "no extent is below the threshold"),
        }
        plan.settings.method = Some(large.method);
        plan.because("method", format!("{} for large extents", large.why));
        Ok(plan)
    }

    fn because(&mut self, parameter: &'static str, why: impl Into<String>) {
        let set = self.settings.values().into_iter().find(|(name, _)| *name == parameter);
        self.reasons.push(Reason { parameter, value: set.map(|(_, value)| value), why: why.into() });
    }

    /// The shortest chunk, from a huge page on, that is about as fast as any, if the profile has figures for it.
    fn chunk(&mut self, profile: &Profile, choice: &Choice) {
        let mut rates: Vec<(u64, f64)> = usual_figures(profile)
            .filter(|figure| figure.method == choice.method.name && figure.parameters == choice.parameters)
            .filter(|figure| (CHUNK..=LONGEST).contains(&figure.length))
            .map(|figure| (figure.length, rate(figure)))
            .collect();
        rates.sort_by_key(|(length, _)| *length);
        let bearable = |&(length, rate): &(u64, f64)| length == CHUNK || length as f64 / rate <= LONGEST_NS;
        rates.retain(bearable);
        let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        match rates.iter().find(|(_, rate)| *rate >= best * (1.0 - SAME)) {
            Some((length, _)) => {
                // The module counts in pages.
                self.settings.chunk = Some(length / 4096 * 4096);
                let why = if *length == rates[0].0 {
                    "no shorter one was, from a huge page on, and longer ones are no faster"
                } else {
                    "shorter ones are slower"
                };
                self.because("chunk", format!("{choice} was measured in calls of this length; {why}"));
            }
            None => self.because(
                "chunk",
                format!("the profile has no figures of {choice} in calls from {CHUNK} bytes that last less than 10 ms"),
            ),
        }
    }
}

/// The figures of clearing alone: aligned, from memory, by one thread.
fn usual_figures(profile: &Profile) -> impl Iterator<Item = &Figure> {
    let usual = Condition { aligned: true, warm: false, threads: 1 };
    profile.figures.iter().filter(move |figure| {
        (figure.operation, figure.cost) == (Operation::Clear, Cost::Throughput)
            && figure.condition == usual
            && figure.median_ns > 0.0
    })
}

/// Bytes a nanosecond.
fn rate(figure: &Figure) -> f64 {
    figure.length as f64 / figure.median_ns
}

impl Mapped {
    /// The same method, or the nearest to it.
    fn of(choice: &Choice) -> Mapped {
        let name = choice.method.name;
        let distance = u64::from(choice.parameters.write_distance);
        let (method, itself) = match (name, choice.method.effect) {
            // The string instruction that the module has.
            ("rep_stosb" | "rep_stosq", _) => (Method::RepStosb, true),
            ("movnti", _) => (Method::Movnti, true),
            ("clzero", _) => (Method::Clzero, true),
            (_, CacheEffect::Bypasses) => (Method::Movnti, false),
            // Plain stores of whatever width; the module's are of 8 bytes.
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
        Mapped { method, of: *choice, itself, distance, why }
    }

    /// Where the module lacks the method: of those it has that treat the cache alike, the one that the profile measured to
    /// be the fastest at about this length, if it measured any.
    fn or_measured(self, profile: &Profile, extent: u64) -> Mapped {
        if self.itself {
            return self;
        }
        let near = |length: u64| length >= extent / 2 && length / 2 <= extent;
        let own = usual_figures(profile).filter(|figure| near(figure.length)).filter_map(|figure| {
            let method = method::by_name(&figure.method)?;
            let mapped = Mapped::of(&Choice { method, parameters: figure.parameters });
            (mapped.itself && mapped.method.caches() == self.method.caches()).then_some((figure, mapped))
        });
        match own.max_by(|(one, _), (other, _)| rate(one).total_cmp(&rate(other))) {
            Some((figure, own)) => {
                let (chosen, like, length) = (self.of, own.of, figure.length);
                let measured = format!("{like} was measured the fastest at {length} bytes,");
                let why = format!(
                    "the profile chooses {chosen}, which the module lacks; of what it has that treats the cache alike, \
                     {measured} mapped to {},",
                    own.method
                );
                Mapped { why, ..own }
            }
            None => self,
        }
    }

    /// The same as `cached_method` takes it.
    fn cached(self) -> Mapped {
        if self.method.caches() {
            return self;
        }
        let why = format!("{} which does not cache: stock", self.why);
        Mapped { method: Method::Stock, distance: None, why, ..self }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use bulkmem::machine::Features;
    use bulkmem::method::Parameters;

    use crate::Provenance;
    use crate::calibration::{Coverage, FORMAT, Mode, Rule, VERSION};

    /// A machine that has every instruction.
    fn machine() -> Machine {
        Machine { features: Features::all(), ..Machine::current().clone() }
    }

    /// A profile with these rules for clearing: from, method, write distance.
    fn profile(rules: &[(u64, &str, u32)]) -> Profile {
        let rule = |&(from, method, write_distance): &(u64, &str, u32)| Rule {
            operation: Operation::Clear,
            intent: Intent::Throughput,
            from,
            method: method.to_owned(),
            parameters: Parameters {
                write_distance,
                ..method::by_name(method).unwrap().default_parameters(Operation::Clear)
            },
            reason: String::new(),
        };
        Profile {
            format: FORMAT.into(),
            version: VERSION,
            provenance: Provenance {
                cpu: machine().cpu,
                microcode: String::new(),
                caches: [0; 3],
                processors: 1,
                kernel: String::new(),
                page_size: 4096,
                backing_page_size: 4096,
                date: String::new(),
                bulkmem: String::new(),
                commit: String::new(),
                seconds: 1.0,
                samples: 1,
                ..Provenance::default()
            },
            coverage: Coverage { mode: Mode::Quick, complete: true, operations: Vec::new() },
            durability: None,
            rules: rules.iter().map(rule).collect(),
            threads: Vec::new(),
            figures: Vec::new(),
        }
    }

    fn figure(method: &str, length: u64, gb_per_s: f64) -> Figure {
        let median_ns = length as f64 / gb_per_s;
        Figure {
            operation: Operation::Clear,
            cost: Cost::Throughput,
            method: method.to_owned(),
            parameters: Parameters::default(),
            length,
            condition: Condition { aligned: true, warm: false, threads: 1 },
            median_ns,
            quartiles_ns: [median_ns; 2],
            samples: 5,
            disturbance_ns: None,
        }
    }

    fn settings(rules: &[(u64, &str, u32)]) -> Settings {
        Plan::from_profile(&profile(rules), &machine()).unwrap().settings
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_threshold_is_where_stores_past_the_cache_begin() {
        let found = settings(&[(0, "c_library", 0), (64 << 10, "rep_stosb", 0), (24 * MIB, "clzero", 0)]);
        let expected = Settings {
            threshold: Some(24 * MIB),
            cached_method: Some(Method::RepStosb),
            method: Some(Method::Clzero),
            ..Settings::default()
        };
        assert_eq!(found, expected);
        // Another such method before it counts as well; one that caches between them does not.
        let rules = [
            (0, "rep_stosb", 0),
            (MIB, "movnti", 0),
            (4 * MIB, "rep_stosb", 0),
            (8 * MIB, "nontemporal_avx512", 0),
            (32 * MIB, "clzero", 0),
        ];
        let found = settings(&rules);
        // REP STOSB for 4 MiB is not for calls of 2 MiB: there, what is below it serves.
        assert_eq!((found.threshold, found.method), (Some(MIB), Some(Method::Clzero)));
        assert_eq!(found.cached_method, Some(Method::RepStosb));
    }

    #[test]
    fn movnti_overrules_what_is_published() {
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
    fn what_the_module_lacks_is_the_best_that_was_measured_of_what_it_has() {
        let mut profile = profile(&[(0, "c_library", 0), (4 * MIB, "nontemporal_avx512", 0)]);
        profile.figures = vec![
            figure("nontemporal_avx512", 1024 * MIB, 88.0),
            figure("clzero", 1024 * MIB, 79.0),
            figure("movnti", 1024 * MIB, 40.0),
            figure("rep_stosb", 1024 * MIB, 84.0),
            figure("rep_stosq", 2 * MIB, 33.0),
            figure("store_8", 2 * MIB, 34.0),
            figure("movnti", 2 * MIB, 40.0),
        ];
        let plan = Plan::from_profile(&profile, &machine()).unwrap();
        // REP STOSB is faster than CLZERO there, but would fill the cache.
        assert_eq!((plan.settings.method, plan.settings.ignore_quirks), (Some(Method::Clzero), None));
        assert_eq!(plan.settings.cached_method, Some(Method::RepStosb));
        let why = |parameter| plan.reasons.iter().find(|it| it.parameter == parameter).unwrap().why.clone();
        for word in [
            "nontemporal_avx512, which the module lacks",
            "clzero was measured the fastest",
            "mapped to clzero",
        ] {
            assert!(why("method").contains(word), "{word}: {plan:?}");
        }
        // Figures of other lengths say nothing.
        profile.figures.retain(|figure| figure.length > 2 * MIB && figure.method != "clzero");
        let plan = Plan::from_profile(&profile, &machine()).unwrap();
        assert_eq!(
            (plan.settings.method, plan.settings.cached_method),
            (Some(Method::Movnti), Some(Method::Stock))
        );
    }

    #[test]
    fn what_the_module_lacks_is_stock_and_said() {
        let plan = Plan::from_profile(&profile(&[(0, "portable", 0)]), &machine()).unwrap();
        assert_eq!((plan.settings.method, plan.settings.threshold), (Some(Method::Stock), Some(0)));
        assert_eq!(plan.settings.cached_method, None);
        let why = |parameter| plan.reasons.iter().find(|it| it.parameter == parameter).unwrap().why.clone();
        assert!(why("method").contains("portable, mapped to stock, as the module has nothing"), "{plan:?}");
        assert!(why("cached_method").contains("no extent is below"), "{plan:?}");
        for set in plan.settings.values() {
            let reason = plan.reasons.iter().find(|reason| reason.parameter == set.0).unwrap();
            assert_eq!(reason.value.as_ref(), Some(&set.1), "every value has its reason");
        }
    }

    #[test]
    fn chunks_are_as_short_as_they_can_be_and_never_too_long() {
        let chunk = |rates: &[(u64, f64)]| {
            let mut profile = profile(&[(0, "rep_stosq", 0)]);
            profile.figures =
                rates.iter().map(|(length, rate)| figure("rep_stosq", *length, *rate)).collect();
            Plan::from_profile(&profile, &machine()).unwrap().settings.chunk
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
    fn other_machines_profiles_and_empty_ones_are_refused() {
        let mut foreign = profile(&[(0, "rep_stosb", 0)]);
        foreign.provenance.cpu.model += 1;
        let error = Plan::from_profile(&foreign, &machine()).unwrap_err();
        assert!(matches!(error, PlanError::Profile(ProfileError::ForeignCpu { .. })), "{error}");
        let error = Plan::from_profile(&profile(&[]), &machine()).unwrap_err();
        assert!(error.to_string().contains("bulkmem calibrate"), "{error}");
    }
}
