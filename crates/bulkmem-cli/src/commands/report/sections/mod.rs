//! The sections of a report.

mod calibration;
mod published;
mod table;
mod ways;

use bulkmem_measure::engine::Dimension::{Cache, Intent, Operation, PageSize, Size, Threads};
use bulkmem_measure::engine::{Measurement, Row};
use bulkmem_measure::measurements::overall;

use super::input::Machine;
use super::layout;
use super::model::{Chart, Grid, Section};
use crate::figures::config_value;
use crate::output::digits;
use crate::results::group;
pub(super) use table::about;

pub(super) fn all(machines: &[Machine<'_>]) -> Vec<Section> {
    let measured = Measurement::ALL.into_iter().filter_map(|it| measured(it, machines));
    let others = [ways::section, published::section, calibration::section].map(|section| section(machines));
    let [ways, published, calibration] = others;
    ways.into_iter().chain(measured).chain(published).chain(calibration).collect()
}

/// Returns the section of a measurement, if it was measured.
fn measured(measurement: Measurement, machines: &[Machine<'_>]) -> Option<Section> {
    let (name, about) = (measurement.name(), about(measurement));
    let title = about.chart_title.unwrap_or(about.title);
    let mut section = Section { id: name, title: about.title, intro: about.intro, ..Section::default() };
    for machine in machines {
        let has_x = |row: &&Row| about.x.is_none_or(|x| row.config.get(x).is_some());
        let all = machine.of(measurement).into_iter();
        let (rows, rest): (Vec<&Row>, Vec<&Row>) =
            all.partition(|row| about.without_x.is_none() || has_x(row));
        section.charts.extend(layout::charts(machine, [name, title], &rows, about.x, about.series));
        if let Some(title) = about.without_x {
            let name = format!("{name}-calls");
            section.charts.extend(layout::charts(machine, [&name, title], &rest, None, &[]));
        }
        section.charts.extend(layout::latency_charts(machine, name, &rows));
        if measurement == Measurement::Choice {
            section.tables.extend(regret(machine, &rows));
        }
        let own = machine.findings.iter().filter(|it| it.measurement == measurement);
        section.findings.extend(own.map(|it| match machines {
            [_] => it.text.clone(),
            _ => format!("{}: {}", machine.label, it.text),
        }));
    }
    // Charts of several machines that are compared stand next to each other.
    let groups = group(section.charts, |chart| chart.group.clone());
    section.charts = groups.into_iter().flat_map(|(_, charts)| charts).collect();
    section.tables.extend(alone(&mut section.charts));
    (!section.charts.is_empty() || !section.tables.is_empty()).then_some(section)
}

/// Removes the charts with a single figure, and returns these figures as a table.
fn alone(charts: &mut Vec<Chart>) -> Option<Grid> {
    let is_single = |chart: &mut Chart| chart.series.iter().map(|it| it.points.len()).sum::<usize>() < 2;
    let rows = charts.extract_if(.., is_single).flat_map(|chart| {
        let Chart { title, y_axis, overview, .. } = chart;
        overview.rows.into_iter().map(move |row| [vec![title.clone(), y_axis.name.clone()], row].concat())
    });
    let table =
        Grid { title: "Single figures".to_owned(), ..Grid::new("measured|unit|candidate|figure:", rows) };
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the policy's choice compared with the best library and the best method.
fn regret(machine: &Machine<'_>, rows: &[&Row]) -> Option<Grid> {
    let cells = overall(rows).into_iter().map(|it| {
        let config =
            [Operation, Intent, Size, Cache, PageSize, Threads].map(|key| config_value(&it.config, key));
        let times = digits(it.times_best_peer.unwrap_or(f64::NAN));
        let regret = digits(it.regret.unwrap_or(f64::NAN) * 100.0);
        let [peer, method] = [it.best_peer, it.best_method].map(Option::unwrap_or_default);
        config.into_iter().chain([times, peer, regret, method]).collect()
    });
    let titles = "operation|intent|size:|cache|pages|threads:|× best peer:|best peer|regret, %:|best method";
    let table = Grid {
        title: machine.titled("Regret by size"),
        caption: "Regret is how much longer the policy's choice takes than the best method, as the geometric mean of all \
                  alignments and states of the source (below 64 KiB: and cache states) that were measured. × best peer is the speed compared with the fastest other \
                  library or plain method; above 1 is faster.",
        ..Grid::new(titles, cells)
    };
    (!table.rows.is_empty()).then_some(table)
}
