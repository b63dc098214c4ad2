//! Persistent writes by width and pattern.

use bulkmem_measure::engine::{Dimension, Measurement, Row};

use super::super::input::Machine;
use super::super::lay::Lay;
use super::super::model::Section;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let title = "Writing so that it lasts";
    let mut section = Section::new(
        "persist",
        title,
        &[
            "Writes that survive a power failure, by how many bytes one store writes. Non-temporal stores pass the \
             cache; ordinary stores are followed by an instruction that writes the line back (CLWB, CLFLUSHOPT, \
             CLFLUSH). Higher is faster.",
            "On ordinary memory nothing survives: there this shows what the instructions cost. On persistent memory \
             it shows what the device takes.",
        ],
    );
    let several = machines.len() > 1;
    for machine in machines {
        // Who writes no certain width has no place on an axis of widths.
        let rows = machine.of(Measurement::Persist);
        let (wide, whole): (Vec<&Row>, Vec<&Row>) =
            rows.into_iter().partition(|row| row.config.width.is_some());
        let by_width = Lay { along: Some(Dimension::Width), several, ..Lay::new("persist", title) };
        let by_call =
            Lay { several, ..Lay::new("persist-calls", "Writing so that it lasts, by whole calls") };
        section.charts.extend(by_width.charts(machine, &wide));
        section.charts.extend(by_call.charts(machine, &whole));
    }
    super::finish(Measurement::Persist, machines, section)
}
