//! The sections of a report: one file a measurement.

mod calibration;
mod chunks;
mod corun;
mod fork;
mod iops;
mod persist;
mod pollution;
mod published;
mod reuse;
mod sizes;
mod vm;

use bulkmem_measure::engine::Measurement;

use super::input::Machine;
use super::lay::Lay;
use super::model::{Chart, Section};

/// All sections that there is something to say in.
pub(super) fn all(machines: &[Machine<'_>]) -> Vec<Section> {
    let mut sections: Vec<Section> =
        Measurement::ALL.into_iter().filter_map(|it| measured(it, machines)).collect();
    sections.extend(published::section(machines));
    sections.extend(calibration::section(machines));
    sections
}

fn measured(measurement: Measurement, machines: &[Machine<'_>]) -> Option<Section> {
    match measurement {
        Measurement::Clear | Measurement::Fill | Measurement::Copy => sizes::section(measurement, machines),
        Measurement::Chunks => chunks::section(machines),
        Measurement::Vm => vm::section(machines),
        Measurement::Persist => persist::section(machines),
        Measurement::Pollution => pollution::section(machines),
        Measurement::Corun => corun::section(machines),
        Measurement::Reuse => reuse::section(machines),
        Measurement::Fork => fork::section(machines),
        Measurement::Iops => iops::section(machines),
        // The report has no section for them.
        Measurement::Choice | Measurement::Targets => None,
    }
}

/// A section of one measurement, its charts laid out alike; `None` where nobody measured it.
fn laid(
    measurement: Measurement,
    machines: &[Machine<'_>],
    mut section: Section,
    lay: Lay<'_>,
) -> Option<Section> {
    let several = machines.len() > 1;
    for machine in machines {
        section.charts.extend(Lay { several, ..lay }.charts(machine, &machine.of(measurement)));
    }
    finish(measurement, machines, section)
}

/// Adds what was found; `None` where there is nothing to show.
fn finish(measurement: Measurement, machines: &[Machine<'_>], mut section: Section) -> Option<Section> {
    if section.charts.is_empty() {
        return None;
    }
    beside(&mut section.charts);
    for machine in machines {
        for finding in machine.findings.iter().filter(|it| it.measurement == measurement) {
            section.findings.push(match machines {
                [_] => finding.text.clone(),
                _ => format!("{}: {}", machine.label, finding.text),
            });
        }
    }
    Some(section)
}

/// Puts charts that are compared next to each other.
fn beside(charts: &mut [Chart]) {
    let mut groups: Vec<String> = Vec::new();
    for chart in charts.iter() {
        if !groups.contains(&chart.group) {
            groups.push(chart.group.clone());
        }
    }
    charts.sort_by_key(|chart| groups.iter().position(|group| *group == chart.group));
}
