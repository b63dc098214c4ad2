//! Random input and output: operations a second, and how long single ones take.

use bulkmem_measure::engine::{Dimension, Measurement, Metric, Row};

use super::super::input::Machine;
use super::super::lay::{self, Lay};
use super::super::model::{Axis, Chart, Grid, Holds, Point, Scale, Section, Series, Shape, slug};
use super::super::names;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let mut section = Section::new(
        "iops",
        "Random input and output",
        &[
            "Blocks read and written at random configs, as databases do, by method and by how many threads share the \
             work. Higher is more.",
            "The second kind of chart says how long single operations take: half of them are quicker than p50, and \
             one in ten thousand is slower than p99.99. Lower is better; a line that jumps up at the right is one \
             that sometimes keeps people waiting.",
        ],
    );
    let several = machines.len() > 1;
    for machine in machines {
        let rows = machine.of(Measurement::Iops);
        let lay = Lay { along: Some(Dimension::Threads), several, ..Lay::new("iops", "Random blocks") };
        section.charts.extend(lay.charts(machine, &rows));
        section.charts.extend(latencies(machine, &rows, several));
    }
    super::finish(Measurement::Iops, machines, section)
}

/// The percentiles that a row has, rising: 99.9, `p99.9`, and nanoseconds.
fn percentiles(row: &Row) -> Vec<(f64, String, f64)> {
    let parse = |name: &str| {
        let digits = name.strip_prefix('p')?.strip_suffix("_ns")?;
        // Names have no point: p999 is 99.9.
        let (whole, rest) = digits.split_at_checked(2).unwrap_or((digits, ""));
        let digits = if rest.is_empty() || rest.starts_with('.') {
            digits.to_owned()
        } else {
            format!("{whole}.{rest}")
        };
        Some((digits.parse::<f64>().ok()?, format!("p{digits}")))
    };
    let named = row.also.iter().filter_map(|(name, ns)| parse(name).map(|(at, name)| (at, name, *ns)));
    let mut found: Vec<(f64, String, f64)> = named.collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

/// How long single operations take: a chart for each place, a line for each who.
fn latencies(machine: &Machine<'_>, rows: &[&Row], several: bool) -> Vec<Chart> {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| !percentiles(row).is_empty()).collect();
    let apart: Vec<Dimension> =
        Dimension::ALL.into_iter().filter(|key| lay::distinct(&rows, *key) > 1).collect();
    let charts = lay::parts(&rows, &apart).into_iter().map(|part| {
        let mut config: Vec<String> = apart.iter().map(|key| names::config(part[0], *key)).collect();
        let group = format!("latency {config:?}");
        config.extend(several.then(|| machine.label.clone()));
        latency(&part, &config, group)
    });
    charts.collect()
}

fn latency(rows: &[&Row], config: &[String], group: String) -> Chart {
    let mut ranks: Vec<(f64, String)> = Vec::new();
    for (at, name, _) in rows.iter().flat_map(|row| percentiles(row)) {
        if !ranks.iter().any(|(_, known)| *known == name) {
            ranks.push((at, name));
        }
    }
    ranks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ranks: Vec<String> = ranks.into_iter().map(|(_, name)| name).collect();
    let point = |name: &str, ns: f64| Point {
        config: ranks.iter().position(|rank| rank == name).unwrap_or_default() as f64,
        value: ns,
        interval: None,
        remark: String::new(),
    };
    let mut series: Vec<Series> = rows
        .iter()
        .map(|row| Series {
            name: names::candidate(&row.candidate),
            kind: row.candidate.kind,
            shown: true,
            points: percentiles(row).iter().map(|(_, name, ns)| point(name, *ns)).collect(),
        })
        .collect();
    lay::choose_shown(&mut series, Metric::Nanoseconds);
    let columns = ranks.iter().map(|rank| (rank.as_str(), Holds::Numbers));
    let mut brief = Grid::new([("ns", Holds::Words)].into_iter().chain(columns));
    for row in rows {
        let of = percentiles(row);
        let find = |rank: &String| of.iter().find(|(_, name, _)| name == rank);
        let cells =
            ranks.iter().map(|rank| find(rank).map(|(.., ns)| names::digits(*ns)).unwrap_or_default());
        brief.rows.push([names::candidate(&row.candidate)].into_iter().chain(cells).collect());
    }
    Chart {
        name: slug(&format!("iops latency {}", config.join(" "))),
        title: ["How long one takes".to_owned()].iter().chain(config).cloned().collect::<Vec<_>>().join(", "),
        shape: Shape::Lines,
        more: false,
        configs: Axis { name: "percentile".to_owned(), scale: Scale::Named(ranks) },
        values: Axis { name: "time, ns".to_owned(), scale: Scale::Decades },
        series,
        marks: Vec::new(),
        group,
        folded: false,
        brief,
        figures: lay::figures(rows),
    }
}
