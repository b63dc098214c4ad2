//! The project's performance targets, checked on this machine: each is a comparison and a judgement of its rows.
//!
//! Everything is judged by ratios within one run; nothing is compared with a stored figure.

use std::collections::BTreeSet;
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::method::{self, CacheEffect};
use bulkmem::{Intent, Operation, Pages};

use crate::calibration::plan;
use crate::engine::implementation::POPULATING;
use crate::engine::options::{check_budget, require};
use crate::engine::stats::{ENOUGH, geometric_mean};
use crate::engine::units::{bytes, plural};
use crate::engine::{
    Alignment, Bound, CacheState, Check, Config, Kind, Measure, MeasureError, Measurement, MethodSet,
    PageSize, Peers, Result, Row, Run, Unit,
};
use crate::measurements::choice::choosing::{LENGTH, overhead_ns};
use crate::measurements::choice::judge::{
    OBSERVABLE, Overall, against_best, is_choice, is_peer, leeway_of_medians, mean_regret, overall,
    unmeasured_lengths,
};
use crate::measurements::choice::{ChoiceOptions, OPERATION_NS, repeated};

/// How to check the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetsOptions {
    /// How long it may take.
    pub budget: Duration,
    /// The largest length, bytes, at least 256. Targets for larger ones are not checked.
    pub max_length: u64,
}

/// Comparisons, and the targets that are judged by their rows.
struct Part {
    comparisons: Vec<ChoiceOptions>,
    judge: fn(&[&Row]) -> Vec<Check>,
    /// Its share of the time.
    weight: f64,
}

/// The share of the time of calls on the same memory.
const REPEATED_WEIGHT: f64 = 0.3;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Measure for TargetsOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Targets
    }

    fn validate(&self) -> Result<()> {
        let reason = "less than 256 bytes leaves nothing to check; give more";
        require(self.max_length >= 256, "--max-size", reason)?;
        check_budget(self.budget)
    }

    fn seconds(&self) -> f64 {
        self.budget.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let parts = parts(self.max_length);
        let end = run.elapsed() + self.budget;
        let mut left = parts.iter().map(|part| part.weight).sum::<f64>() + REPEATED_WEIGHT;
        let mut hurried = 0;
        for part in &parts {
            let first_row = run.results.rows.len();
            let weight = part.weight / part.comparisons.len() as f64;
            for comparison in &part.comparisons {
                if run.stopped() {
                    break;
                }
                let now = run.elapsed();
                let until = plan::after_share(weight / left, now, end).max(now + Duration::from_millis(200));
                match comparison.measure_until(run, until) {
                    // Too many notes for here; the last one sums them up.
                    Ok(notes) => hurried += usize::from(!notes.is_empty()),
                    Err(error @ MeasureError::Memory { .. }) => run.note(error.to_string()),
                    Err(error) => return Err(error),
                }
                left = (left - weight).max(f64::MIN_POSITIVE);
            }
            judge(run, first_row, part.judge);
        }
        let first_row = run.results.rows.len();
        repeated::measure(run, self.max_length, end.max(run.elapsed() + Duration::from_secs(1)))?;
        judge(run, first_row, the_same_memory);
        if run.rows().next().is_none() {
            return Err(MeasureError::Interrupted);
        }
        if hurried > 0 {
            let seconds = self.budget.as_secs_f64();
            run.note(format!(
                "in {hurried} of the comparisons there was no time for everything: give more than {seconds:.0} s"
            ));
        }
        Ok(())
    }
}

/// Judges the rows from the first one on.
fn judge(run: &mut Run<'_>, first_row: usize, by: fn(&[&Row]) -> Vec<Check>) {
    let rows: Vec<&Row> = run.results.rows[first_row..].iter().collect();
    for check in by(&rows) {
        run.add_check(text(&check), check);
    }
}

/// The lengths that the regret is about.
fn between_lengths() -> Vec<u64> {
    unmeasured_lengths(OBSERVABLE, 3 * GIB / 2)
}

/// The measurements for one target.
fn parts(max_length: u64) -> Vec<Part> {
    let compare = |operation, lengths: &[u64], methods: &[&str]| ChoiceOptions {
        sizes: lengths.iter().copied().filter(|length| *length <= max_length).collect(),
        methods: MethodSet::Named(methods.iter().map(|name| (*name).to_owned()).collect()),
        caches: vec![CacheState::Cold],
        ..ChoiceOptions::new(operation)
    };
    let operations = Operation::ALL.into_iter().filter(|operation| *operation != Operation::Persist);
    let every = |comparison: ChoiceOptions| ChoiceOptions {
        caches: vec![CacheState::Cold, CacheState::Warm, CacheState::Fresh],
        alignments: vec![Alignment::Aligned, Alignment::Unaligned],
        // An operation knows neither.
        sources: match comparison.operation {
            Operation::Copy => vec![CacheState::Cold, CacheState::Warm],
            _ => Vec::new(),
        },
        ..comparison
    };
    let lengths = [200, KIB, 5000, 32 * KIB, 64 * KIB, 256 * KIB, 512 * KIB, 8 * MIB, 512 * MIB];
    let usual = operations.clone().map(|operation| ChoiceOptions {
        methods: MethodSet::All,
        ..every(compare(operation, &lengths, &[]))
    });
    let between = operations.clone().map(|operation| {
        every(ChoiceOptions {
            sizes: between_lengths().into_iter().filter(|length| *length <= max_length).collect(),
            ..ChoiceOptions::new(operation)
        })
    });
    // Every third of them, in each state that a program's memory can have in base pages, too.
    let in_base_pages = operations.map(|operation| ChoiceOptions {
        sizes: between_lengths().into_iter().step_by(3).filter(|length| *length <= max_length).collect(),
        caches: vec![CacheState::Cold, CacheState::Warm],
        page_size: Some(PageSize(Pages::Base)),
        ..ChoiceOptions::new(operation)
    });
    let lengths = [64, 128, 256, 512, 4 * KIB, 64 * KIB];
    let persists = compare(Operation::CopyPersist, &lengths, &[]);
    let processors = Machine::current().processors;
    let several = [Operation::Clear, Operation::Fill, Operation::Copy].map(|operation| ChoiceOptions {
        threads: vec![processors],
        ..compare(operation, &[64 * MIB, 256 * MIB, GIB], &[])
    });
    let several = if processors < 2 { Vec::new() } else { several.to_vec() };
    let streams = [Operation::Clear, Operation::Copy].map(|operation| ChoiceOptions {
        intents: vec![Intent::Stream],
        methods: MethodSet::All,
        peers: Peers::None,
        ..compare(operation, &[MIB, 16 * MIB, 256 * MIB], &[])
    });
    let choosing =
        ChoiceOptions { caches: vec![CacheState::Warm], ..compare(Operation::Clear, &[4 * KIB], &[]) };
    let part = |mut comparisons: Vec<ChoiceOptions>, judge, weight| {
        // A part whose every length is too large has nothing to compare; its judge reports that.
        comparisons.retain(|comparison| !comparison.sizes.is_empty());
        Part { comparisons, judge, weight }
    };
    vec![
        part(usual.chain(between).collect(), every_state, 8.0),
        part(in_base_pages.collect(), base_pages, 1.5),
        part(vec![persists], persist, 1.0),
        part(several, threads, 1.5),
        part(streams.into(), stream, 2.0),
        part(vec![choosing], cost_of_choosing, 0.3),
    ]
}

fn text(check: &Check) -> String {
    let Check { what, bound, unit, note, .. } = check;
    let Some(measured) = check.measured else { return format!("{what}: {note}.") };
    let (measured, bound) = (unit.text(measured), bound.text(*unit));
    let met = match check.met {
        Some(true) => "met",
        Some(false) => "not met",
        None => "not decided",
    };
    format!("{what}: {measured} measured at worst ({note}), {bound} wanted: {met}.")
}

/// A measured value, the upper end of its 95 % interval where that was computed, and its configuration.
type Value = (f64, f64, String);

/// The speed in relation to the best of all methods and peers.
fn times_best(whole: &Overall) -> Option<Value> {
    let [ratio, most] = whole.times_best?;
    Some((ratio, most, format!("{}, {}", work(&whole.config), whole.config.states())))
}

/// Those that were sampled enough, with the regret against all: the best of a dozen candidates with a sample or two each is the luckiest one.
fn regrets<'w>(wholes: impl Iterator<Item = &'w Overall>) -> Vec<(&'w Overall, f64)> {
    let sampled = wholes.filter(|whole| whole.samples >= ENOUGH as usize);
    sampled.filter_map(|it| Some((it, it.regret_of_all?))).collect()
}

fn base_pages(rows: &[&Row]) -> Vec<Check> {
    let wholes = overall(rows);
    let regrets = regrets(wholes.iter());
    let mean = mean_regret(regrets.iter().map(|it| it.1)).map(|mean| {
        let text = format!("{} with {ENOUGH} samples or more", plural(regrets.len(), "configuration"));
        (mean, mean, text)
    });
    let long = wholes.iter().filter(|it| it.config.size.is_some_and(|size| size >= 512 * KIB));
    let what = "base pages, cold or warm: × the best of all methods and peers, from 512 KiB";
    let regret =
        "base pages, cold or warm: regret from 64 KiB, up to 512 KiB beyond the look, geometric mean";
    vec![
        at_least(0.97, what, long.filter_map(times_best)),
        check(Bound::AtMost(0.015), Unit::Share, regret, mean),
    ]
}

fn every_state(rows: &[&Row]) -> Vec<Check> {
    let wholes = overall(rows);
    let ranges = [
        (0.97, 512 * KIB..u64::MAX, "from 512 KiB"),
        (0.92, 256 * KIB..512 * KIB, "256 to 512 KiB"),
        (0.75, OBSERVABLE..256 * KIB, "64 to 256 KiB"),
    ];
    let by_length = |name: &str, counts: fn(CacheState) -> bool| {
        ranges.clone().map(|(bound, lengths, range)| {
            let what = format!("each operation, {name}, × the best of all methods and peers: {range}");
            let inside = |it: &&Overall| {
                it.config.size.is_some_and(|size| lengths.contains(&size))
                    && it.config.cache.is_some_and(counts)
            };
            at_least(bound, &what, wholes.iter().filter(inside).filter_map(times_best))
        })
    };
    let between = between_lengths();
    let between: Vec<&Overall> =
        wholes.iter().filter(|it| it.config.size.is_some_and(|size| between.contains(&size))).collect();
    let regrets = regrets(between.iter().copied());
    let each = regrets.iter().filter_map(|&(whole, regret)| {
        let (ratio, most, configuration) = times_best(whole)?;
        let least = if most.is_finite() { (1.0 + regret) * ratio / most - 1.0 } else { f64::NEG_INFINITY };
        Some((regret, least, configuration))
    });
    let mean = mean_regret(regrets.iter().map(|it| it.1)).map(|mean| {
        let all: Vec<f64> = between.iter().filter_map(|it| it.regret_of_all).collect();
        let text = format!(
            "{} with {ENOUGH} samples or more; {:.1} % over all {}",
            plural(regrets.len(), "configuration"),
            mean_regret(all.iter().copied()).unwrap_or(mean) * 100.0,
            all.len()
        );
        (mean, mean, text)
    });
    let below =
        versus(rows, |row| is_c_library(row) && row.config.size.is_some_and(|size| size < OBSERVABLE));
    let others = [
        at_least(0.97, "each operation below 64 KiB: × the C library", below),
        at_least(1.3, "geometric mean from 64 KiB: × the best peer of each operation", gain(rows)),
        check(
            Bound::AtMost(0.015),
            Unit::Share,
            "regret from 64 KiB, up to 512 KiB beyond the look, at lengths that calibration does not measure, geometric mean",
            mean,
        ),
        check(Bound::AtMost(0.05), Unit::Share, "the same regret in each configuration", each),
    ];
    let populates = |row: &Row| row.candidate.name == POPULATING;
    let populating = ratios(rows, populates, |row| !populates(row));
    let populating =
        at_least(1.0, "fresh base pages, with the option populate: × the best of all without", populating);
    let known = by_length("cold or warm", |cache| cache != CacheState::Fresh);
    let fresh = by_length("fresh", |cache| cache == CacheState::Fresh);
    known.into_iter().chain(fresh).chain(others).chain([populating]).collect()
}

/// The geometric mean, over operations, of how many times as fast as one peer the choice is, over all configurations: the
/// peer that is the fastest on the whole. Also that of the best of all methods and peers in hindsight.
fn gain(rows: &[&Row]) -> Option<Value> {
    let long = |row: &&&Row| row.config.size.is_some_and(|size| size >= OBSERVABLE);
    let rows: Vec<&Row> = rows.iter().filter(long).copied().collect();
    let wholes = overall(&rows);
    let of = |operation: Operation| {
        let own: Vec<&Row> =
            rows.iter().copied().filter(|row| row.config.operation == Some(operation)).collect();
        let names: BTreeSet<&str> =
            own.iter().filter(|row| is_peer(row)).map(|row| row.candidate.name.as_str()).collect();
        let times = names.into_iter().filter_map(|name| {
            geometric_mean(versus(&own, |row| row.candidate.name == name).into_iter().map(|it| it.0))
        });
        let times = times.min_by(f64::total_cmp)?;
        let wholes = wholes.iter().filter(|whole| whole.config.operation == Some(operation));
        let best = geometric_mean(wholes.filter_map(|whole| whole.times_best.map(|[ratio, _]| 1.0 / ratio)))?;
        Some((operation, times, times * best))
    };
    let each: Vec<(Operation, f64, f64)> = Operation::ALL.into_iter().filter_map(of).collect();
    let text: Vec<String> =
        each.iter().map(|(operation, times, _)| format!("{operation} {times:.2}")).collect();
    let mean = geometric_mean(each.iter().map(|(_, times, _)| *times))?;
    let best = geometric_mean(each.iter().map(|(_, _, best)| *best))?;
    Some((mean, mean, format!("{}; {best:.2} by the best in hindsight", text.join(", "))))
}

fn persist(rows: &[&Row]) -> Vec<Check> {
    let targets = [(1.3, 64..129, "64 and 128 B"), (1.0, 129..(64 << 10) + 1, "256 B to 64 KiB")];
    let checks = targets.map(|(bound, lengths, name)| {
        let libpmem = versus(rows, |row| {
            row.candidate.kind == Kind::Peer
                && row.candidate.name == "libpmem"
                && row.config.size.is_some_and(|size| lengths.contains(&size))
        });
        at_least(bound, &format!("copy_persist, random places, {name}: × libpmem"), libpmem)
    });
    checks.into()
}

fn threads(rows: &[&Row]) -> Vec<Check> {
    let what = "all processors, from 64 MiB: × the best peer with as many threads";
    vec![at_least(0.97, what, versus(rows, is_peer))]
}

fn stream(rows: &[&Row]) -> Vec<Check> {
    let disturbance = |row: &Row| row.also.get("disturbance_ns").copied();
    let own = |row: &Row| row.also.get(OPERATION_NS).copied().unwrap_or(f64::NAN);
    let pairs = rows.iter().filter(|row| is_choice(row)).filter_map(|row| {
        let rivals = rows.iter().filter(|rival| bypasses(rival) && rival.config == row.config);
        Some((row, rivals.min_by(|a, b| own(a).total_cmp(&own(b)))?))
    });
    let speeds = pairs.clone().map(|(row, best)| {
        // Of the operation alone, only the median is known.
        let ratio = own(best) / own(row);
        (ratio, ratio * leeway_of_medians(row, best), describe(row))
    });
    // As a share of the operation's time, so that noise on a long operation does not count as much.
    let disturbances = pairs.filter_map(|(row, best)| {
        let more = (disturbance(row)? - disturbance(best)?) / own(best);
        Some((more, more, describe(row)))
    });
    let what = "intent stream: disturbance of a neighbour beyond that method's, as a share of its time";
    vec![
        at_least(0.97, "intent stream: × the fastest non-caching method", speeds),
        check(Bound::AtMost(0.03), Unit::Share, what, disturbances),
    ]
}

fn cost_of_choosing(rows: &[&Row]) -> Vec<Check> {
    let value = overhead_ns(rows).map(|overhead| (overhead, overhead, bytes(LENGTH as u64)));
    let what = "cost of choosing over the chosen method called directly, at 4 KiB";
    vec![check(Bound::AtMost(3.0), Unit::Nanoseconds, what, value)]
}

fn the_same_memory(rows: &[&Row]) -> Vec<Check> {
    let what = "the same memory again and again, from 64 KiB to the second-level cache: × the C library";
    vec![at_least(0.9, what, versus(rows, is_c_library))]
}

fn is_c_library(row: &Row) -> bool {
    row.candidate.name == method::c_library().name
}

fn bypasses(row: &Row) -> bool {
    let method = || method::by_name(&row.candidate.name);
    row.candidate.kind == Kind::Method && method().is_some_and(|it| it.effect == CacheEffect::Bypasses)
}

/// How many times as fast as the best of some rivals the choice is, by configuration.
fn versus(rows: &[&Row], rival: impl Fn(&Row) -> bool) -> Vec<Value> {
    ratios(rows, is_choice, rival)
}

/// How many times as fast as the best of some rivals some rows are.
fn ratios(rows: &[&Row], own: impl Fn(&Row) -> bool, rival: impl Fn(&Row) -> bool) -> Vec<Value> {
    let values = rows.iter().filter(|row| own(row)).filter_map(|row| {
        let same = |other: &&&Row| other.config == row.config && other.metric == row.metric;
        let rivals = rows.iter().filter(same).filter(|other| rival(other));
        let [ratio, most] = against_best(row, rivals.copied())?;
        Some((ratio, most, describe(row)))
    });
    values.collect()
}

/// The operation and its length.
fn work(config: &Config) -> String {
    let operation = config.operation.map_or("", |operation| operation.name());
    format!("{operation} of {}", bytes(config.size.unwrap_or_default()))
}

fn describe(row: &Row) -> String {
    let aligned = if row.config.alignment == Some(Alignment::Unaligned) { "unaligned" } else { "aligned" };
    format!("{}, {aligned}, {}", work(&row.config), row.config.states())
}

fn at_least(bound: f64, what: &str, values: impl IntoIterator<Item = Value>) -> Check {
    check(Bound::AtLeast(bound), Unit::Ratio, what, values)
}

/// An interval whose better end is further than this from its value does not decide.
const DECIDING: f64 = 1.1;

/// Judges values. A target is missed if the whole interval of one misses it: of hundreds of configurations, some miss it by
/// chance. It is not decided if an interval is too wide.
fn check(bound: Bound, unit: Unit, what: &str, values: impl IntoIterator<Item = Value>) -> Check {
    let meets = |value: f64| match bound {
        Bound::AtLeast(bound) => value >= bound,
        Bound::AtMost(bound) => value <= bound,
    };
    let margin = |value: f64| match bound {
        Bound::AtLeast(bound) => value - bound,
        Bound::AtMost(bound) => bound - value,
    };
    let values: Vec<Value> = values.into_iter().collect();
    let missed = values.iter().filter(|(value, most, _)| !meets(*value) && !meets(*most)).count();
    let wide = |value: f64, most: f64| match bound {
        Bound::AtLeast(_) => most > DECIDING * value,
        Bound::AtMost(_) => value > DECIDING * (1.0 + most) - 1.0,
    };
    let undecided = |(value, most, _): &&Value| !meets(*value) && meets(*most) && wide(*value, *most);
    let undecided = values.iter().filter(undecided).count();
    let Some((measured, most, configuration)) =
        values.iter().min_by(|a, b| margin(a.0).total_cmp(&margin(b.0)))
    else {
        let note = "not measured: no such length, peer or processor in this run".to_owned();
        return Check { what: what.to_owned(), bound, unit, measured: None, met: None, note };
    };
    let mut note = configuration.clone();
    if most != measured && most.is_finite() {
        let to = if most > measured { "up to" } else { "down to" };
        note += &format!(", {to} {}", unit.text(*most));
    }
    for (count, verb) in [(missed, "miss it"), (undecided, "vary too much to tell")] {
        if count > 0 && values.len() > 1 {
            note += &format!("; {count} of {} {verb}", plural(values.len(), "configuration"));
        }
    }
    let met = (missed > 0 || undecided == 0).then_some(missed == 0);
    Check { what: what.to_owned(), bound, unit, measured: Some(*measured), met, note }
}

#[cfg(test)]
mod tests;
