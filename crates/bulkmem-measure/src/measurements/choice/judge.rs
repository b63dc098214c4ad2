//! Judges the policy's rows against those of methods and peers: the best peer, and the regret of the choice.

use std::collections::BTreeMap;

use bulkmem::method::{self, Method};
use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation};

use crate::calibration::derive::{NOISE, allowed_loss};
use crate::engine::stats::{ENOUGH, Stats, geometric_mean, median};
use crate::engine::units::{bytes, plural};
use crate::engine::{Alignment, CacheState, Candidate, Config, Kind, Metric, Row, distinct};

/// Methods of this library that the sources compare with, for an operation. Together with other libraries they are the
/// peers.
pub(super) fn baselines(operation: Operation) -> impl Iterator<Item = Choice> {
    let names: &[&str] = match operation {
        Operation::Clear | Operation::Fill => &["c_library", "rep_stosb", "movnti"],
        Operation::Copy => &["c_library", "rep_movsb", "movnti", "nontemporal_sse2"],
        Operation::FillPersist | Operation::CopyPersist | Operation::Persist => &[],
    };
    names.iter().filter_map(|name| method::by_name(name)).map(move |method| Choice::of(method, operation))
}

/// True for the candidates that "the best peer" means: the C library, libpmem, and the plain methods that the sources
/// compare with.
pub fn is_baseline(candidate: &Candidate, operation: Operation) -> bool {
    candidate.kind == Kind::Peer
        || baselines(operation).any(|baseline| Candidate::method(&baseline) == *candidate)
}

pub(super) fn is_peer(row: &Row) -> bool {
    row.config.operation.is_some_and(|operation| is_baseline(&row.candidate, operation))
}

/// Nanoseconds per operation, by the median; `None` for rows of another metric.
pub(super) fn median_ns(row: &Row) -> Option<f64> {
    (row.metric == Metric::Bandwidth).then_some(row.config.size? as f64 / row.stats.median)
}

pub(super) fn is_choice(row: &Row) -> bool {
    row.candidate.kind == Kind::Policy && row.metric == Metric::Bandwidth
}

/// How many times as fast a row is as a rival in each round. What changes from round to round, such as the clock, or the part of the
/// memory, changes both.
fn ratios(row: &Row, rival: &Row) -> Vec<f64> {
    row.samples.iter().zip(&rival.samples).map(|(own, rival)| own / rival).collect()
}

/// By which factor a row's ratio to a rival, the median of the rounds, may be larger: to the upper end of its 95 % interval. Too few
/// samples do not tell.
fn leeway(row: &Row, rival: &Row) -> f64 {
    let ratios = ratios(row, rival);
    match Stats::of(&ratios) {
        Some(stats) if ratios.len() >= ENOUGH as usize => stats.interval[1] / stats.median,
        _ => f64::INFINITY,
    }
}

/// By which factor the ratio of two rows' medians may be larger: to the end of the 95 % interval of each. Too few samples do not tell.
pub(super) fn leeway_of_medians(row: &Row, rival: &Row) -> f64 {
    if row.samples.len().min(rival.samples.len()) < ENOUGH as usize {
        return f64::INFINITY;
    }
    let [above, below] =
        [row.stats.interval[1] / row.stats.median, rival.stats.median / rival.stats.interval[0]];
    above.ln().hypot(below.ln()).exp()
}

/// False for a rival that was dropped after the first rounds, while the choice was measured further: others were faster in
/// those, and they alone, by luck, may be faster than the median of many. One sample less is no drop: the time was over in the
/// middle of a round.
fn went_on(row: &Row, rival: &Row) -> bool {
    let (own, others) = (row.samples.len(), rival.samples.len());
    others >= ENOUGH as usize || others + 1 >= own
}

/// Adds to the policy's rows how many times as fast the choice is as the best peer (`times_best_peer`), and how much
/// longer it takes than the best method in hindsight, a share (`regret`), over the conditions of these rows. The names
/// begin with `prefix`.
pub(super) fn annotate(rows: &mut [Row], prefix: &str) {
    for whole in overall(&rows.iter().collect::<Vec<_>>()) {
        let judged = [("times_best_peer", whole.times_best_peer), ("regret", whole.regret)];
        for row in rows.iter_mut().filter(|row| is_choice(row) && known(&row.config) == whole.config) {
            let values =
                judged.iter().filter_map(|(name, value)| Some((format!("{prefix}{name}"), (*value)?)));
            row.also.extend(values);
        }
    }
}

/// A configuration over the conditions that were measured and that an operation does not know: it is judged by the
/// geometric mean of the times over all of them. They are the alignment, the state of the source, and below 64 KiB the
/// cache state.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    /// Operation, length, intent, number of threads, and the cache state where it can be observed.
    pub config: Config,
    /// How many conditions.
    pub conditions: usize,
    /// The best peer's time divided by the choice's: above 1 is faster than every peer. `None` without a peer.
    pub times_best_peer: Option<f64>,
    /// That peer.
    pub best_peer: Option<String>,
    /// The choice's time divided by that of the best method in hindsight, minus 1, which noise may make negative: of the methods that
    /// [`derive_policy`](crate::derive_policy) could choose, which lose to the C library in no condition, or little
    /// compared with what they gain in another, and which do not keep the source out of the cache, except with [`Intent::Stream`].
    pub regret: Option<f64>,
    /// That method.
    pub best_method: Option<String>,
    /// The choice's speed divided by that of the best of all methods and peers, and the upper end of its interval.
    pub times_best: Option<[f64; 2]>,
    /// As `regret`, against the best of all methods and peers, beyond the cost of the look at lengths for which that was measured.
    pub regret_of_all: Option<f64>,
    /// The fewest samples of the choice in a condition.
    pub samples: usize,
}

/// From this length on an operation may observe the cache state: see the library's `look`.
pub(super) const OBSERVABLE: u64 = 64 << 10;

/// A configuration without the conditions that an operation does not know.
fn known(config: &Config) -> Config {
    let cache = config.cache.filter(|_| config.size.is_some_and(|size| size >= OBSERVABLE));
    Config { alignment: None, source: None, cache, ..config.clone() }
}

/// Judges rows of choices over all conditions.
pub fn overall(rows: &[&Row]) -> Vec<Overall> {
    let choices = rows.iter().filter(|row| is_choice(row));
    let mut configs: Vec<Config> = distinct(choices.map(|row| known(&row.config)));
    configs
        .sort_by_key(|config| (config.operation, config.size, config.cache, config.intent, config.threads));
    configs.into_iter().filter_map(|config| judge(rows, config)).collect()
}

fn judge(rows: &[&Row], config: Config) -> Option<Overall> {
    let operation = config.operation?;
    let mut candidates: BTreeMap<&Candidate, Times<'_>> = BTreeMap::new();
    for row in rows.iter().filter(|row| known(&row.config) == config) {
        if let Some(ns) = median_ns(row) {
            let times = candidates.entry(&row.candidate).or_default();
            times.insert((row.config.alignment, row.config.cache, row.config.source), (ns, *row));
        }
    }
    let (_, chosen) = candidates.iter().find(|(candidate, _)| candidate.kind == Kind::Policy)?;
    let best = |counts: &dyn Fn(&Candidate, &Times<'_>) -> bool| {
        let able = candidates.iter().filter(|(candidate, _)| candidate.kind != Kind::Policy);
        let able = able.filter(|(candidate, times)| counts(candidate, times));
        best_of(
            able.filter_map(|(candidate, times)| Some((candidate.name.as_str(), pairs(chosen, times)?)))
                .collect(),
        )
    };
    let c_library = candidates.get(&Candidate::method(&Choice::of(method::c_library(), operation)));
    // By the rules of calibration.
    let could_be_chosen = |candidate: &Candidate, times: &Times<'_>| {
        let leaves_source = !method::by_name(&candidate.name).is_some_and(Method::spares_source);
        let gains =
            || times.iter().filter_map(|(condition, (ns, _))| Some((c_library?.get(condition)?.0 / ns).ln()));
        let allowed = allowed_loss(gains()).max(NOISE.ln_1p());
        (leaves_source || config.intent == Some(Intent::Stream)) && gains().all(|gain| gain >= -allowed)
    };
    // The C library is a peer, and a method that could have been chosen as well.
    let peer = |candidate: &Candidate, _: &Times<'_>| is_baseline(candidate, operation);
    let method = |candidate: &Candidate, times: &Times<'_>| {
        candidate.name == method::c_library().name
            || candidate.kind == Kind::Method && could_be_chosen(candidate, times)
    };
    let (best_peer, best_method) = (best(&peer), best(&method));
    let either = best(&|candidate, _| is_baseline(candidate, operation) || candidate.kind == Kind::Method);
    Some(Overall {
        config,
        conditions: chosen.len(),
        times_best_peer: best_peer.as_ref().map(|it| it.times),
        best_peer: best_peer.map(|it| it.name),
        regret: best_method.as_ref().map(Best::regret),
        best_method: best_method.map(|it| it.name),
        times_best: either.as_ref().map(|it| [it.times, it.times * it.leeway]),
        regret_of_all: either.map(|it| Best { times: it.times * beyond_look(chosen), ..it }.regret()),
        samples: chosen.values().map(|(_, row)| row.samples.len()).min().unwrap_or_default(),
    })
}

/// The name under which a row of the choice reports what its looks took per call on average, nanoseconds.
pub(super) const LOOK: &str = "look_ns";

/// How many times as fast the choice would be without its look.
fn beyond_look(chosen: &Times<'_>) -> f64 {
    let factors = chosen.values().map(|(ns, row)| {
        let look = row.also.get(LOOK).copied().unwrap_or_default();
        ns / (ns - look).max(ns / 2.0)
    });
    geometric_mean(factors).unwrap_or(1.0)
}

/// The rows of a candidate with its times, by condition.
type Times<'r> = BTreeMap<(Option<Alignment>, Option<CacheState>, Option<CacheState>), (f64, &'r Row)>;

/// The rows of the choice and of a rival in the same condition.
type Pair<'r> = (&'r Row, &'r Row);

/// Returns the pairs of the choice and a rival; `None` if that was not measured in every condition that the choice was.
fn pairs<'r>(chosen: &Times<'r>, rival: &Times<'r>) -> Option<Vec<Pair<'r>>> {
    let pair = |(condition, (_, own)): (_, &(f64, &'r Row))| {
        let (_, rival) = rival.get(condition).filter(|(_, rival)| went_on(own, rival))?;
        Some((*own, *rival))
    };
    chosen.iter().map(pair).collect()
}

/// The best of some rivals, and how many times as fast the choice is, over all conditions.
struct Best {
    name: String,
    times: f64,
    leeway: f64,
}

impl Best {
    /// How much longer the choice takes, a share: as the choice is one of the methods, only noise makes it faster than the best.
    fn regret(&self) -> f64 {
        let least = if self.leeway.is_finite() { 1.0 / self.leeway } else { 1.0 };
        (1.0 / self.times).max(least) - 1.0
    }
}

/// Fewer samples are not halved.
const FOR_HALVES: usize = 12;

/// Of dozens of candidates that are equally fast, the one whose samples were the fastest was lucky. So each half of the samples
/// selects the best rival, and the other half says how fast that one is (cross-validation). The name is that of the fastest by all.
fn best_of(rivals: Vec<(&str, Vec<Pair<'_>>)>) -> Option<Best> {
    let mean = |pairs: &[Pair<'_>], of: Samples| {
        geometric_mean(pairs.iter().map(|(own, rival)| of.median(&ratios(rival, own))))
    };
    let fastest = |of: Samples| {
        let means = rivals.iter().filter_map(|(name, pairs)| Some((name, pairs, mean(pairs, of)?)));
        means.max_by(|a, b| a.2.total_cmp(&b.2))
    };
    let (name, pairs, lead) = fastest(Samples::All)?;
    let enough = pairs.iter().all(|(own, _)| own.samples.len() >= FOR_HALVES);
    // A single rival is not selected.
    let lead = if enough && rivals.len() > 1 {
        let halves = [(Samples::First, Samples::Second), (Samples::Second, Samples::First)];
        geometric_mean(halves.into_iter().filter_map(|(select, judge)| mean(fastest(select)?.1, judge)))?
    } else {
        lead
    };
    let leeways = pairs.iter().map(|(own, rival)| leeway(own, rival).ln().powi(2));
    let leeway = (leeways.sum::<f64>().sqrt() / pairs.len() as f64).exp();
    Some(Best { name: (*name).to_owned(), times: 1.0 / lead, leeway })
}

/// How many times as fast a row is as the best of some rivals, and the upper end of the interval.
pub(super) fn against_best<'r>(row: &'r Row, rivals: impl Iterator<Item = &'r Row>) -> Option<[f64; 2]> {
    let rivals = rivals.filter(|rival| went_on(row, rival));
    let best = best_of(rivals.map(|rival| (rival.candidate.name.as_str(), vec![(row, rival)])).collect())?;
    Some([best.times, best.times * best.leeway])
}

/// Rounds: all, or one half, which is every other pair, since rounds come in pairs of opposite order.
#[derive(Clone, Copy, PartialEq)]
enum Samples {
    All,
    First,
    Second,
}

impl Samples {
    /// The median of a value of each round.
    fn median(self, rounds: &[f64]) -> f64 {
        match self {
            Samples::All => median(rounds),
            Samples::First | Samples::Second => {
                let pairs = rounds.chunks(2).skip(usize::from(self == Samples::Second)).step_by(2);
                median(&pairs.flatten().copied().collect::<Vec<_>>())
            }
        }
    }
}

/// Summarizes the regret; `None` if no configuration has both the choice and a method.
pub(super) fn regret(overall: &[Overall]) -> Option<String> {
    let regrets: Vec<(f64, &Config)> =
        overall.iter().filter_map(|it| Some((it.regret?, &it.config))).collect();
    let (worst, config) = regrets.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "{}: regret over {}: {:.1} % in the geometric mean, at worst {:.1} % at {}.",
        config.operation?,
        plural(regrets.len(), "configuration"),
        mean_regret(regrets.iter().map(|(regret, _)| *regret))? * 100.0,
        worst * 100.0,
        bytes(config.size?),
    ))
}

/// The geometric mean of choice ÷ best, minus 1.
pub(super) fn mean_regret(regrets: impl Iterator<Item = f64>) -> Option<f64> {
    Some(geometric_mean(regrets.map(|regret| 1.0 + regret))? - 1.0)
}

/// How many lengths [`unmeasured_lengths`] returns, if so many primes lie in the range.
const UNMEASURED: usize = 24;

/// Lengths from `least` to `most` that calibration does not measure: primes in equal steps of the logarithm.
pub(super) fn unmeasured_lengths(least: u64, most: u64) -> Vec<u64> {
    let step = (most.max(least) as f64 / least.max(1) as f64).powf(1.0 / UNMEASURED as f64);
    let middles = (0..UNMEASURED).map(|at| least as f64 * step.powf(at as f64 + 0.5));
    let primes = middles.filter_map(|middle| (middle as u64..=most).find(|length| is_prime(*length)));
    distinct(primes.filter(|prime| *prime >= least))
}

fn is_prime(number: u64) -> bool {
    let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    divisors.all(|divisor| !number.is_multiple_of(divisor))
}

#[cfg(test)]
mod tests {
    use bulkmem::Intent;

    use super::*;
    use crate::engine::{Measurement, testing};

    fn row(kind: Kind, name: &str, cache: CacheState, median_ns: f64) -> Row {
        let config = Config {
            operation: Some(Operation::Clear),
            size: Some(4096),
            threads: Some(1),
            alignment: Some(Alignment::Aligned),
            cache: Some(cache),
            intent: Some(Intent::Throughput),
            ..Config::default()
        };
        let samples = [4096.0 / median_ns; 9];
        testing::row(Measurement::Choice, (kind, name), config, (Metric::Bandwidth, &samples), &[])
    }

    fn cold(kind: Kind, name: &str, median_ns: f64) -> Row {
        row(kind, name, CacheState::Cold, median_ns)
    }

    fn of(rows: &[Row]) -> Vec<Overall> {
        overall(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_rival_counts_unless_it_was_dropped_after_the_first_rounds() {
        let times = |own: usize, rival: usize| {
            let mut rows = [cold(Kind::Policy, "policy", 120.0), cold(Kind::Method, "store_avx", 100.0)];
            rows[0].samples.truncate(own);
            rows[1].samples.truncate(rival);
            of(&rows)[0].regret.is_some()
        };
        assert!(times(4, 3), "the time was over in the middle of a round");
        assert!(times(1, 1) && times(5, 4) && times(9, 5));
        assert!(!times(5, 3) && !times(9, 3));
    }

    #[test]
    fn the_policys_row_has_its_ratio_to_the_best_peer_and_its_regret() {
        let mut rows = [
            cold(Kind::Policy, "policy", 110.0),
            cold(Kind::Read, "read", 50.0),
            cold(Kind::Method, "clzero", 100.0),
            cold(Kind::Method, "movnti", 220.0),
            cold(Kind::Peer, "c_library", 440.0),
        ];
        annotate(&mut rows, "");
        annotate(&mut rows, "overall_");
        let also = &rows[0].also;
        assert!((also["times_best_peer"] - 2.0).abs() < 1e-9, "movnti is the best peer: {also:?}");
        assert!((also["regret"] - 0.1).abs() < 1e-9, "reading is not a method: {also:?}");
        for name in ["times_best_peer", "regret"] {
            assert!((also[name] - also[&format!("overall_{name}")]).abs() < 1e-9, "{also:?}");
        }
        assert!(rows[1..].iter().all(|row| row.also.is_empty()));
        let text =
            "clear: regret over 1 configuration: 10.0 % in the geometric mean, at worst 10.0 % at 4 KiB.";
        assert_eq!(regret(&of(&rows)).unwrap(), text);
    }

    #[test]
    fn the_c_library_counts_in_hindsight_and_the_best_choice_has_no_regret() {
        let regret_of = |own: f64| {
            let mut rows = [cold(Kind::Policy, "policy", own), cold(Kind::Peer, "c_library", 100.0)];
            annotate(&mut rows, "");
            rows[0].also["regret"]
        };
        assert_eq!(regret_of(90.0), 0.0);
        assert!((regret_of(120.0) - 0.2).abs() < 1e-9);
        let mut alone = [cold(Kind::Policy, "policy", 120.0)];
        annotate(&mut alone, "");
        annotate(&mut alone, "overall_");
        assert!(alone[0].also.is_empty());
        assert_eq!(regret(&of(&alone)), None);
    }

    #[test]
    fn a_choice_is_judged_over_all_conditions() {
        let warm = |kind, name, ns| row(kind, name, CacheState::Warm, ns);
        let rows = [
            cold(Kind::Policy, "policy", 100.0),
            warm(Kind::Policy, "policy", 20.0),
            cold(Kind::Peer, "c_library", 100.0),
            warm(Kind::Peer, "c_library", 20.0),
            // Twice as fast cold, but much slower warm: not a better choice, as the condition is not known beforehand.
            cold(Kind::Method, "movnti", 50.0),
            warm(Kind::Method, "movnti", 60.0),
            cold(Kind::Method, "store_avx", 80.0),
            warm(Kind::Method, "store_avx", 20.0),
            // Measured in one condition only: not comparable.
            cold(Kind::Method, "clzero", 1.0),
        ];
        let overall = of(&rows);
        let [whole] = overall.as_slice() else { panic!("{overall:?}") };
        assert_eq!((whole.config.size, whole.config.threads, whole.conditions), (Some(4096), Some(1), 2));
        assert_eq!(whole.best_method.as_deref(), Some("store_avx"));
        assert!((whole.regret.unwrap() - ((100.0f64 / 80.0).sqrt() - 1.0)).abs() < 1e-9);
        assert_eq!(whole.best_peer.as_deref(), Some("c_library"));
        assert!((whole.times_best_peer.unwrap() - 1.0).abs() < 1e-9);
        let long = rows.map(|mut row| {
            row.config.size = Some(OBSERVABLE);
            row
        });
        let states: Vec<_> =
            of(&long).into_iter().map(|whole| (whole.config.cache, whole.conditions)).collect();
        assert_eq!(
            states,
            [(Some(CacheState::Cold), 1), (Some(CacheState::Warm), 1)],
            "it can observe the state"
        );
    }

    #[test]
    fn a_method_that_keeps_the_source_out_of_the_cache_is_a_choice_for_streams_alone() {
        let Some(spares) = method::all().find(|it| it.spares_source()) else { return };
        let regret_of = |intent| {
            let rows = [
                cold(Kind::Policy, "policy", 100.0),
                cold(Kind::Method, "portable", 100.0),
                cold(Kind::Method, spares.name, 50.0),
            ];
            let rows = rows.map(|row| Row { config: Config { intent: Some(intent), ..row.config }, ..row });
            let overall = of(&rows);
            (overall[0].regret.unwrap(), overall[0].regret_of_all.unwrap())
        };
        assert_eq!(regret_of(Intent::Throughput), (0.0, 1.0));
        assert_eq!(regret_of(Intent::Stream), (1.0, 1.0));
    }

    /// Both methods are as fast as the choice; in each half of the samples another one was lucky.
    #[test]
    fn a_lucky_half_of_the_samples_is_no_regret() {
        let mut rows = [
            cold(Kind::Policy, "policy", 100.0),
            cold(Kind::Method, "clzero", 100.0),
            cold(Kind::Method, "movnti", 100.0),
        ];
        for (row, lucky) in rows[1..].iter_mut().zip([0, 1]) {
            row.samples = (0..12).map(|at| if at / 2 % 2 == lucky { 50.0 } else { 40.96 }).collect();
            row.stats = Stats::of(&row.samples).unwrap();
        }
        rows[0].samples = vec![40.96; 12];
        assert!(rows[1].stats.median > rows[0].stats.median, "by the median of all, both are faster");
        assert!(of(&rows)[0].regret.unwrap().abs() < 1e-9);
        let [times, most] = against_best(&rows[0], rows[1..].iter()).unwrap();
        assert!((times - 1.0).abs() < 1e-9 && most >= times, "{times}, {most}");
    }

    /// Memory of two speeds: the median of either row is one of them by chance.
    #[test]
    fn the_samples_of_a_round_are_compared_with_each_other() {
        let speeds = [10.0, 20.0, 10.0, 20.0, 10.0, 20.0, 10.0, 20.0, 10.0, 20.0, 10.0];
        let mut rows = [cold(Kind::Policy, "policy", 1.0), cold(Kind::Peer, "c_library", 1.0)];
        rows[0].samples = speeds.to_vec();
        rows[1].samples = speeds.to_vec();
        rows[1].samples[4] = 20.0;
        rows.iter_mut().for_each(|row| row.stats = Stats::of(&row.samples).unwrap());
        assert_eq!(rows.each_ref().map(|row| row.stats.median), [10.0, 20.0]);
        assert_eq!(of(&rows)[0].times_best, Some([1.0, 1.0]));
        assert_eq!(against_best(&rows[0], [&rows[1]].into_iter()), Some([1.0, 1.0]));
    }

    #[test]
    fn a_method_that_was_dropped_after_the_first_rounds_is_no_rival() {
        let speed_in = |method: f64, rounds: usize| {
            let mut rows = [cold(Kind::Policy, "policy", 100.0), cold(Kind::Method, "clzero", method)];
            rows[1].samples.truncate(rounds);
            let regret = of(&rows)[0].regret;
            let ratio = against_best(&rows[0], [&rows[1]].into_iter()).map(|[ratio, _]| 1.0 / ratio - 1.0);
            assert!(
                regret.zip(ratio).is_none_or(|(a, b)| (a - b).abs() < 1e-9)
                    && regret.is_some() == ratio.is_some()
            );
            regret
        };
        assert!((speed_in(80.0, 9).unwrap() - 0.25).abs() < 1e-9);
        assert!((speed_in(80.0, 5).unwrap() - 0.25).abs() < 1e-9);
        assert_eq!(speed_in(80.0, 4), None);
        let mut few = [cold(Kind::Policy, "policy", 100.0), cold(Kind::Method, "clzero", 80.0)];
        few.iter_mut().for_each(|row| row.samples.truncate(1));
        assert!((of(&few)[0].regret.unwrap() - 0.25).abs() < 1e-9, "nothing was measured further");
    }

    #[test]
    fn baselines_are_libraries_and_plain_methods_with_their_default_parameters() {
        let mut candidate = Candidate::named(Kind::Method, "movnti");
        assert!(
            is_baseline(&candidate, Operation::Clear) && !is_baseline(&candidate, Operation::CopyPersist)
        );
        candidate.parameters.set("write_distance", 64);
        assert!(!is_baseline(&candidate, Operation::Clear));
        assert!(is_baseline(&Candidate::named(Kind::Peer, "libpmem"), Operation::Persist));
        assert!(!is_baseline(&Candidate::named(Kind::Policy, "policy"), Operation::Clear));
    }

    #[test]
    fn unmeasured_lengths_are_not_powers_and_lie_inside() {
        let lengths = unmeasured_lengths(64, 1 << 30);
        assert_eq!(lengths.len(), 24);
        assert!(lengths.iter().all(|length| is_prime(*length) && (64..=1 << 30).contains(length)));
        assert!(lengths.windows(2).all(|pair| pair[0] < pair[1] && pair[1] < 3 * pair[0]));
        assert!(lengths[0] < 100 && lengths[23] > 1 << 29);
        assert!(unmeasured_lengths(100, 100).is_empty());
        assert_eq!(unmeasured_lengths(100, 104), [101, 103]);
    }
}
