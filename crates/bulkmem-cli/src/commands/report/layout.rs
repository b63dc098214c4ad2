//! Charts from rows: one dimension along the x axis, candidates as series, and a chart for each combination of the other
//! dimensions.

use std::cmp::Ordering;

use bulkmem::method::c_library;
use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Measurement, Metric, Row};

use super::input::Machine;
use super::labels;
use super::model::{Axis, Cells, Chart, Grid, Point, Scale, Series, Shape};
use super::style::CONTROLS;
use crate::figures::candidate;
use crate::output::{digits, size};
use crate::results::{Columns, group, word};

/// How many methods are shown at first, besides the policy's choice, other libraries, the kernel and references.
const SHOWN_METHODS: usize = 5;

/// Returns the charts of a machine's rows; their names and titles begin with `name` and `title`. Dimension `x` stands along
/// the x axis; without one, or if all rows have the same value, candidates stand there. `further` dimensions distinguish
/// series instead of charts.
pub(super) fn charts(
    machine: &Machine<'_>,
    [name, title]: [&str; 2],
    rows: &[&Row],
    x: Option<Dimension>,
    further: &[Dimension],
) -> Vec<Chart> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.metric);
    let mut split = varying(&rows);
    let x = x.filter(|it| split.contains(it));
    split.retain(|it| Some(*it) != x && !further.contains(it));
    let plot = |chart: Chart, part: &[&Row]| plot(chart, machine.provenance.caches, part, x, further);
    split_by(machine, [name, title], &rows, &split, plot)
}

/// Returns charts of the latency percentiles of single operations, in rows that have them, with a line for each candidate.
pub(super) fn latency_charts(machine: &Machine<'_>, measurement: &str, rows: &[&Row]) -> Vec<Chart> {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| !percentiles(row).is_empty()).collect();
    let name = format!("{measurement} latency");
    // A log is timed by groups, not by records.
    let title = if measurement == Measurement::Log.name() {
        "Latency of one group"
    } else {
        "Latency of one operation"
    };
    split_by(machine, [&name, title], &rows, &varying(&rows), plot_latencies)
}

/// Returns a chart for each metric and each combination of values in some dimensions, completed by `plot`.
fn split_by(
    machine: &Machine<'_>,
    [name, title]: [&str; 2],
    rows: &[&Row],
    split: &[Dimension],
    plot: impl Fn(Chart, &[&Row]) -> Chart,
) -> Vec<Chart> {
    let several_metrics = rows.iter().any(|row| row.metric != rows[0].metric);
    let key = |row: &&Row| (row.metric, values(row, split));
    let charts = group(rows.iter().copied(), key).into_iter().map(|((metric, _), part)| {
        let mut config: Vec<String> = split.iter().map(|it| labels::in_title(part[0], *it)).collect();
        config.extend(several_metrics.then(|| labels::metric(metric)));
        let title = [&[title.to_owned()], &config[..]].concat().join(", ");
        plot(machine.chart(&format!("{name} {}", config.join(" ")), &title), &part)
    });
    charts.collect()
}

fn plot(chart: Chart, caches: [u64; 3], rows: &[&Row], x: Option<Dimension>, further: &[Dimension]) -> Chart {
    let metric = rows[0].metric;
    let varying = varying(rows);
    let series_name = |row: &Row| {
        // Without a rate, there was no limit.
        let is_set = |key: &Dimension| row.config.get(*key).is_some() || *key == Dimension::Rate;
        let set = further.iter().filter(|key| varying.contains(key) && is_set(key));
        candidate(&row.candidate)
            + &set.map(|key| format!(", {}", labels::in_title(row, *key))).collect::<String>()
    };
    let scale = match x {
        Some(key) => scale(rows, key),
        None => {
            let mut sorted = rows.to_vec();
            sorted.sort_by(|a, b| order(metric, a.stats.median, b.stats.median));
            Scale::Named(sorted.into_iter().map(series_name).collect())
        }
    };
    let position = |row: &Row| match &scale {
        Scale::Named(names) => {
            let name = x.map_or_else(|| series_name(row), |key| labels::value(row, key));
            names.iter().position(|it| *it == name).map(|at| at as f64)
        }
        _ => row.config.get(x?).and_then(|text| text.parse().ok()),
    };
    // Without an x dimension each candidate has one bar, and the legend names kinds of candidates.
    let key = |row: &&Row| if x.is_some() { series_name(row) } else { kind_name(row).to_owned() };
    let series = group(rows.iter().copied(), key).into_iter().map(|(name, rows)| {
        let mut points: Vec<Point> = rows.iter().filter_map(|row| Some(point(row, position(row)?))).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series { name, kind: rows[0].candidate.kind, shown: true, points }
    });
    let mut series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
    match x {
        Some(_) => hide_slow_methods(&mut series, metric),
        None => series.sort_by_key(|it| it.kind),
    }
    Chart {
        shape: if matches!(scale, Scale::Named(_)) { Shape::Bars } else { Shape::Lines },
        higher_is_better: metric.higher_is_better(),
        marks: if scale == Scale::Bytes { marks(caches, &series) } else { Vec::new() },
        x_axis: Axis { name: x.map(labels::title).unwrap_or_default(), scale },
        y_axis: Axis { name: labels::metric(metric), scale: Scale::Linear },
        series,
        overview: overview(rows, x, &series_name),
        details: details(rows),
        ..chart
    }
}

fn plot_latencies(chart: Chart, rows: &[&Row]) -> Chart {
    let mut ranks: Vec<f64> = rows.iter().flat_map(|row| percentiles(row)).map(|(rank, _)| rank).collect();
    ranks.sort_by(f64::total_cmp);
    ranks.dedup();
    let names: Vec<String> = ranks.iter().map(|rank| format!("p{rank}")).collect();
    let mut overview = Grid::new("ns", []);
    overview.columns.extend(names.iter().map(|name| (name.clone(), Cells::Numbers)));
    let mut series = Vec::new();
    for row in rows {
        let own = percentiles(row);
        let figures: Vec<Option<f64>> =
            ranks.iter().map(|rank| own.iter().find(|it| it.0 == *rank).map(|it| it.1)).collect();
        let name = candidate(&row.candidate);
        let cells = figures.iter().map(|ns| ns.map(digits).unwrap_or_default());
        overview.rows.push([name.clone()].into_iter().chain(cells).collect());
        let point =
            |(at, ns): (usize, &Option<f64>)| Some(Point { x: at as f64, value: (*ns)?, ..Point::default() });
        let points = figures.iter().enumerate().filter_map(point).collect();
        series.push(Series { name, kind: row.candidate.kind, shown: true, points });
    }
    hide_slow_methods(&mut series, Metric::Nanoseconds);
    Chart {
        x_axis: Axis { name: "percentile".to_owned(), scale: Scale::Named(names) },
        y_axis: Axis { name: "time, ns".to_owned(), scale: Scale::Decades },
        series,
        overview,
        details: details(rows),
        ..chart
    }
}

/// Returns the percentiles of a row: 99.9, and nanoseconds.
fn percentiles(row: &Row) -> Vec<(f64, f64)> {
    let rank = |name: &str| -> Option<f64> {
        let digits = name.strip_prefix('p')?.strip_suffix("_ns")?;
        // Names have no decimal point: p999 is 99.9.
        match digits.split_at_checked(2) {
            Some((whole, rest)) if !rest.starts_with('.') => format!("{whole}.{rest}").parse().ok(),
            _ => digits.parse().ok(),
        }
    };
    row.also.iter().filter_map(|(name, ns)| Some((rank(name)?, *ns))).collect()
}

pub(super) fn varying(rows: &[&Row]) -> Vec<Dimension> {
    bulkmem_measure::engine::varying(rows.iter().map(|row| &row.config))
}

pub(super) fn values(row: &Row, keys: &[Dimension]) -> Vec<Option<String>> {
    keys.iter().map(|key| row.config.get(*key)).collect()
}

/// Orders values of a metric, the better first.
fn order(metric: Metric, a: f64, b: f64) -> Ordering {
    if metric.higher_is_better() { b.total_cmp(&a) } else { a.total_cmp(&b) }
}

/// Returns the best of some rows, by median; references do not compete.
pub(super) fn best<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Option<&'r Row> {
    let rivals = rows.into_iter().filter(|row| !matches!(row.candidate.kind, Kind::Read | Kind::Control));
    rivals.min_by(|a, b| order(a.metric, a.stats.median, b.stats.median))
}

fn kind_name(row: &Row) -> &'static str {
    match row.candidate.kind {
        Kind::Policy => "the policy's choice",
        Kind::Method => "methods",
        Kind::Peer if row.candidate.name == c_library().name => "c_library",
        Kind::Peer => "other libraries",
        Kind::Kernel => "the kernel",
        Kind::Read => "(reading)",
        Kind::Control => CONTROLS,
    }
}

fn point(row: &Row, x: f64) -> Point {
    let flags = flags(row);
    let flags = (!flags.is_empty()).then(|| format!("doubtful: {flags}"));
    let remark = row.chosen.clone().into_iter().chain(flags).collect::<Vec<_>>().join("; ");
    Point { x, value: row.stats.median, interval: Some(row.stats.interval), remark }
}

fn scale(rows: &[&Row], key: Dimension) -> Scale {
    match key {
        _ if key.is_bytes() => Scale::Bytes,
        Dimension::Threads | Dimension::Group => {
            let mut values = rows.iter().filter_map(|row| row.config.get(key)?.parse::<u64>().ok());
            if values.all(u64::is_power_of_two) { Scale::Powers } else { Scale::Whole }
        }
        Dimension::ReadBack | Dimension::Rate => Scale::Linear,
        _ => Scale::Named(group(rows, |row| labels::value(row, key)).into_iter().map(|it| it.0).collect()),
    }
}

/// Hides the methods that are nowhere near the best, because many lines hide each other.
pub(super) fn hide_slow_methods(series: &mut [Series], metric: Metric) {
    let points: Vec<(f64, f64)> =
        series.iter().flat_map(|it| &it.points).map(|point| (point.x, point.value)).collect();
    let share_of_best = |point: &Point| {
        let values = points.iter().filter(|(x, _)| *x == point.x).map(|(_, value)| *value);
        let best = values.min_by(|a, b| order(metric, *a, *b)).unwrap_or(f64::NAN);
        metric.times_as_good(point.value, best).clamp(0.0, 1.0)
    };
    let score = |it: &Series| -> f64 {
        it.points.iter().map(|point| share_of_best(point).powi(8)).filter(|score| score.is_finite()).sum()
    };
    let methods = series.iter_mut().filter(|it| it.kind == Kind::Method);
    let mut methods: Vec<(f64, &mut Series)> = methods.map(|it| (score(it), it)).collect();
    methods.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, hidden) in methods.into_iter().skip(SHOWN_METHODS) {
        hidden.shown = false;
    }
}

/// Returns the caches whose size lies between the smallest and the largest position.
pub(super) fn marks(caches: [u64; 3], series: &[Series]) -> Vec<(f64, String)> {
    let positions = || series.iter().flat_map(|it| &it.points).map(|point| point.x);
    let (from, to) = (positions().fold(f64::INFINITY, f64::min), positions().fold(0.0, f64::max));
    let levels = ["L1", "L2", "L3"].into_iter().zip(caches);
    // On the axis, a label would cover that of the axis.
    let inside = levels.filter(|(_, bytes)| from < *bytes as f64 && (*bytes as f64) < to);
    inside.map(|(level, bytes)| (bytes as f64, format!("{level} {}", size(bytes)))).collect()
}

/// Returns a table with series down and positions across; the best of each position is marked.
fn overview(rows: &[&Row], x: Option<Dimension>, series_name: &dyn Fn(&Row) -> String) -> Grid {
    let unit = rows[0].metric.unit();
    let position = |row: &&Row| x.map_or_else(|| unit.to_owned(), |key| labels::value(row, key));
    let columns = group(rows.iter().copied(), position);
    let lines = group(rows.iter().copied(), |row| series_name(row)).into_iter().map(|(name, rows)| {
        let cell = |(column, rivals): &(String, Vec<&Row>)| {
            let row = rows.iter().copied().find(|row| position(row) == *column)?;
            let is_best = best(rivals.iter().copied()).is_some_and(|best| std::ptr::eq(best, row));
            Some(labels::mean(row) + if is_best { " *" } else { "" })
        };
        [name].into_iter().chain(columns.iter().map(|it| cell(it).unwrap_or_default())).collect()
    });
    let mut grid = Grid::new(if x.is_some() { unit } else { "" }, lines);
    grid.caption = "* marks the best; mean ± standard deviation, unless a unit is given.";
    grid.columns.extend(columns.iter().map(|(name, _)| (name.clone(), Cells::Numbers)));
    grid
}

/// Returns a table of all that is known of each row.
pub(super) fn details(rows: &[&Row]) -> Grid {
    let columns = Columns::of(rows.iter().copied());
    let doubtful = rows.iter().any(|row| !row.flags.is_empty());
    let lines = rows.iter().map(|row| {
        let stats = &row.stats;
        let mut cells = vec![candidate(&row.candidate)];
        cells.extend(columns.dimensions.iter().map(|key| labels::value(row, *key)));
        cells.extend([digits(stats.median), stats.interval.map(digits).join("–"), labels::mean(row)]);
        cells.extend([digits(stats.min), digits(stats.max), row.samples.len().to_string()]);
        let others = columns.others.iter().map(|name| Columns::other(row, name));
        cells.extend(others.map(|value| value.map(digits).unwrap_or_default()));
        cells.extend(doubtful.then(|| flags(row)));
        cells
    });
    let mut grid = Grid::new("candidate", lines);
    let median = format!("median, {}", rows.first().map_or("", |row| row.metric.unit()));
    let stats = [&median, "95 % interval", "mean ± deviation", "smallest", "largest", "samples"];
    let titles = columns.dimensions.iter().map(|key| labels::title(*key));
    let titles = titles.chain(stats.map(str::to_owned));
    let titles = titles.chain(columns.others.iter().map(|name| labels::with_unit(name)));
    grid.columns.extend(titles.map(|title| (title, Cells::Numbers)));
    grid.columns.extend(doubtful.then(|| ("flags".to_owned(), Cells::Words)));
    grid
}

/// Returns what makes a row doubtful, in words.
fn flags(row: &Row) -> String {
    let words = row.flags.iter().map(word);
    words.map(|word| word.replace(['_', '-'], " ")).collect::<Vec<_>>().join(", ")
}
