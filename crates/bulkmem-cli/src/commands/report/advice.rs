//! Three sentences of advice, from the figures of the opening and of the profile.

use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Condition, Cost, Figure, Profile};
use bulkmem_measure::engine::CacheState;
use bulkmem_measure::stats::geometric_mean;

use super::answers::{Answer, WORTH, c_function, choice};
use super::labels::list;
use crate::figures::{self, Series, rule_at};
use crate::output::{digits, exact_size};
use crate::results::{group, word};

/// Shorter operations gain little, and parts of this length are the example.
const PART: u64 = 64 << 10;
/// So many ways to gain more are named.
const WAYS: usize = 2;

/// Returns where bulkmem gains most, where it gains nothing, and what to write to gain more.
pub(super) fn of(answers: &[Answer], profile: Option<&Profile>) -> [String; 3] {
    let mut gains: Vec<(f64, &Answer)> =
        answers.iter().filter_map(|it| Some((it.times_c_library()?, it))).collect();
    gains.sort_by(|a, b| b.0.total_cmp(&a.0));
    [most(&gains), even(&gains), more(profile)]
}

fn name(answer: &Answer) -> String {
    format!("a {} {} of {}", word(&answer.state), answer.operation, exact_size(answer.length))
}

fn most(gains: &[(f64, &Answer)]) -> String {
    let Some((times, best)) = gains.first() else {
        return "The C library was not measured, so that gains are unknown.".to_owned();
    };
    let gains: Vec<String> = best.gains().collect();
    let figures =
        format!("{} at {} GB/s, {}", best.short_method(), digits(best.gb_per_s), gains.join(" and "));
    if *times < WORTH {
        return format!("bulkmem gains less than 5 % everywhere; most for {} ({figures}).", name(best));
    }
    format!("bulkmem gains most for {}: {figures}.", name(best))
}

/// Returns for which lengths the C library is as good, or better.
fn even(gains: &[(f64, &Answer)]) -> String {
    let within = |from: f64, to: f64| {
        let answers = gains.iter().filter(|(times, _)| (from..to).contains(times)).map(|(_, it)| *it);
        let mut answers: Vec<&Answer> = answers.collect();
        answers.sort_by_key(|it| (it.operation, it.state, it.length));
        answers
    };
    let places = |answers: &[&Answer]| {
        let groups = group(answers.iter().copied(), |it| (it.operation, it.state)).into_iter();
        let places = groups.map(|((operation, state), answers)| {
            let of_group = |it: &&(f64, &Answer)| (it.1.operation, it.1.state) == (operation, state);
            let state = word(&state);
            if gains.iter().filter(of_group).count() == answers.len() {
                return format!("every {state} {operation}");
            }
            let lengths: Vec<String> = answers.iter().map(|it| exact_size(it.length)).collect();
            format!("{state} {operation} of {}", list(&lengths))
        });
        places.collect::<Vec<_>>().join(", ")
    };
    let (slower, even) = (within(0.0, 1.0 / WORTH), within(1.0 / WORTH, WORTH));
    let functions = group(even.iter().filter_map(|it| c_function(it.operation)), |it| *it);
    let functions: Vec<String> = functions.into_iter().map(|(name, _)| name.to_owned()).collect();
    let but = match slower.len() {
        0 => String::new(),
        _ => format!("; it is slower at {}", places(&slower)),
    };
    match (gains.last(), even.is_empty()) {
        (None, _) => "Measure the C library, too: bulkmem calibrate does.".to_owned(),
        (Some((least, at)), true) if slower.is_empty() => {
            format!("It gains everywhere, least for {}: {} times.", name(at), digits(*least))
        }
        (_, true) => format!("It gains at least 5 % elsewhere{but}."),
        _ => format!(
            "In {} of {} cases it gains less than 5 %, and plain {} will do: {}{but}.",
            even.len(),
            gains.len(),
            functions.join(" or "),
            places(&even)
        ),
    }
}

/// Returns what to write to gain more, by the largest gains that calibration measured.
fn more(profile: Option<&Profile>) -> String {
    let Some(profile) = profile else {
        return "Run bulkmem calibrate to find out what threads, intents and the total length add."
            .to_owned();
    };
    let each = Operation::ALL.into_iter();
    let best = |ways: Vec<(f64, String)>| ways.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let mut ways: Vec<(f64, String)> = [
        best(each.clone().filter_map(|it| threads(profile, it)).collect()),
        best(each.clone().filter_map(|it| intent(profile, it, Intent::Stream)).collect()),
        best(each.clone().filter_map(|it| intent(profile, it, Intent::Reuse)).collect()),
        best(each.filter_map(|it| total_len(profile, it)).collect()),
    ]
    .into_iter()
    .flatten()
    .filter(|(times, _)| *times >= WORTH)
    .collect();
    ways.sort_by(|a, b| b.0.total_cmp(&a.0));
    ways.truncate(WAYS);
    if ways.is_empty() {
        return "Nothing that calibration measured gains 5 % more: the plain functions are enough."
            .to_owned();
    }
    let ways: Vec<String> =
        ways.into_iter().map(|(times, text)| format!("{text} {} times as fast", digits(times))).collect();
    format!("To get more, write Options::new(){}.", ways.join("; or "))
}

/// Returns the figures of an operation in aligned cold memory.
fn series(profile: &Profile, operation: Operation, cost: Cost, threads: usize) -> Option<Series<'_>> {
    let condition = Condition::new(true, false, threads);
    figures::of_kind(profile, operation, cost).into_iter().find(|it| it.condition == condition)
}

/// Returns the gain of threads at the largest length for which they are used.
fn threads(profile: &Profile, operation: Operation) -> Option<(f64, String)> {
    let saturation = profile.threads.iter().rfind(|it| it.operation == operation && it.threads > 1)?;
    let (one, several) = (1, saturation.threads);
    let [one, several] = [one, several].map(|it| series(profile, operation, Cost::Throughput, it));
    let (one, several) = (one?, several?);
    let length = several.lengths().into_iter().rfind(|it| *it >= saturation.from)?;
    let best = |series: &Series<'_>| series.best(length).map(|it| it.median_ns);
    let text =
        format!(".threads(Threads::Auto): {} threads {operation} {}", saturation.threads, exact_size(length));
    Some((best(&one)? / best(&several)?, text))
}

/// Returns the mean gain of naming an intent: the method for it compared with the one for unknown use, by the cost of that
/// intent.
fn intent(profile: &Profile, operation: Operation, intent: Intent) -> Option<(f64, String)> {
    let series = series(profile, operation, Cost::of(intent), 1)?;
    let figure = |length, intent| -> Option<&Figure> {
        let rule = rule_at(profile, operation, intent, length)?;
        series.of(length, &rule.method, &rule.parameters)
    };
    let gain = |length: &u64| {
        Some(figure(*length, Intent::Throughput)?.median_ns / figure(*length, intent)?.median_ns)
    };
    let mut lengths = series.lengths();
    lengths.retain(|length| *length >= PART && gain(length).is_some());
    let times = geometric_mean(lengths.iter().filter_map(gain))?;
    let (variant, what) = match intent {
        Intent::Stream => ("Stream", "the time that other programs lose in the cache"),
        _ => ("Reuse", "reading the result"),
    };
    let [from, to] = [*lengths.first()?, *lengths.last()?].map(exact_size);
    let range = if from == to { from } else { format!("{from} to {to}") };
    let text = format!(".intent(Intent::{variant}): a cold {operation} of {range}, with {what}, is");
    Some((times, text))
}

/// Returns the gain of the method for the largest length over the one for parts of 64 KiB.
fn total_len(profile: &Profile, operation: Operation) -> Option<(f64, String)> {
    let series = series(profile, operation, Cost::Throughput, 1)?;
    let length = *series.lengths().last()?;
    let time = |chosen_for| {
        let choice = choice(profile, operation, chosen_for, CacheState::Cold)?;
        Some(series.of(length, choice.method.name, &choice.parameters)?.median_ns)
    };
    let size = exact_size(length);
    let text = format!(
        ".total_len(n): a cold {operation} of {size} that arrives in parts of {} is",
        exact_size(PART)
    );
    Some((time(PART)? / time(length)?, text))
}
