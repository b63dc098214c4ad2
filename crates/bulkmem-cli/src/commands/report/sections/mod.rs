//! The sections of a report.

mod calibration;
mod choice;
mod latency;
mod published;
mod table;

use bulkmem_measure::engine::{Finding, Row};

use super::input::Machine;
use super::layout::ChartLayout;
use super::model::{Chart, Section};
use crate::results::group;
use table::{MeasurementSection, SECTIONS};

/// Returns every section that has content.
pub(super) fn all(machines: &[Machine<'_>]) -> Vec<Section> {
    let measured = SECTIONS.iter().filter_map(|section| measured(section, machines));
    measured.chain(published::section(machines)).chain(calibration::section(machines)).collect()
}

/// Returns the section of a measurement, if it was measured.
fn measured(about: &MeasurementSection, machines: &[Machine<'_>]) -> Option<Section> {
    let mut charts: Vec<Chart> = Vec::new();
    let (mut tables, mut findings) = (Vec::new(), Vec::new());
    let name = about.measurement.name();
    let layout = ChartLayout {
        name: name.to_owned(),
        title: about.chart_title.unwrap_or(about.title),
        x: about.x,
        series: about.series,
    };
    for machine in machines {
        let has_x = |row: &&Row| about.x.is_none_or(|x| row.config.get(x).is_some());
        let (rows, rest): (Vec<&Row>, Vec<&Row>) = machine
            .of(about.measurement)
            .into_iter()
            .partition(|row| about.without_x.is_none() || has_x(row));
        charts.extend(layout.charts(machine, &rows));
        if let Some(title) = about.without_x {
            let layout = ChartLayout { name: format!("{name}-calls"), title, x: None, series: &[] };
            charts.extend(layout.charts(machine, &rest));
        }
        charts.extend(latency::charts(machine, name, &rows));
        tables.extend(choice::table(machine, about.measurement, &rows));
        let own = machine.findings.iter().filter(|it| it.measurement == about.measurement);
        findings.extend(own.map(|Finding { text, .. }| match machines {
            [_] => text.clone(),
            _ => format!("{}: {text}", machine.label),
        }));
    }
    if charts.is_empty() {
        return None;
    }
    // Charts of several machines that are compared stand next to each other.
    let charts =
        group(charts, |chart| chart.group.clone()).into_iter().flat_map(|(_, charts)| charts).collect();
    Some(Section {
        id: name,
        title: about.title,
        intro: about.intro.iter().map(|text| (*text).to_owned()).collect(),
        findings,
        charts,
        tables,
    })
}
