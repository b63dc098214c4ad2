//! The opening of a report: the choice for every operation at four lengths, by cache state, with its speed and gain.

use bulkmem::Operation;
use bulkmem_measure::engine::LIBPMEM;

use super::advice;
use super::answers::{Answer, WORTH, answers, c_function};
use super::input::Machine;
use super::labels::list;
use super::model::{Gauge, Grid, Opening, Panel};
use crate::commands::lengths::LENGTHS;
use crate::output::{digits, exact_size, plural};
use crate::provenance::emulated;
use crate::results::group;

/// Gains beyond this one end at the edge of the chart.
const MOST_GAIN: f64 = 5.0;

pub(super) fn of(machine: &Machine<'_>) -> Opening {
    let answers = answers(machine);
    if answers.is_empty() {
        let advice = vec![NOTHING.to_owned()];
        return Opening { heading: machine.name(), machine: about(machine), advice, ..Opening::default() };
    }
    let gains = answers.iter().flat_map(|it| it.others.iter().map(|(_, other)| it.gb_per_s / other));
    let scale = gains.fold(2.0, f64::max).min(MOST_GAIN);
    let panels = group(answers.iter().filter(|it| !it.others.is_empty()), |it| it.operation);
    let panels = panels.into_iter().map(|(operation, answers)| Panel {
        operation: operation.name(),
        groups: group(answers, |it| it.length)
            .into_iter()
            .map(|(length, answers)| {
                (exact_size(length), answers.into_iter().map(|it| gauge(it, scale)).collect())
            })
            .collect(),
    });
    Opening {
        heading: machine.name(),
        machine: about(machine),
        panels: panels.collect(),
        has_marks: answers.iter().any(|it| it.others.len() > 1),
        notes: notes(machine, &answers),
        advice: advice::of(&answers, machine.profile).into(),
        table: table(&answers),
    }
}

const NOTHING: &str = "The files have no figures that tell cold from warm memory, so there is no chart of the choices: run \
                       bulkmem calibrate on this machine, or bulkmem bench choice clear --cold --warm --size \
                       64K,1M,16M,1G --output choice.json, and give its file to bulkmem report.";

/// Returns what else distinguishes the machine, for people.
fn about(machine: &Machine<'_>) -> String {
    let provenance = machine.provenance;
    let date = provenance.date.split('T').next().unwrap_or_default();
    let mut parts = vec![plural(provenance.processors, "processor")];
    parts.extend(provenance.emulator.as_deref().map(|name| format!("emulated by {}", emulated(name))));
    parts.extend(machine.libraries.iter().cloned());
    parts.push(format!("Linux {}", provenance.kernel));
    parts.push(format!("measured {date}"));
    parts.join(" · ")
}

fn gauge(answer: &Answer, scale: f64) -> Gauge {
    let share = |times: f64| (times / scale).min(1.0) * 100.0;
    let reference = answer.others.first().map_or(answer.gb_per_s, |(_, speed)| *speed);
    let mark = answer.others.iter().skip(1).map(|(_, speed)| share(speed / reference)).next();
    let Answer { operation, length, state: _, method, gb_per_s, .. } = answer;
    let (state, size) = (answer.state(), exact_size(*length));
    let others = answer.others.iter().map(|(name, speed)| format!(", {name} {} GB/s", digits(*speed)));
    Gauge {
        description: format!(
            "{operation} of {size}, {state}: {method}, {} GB/s{}",
            digits(*gb_per_s),
            others.collect::<String>()
        ),
        state,
        method: answer.short_method().to_owned(),
        speed: format!("{} GB/s", digits(*gb_per_s)),
        gains: answer.gains().collect(),
        bar: share(gb_per_s / reference),
        one: share(1.0),
        mark,
        more: gb_per_s / reference >= WORTH,
        beyond: gb_per_s / reference > scale,
    }
}

/// Returns what must be known of the figures: their source, and how they were measured.
fn notes(machine: &Machine<'_>, answers: &[Answer]) -> Vec<String> {
    let calibrated = answers.iter().filter(|it| it.by_calibration).count();
    let looks = machine.profile.is_some_and(|profile| !profile.looks.is_empty());
    let looks = if looks { ", without the time of looks" } else { "" };
    let mut notes =
        vec!["One thread, aligned, intent throughput. Cold: not in the cache; warm: in it.".to_owned()];
    notes.push(match answers.len() - calibrated {
        0 => format!("Measured by the calibration{looks}."),
        _ if calibrated == 0 => "Measured by bench choice.".to_owned(),
        chosen => format!(
            "{} measured by bench choice, the others by the calibration{looks}: the table has the source of each.",
            plural(chosen, "figure")
        ),
    });
    if answers.iter().any(|it| it.measured_length != it.length) {
        notes.push("Some were measured at a length up to a factor of 2 away: see the table.".to_owned());
    }
    let missing = Operation::ALL.into_iter().filter(|it| c_function(*it).is_some()).filter_map(|operation| {
        let lengths = LENGTHS.into_iter().map(|(_, length)| length);
        let missing = lengths
            .filter(|length| !answers.iter().any(|it| (it.operation, it.length) == (operation, *length)));
        let missing: Vec<String> = missing.map(exact_size).collect();
        match missing.len() {
            0 => None,
            many if many == LENGTHS.len() => Some(operation.to_string()),
            _ => Some(format!("{operation} of {}", list(&missing))),
        }
    });
    let missing: Vec<String> = missing.collect();
    if !missing.is_empty() {
        notes
            .push(format!("Not measured: {}; bulkmem bench choice OPERATION --cold --warm --size SIZES measures any length.", missing.join(", ")));
    }
    notes
}

fn table(answers: &[Answer]) -> Grid {
    let rows = answers.iter().map(|it| {
        let of = |name: Option<&str>| it.others.iter().find(|(other, _)| Some(*other) == name);
        let times = |name| of(name).map_or_else(|| "–".to_owned(), |(_, speed)| digits(it.gb_per_s / speed));
        let [own, libpmem] = [times(c_function(it.operation)), times(Some(LIBPMEM))];
        let head = [it.operation.to_string(), exact_size(it.length), it.state(), it.method.clone()];
        let source = if it.by_calibration { "calibration" } else { "bench choice" };
        let tail = [digits(it.gb_per_s), own, libpmem, exact_size(it.measured_length), source.to_owned()];
        head.into_iter().chain(tail).collect()
    });
    let titles = "operation|length:|cache|method|GB/s:|× C library:|× libpmem:|measured at:|measured by";
    Grid { title: "All operations".to_owned(), ..Grid::new(titles, rows) }
}
