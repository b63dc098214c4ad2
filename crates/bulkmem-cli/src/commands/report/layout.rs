//! Charts from rows: one dimension along the x axis, candidates as series, and a chart for each combination of the other
//! dimensions.

use std::cmp::Ordering;

use bulkmem::method::c_library;
use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Metric, Row};

use super::input::Machine;
use super::labels;
use super::model::{Axis, Cells, Chart, Grid, Point, Scale, Series, Shape, slug};
use crate::figures::candidate;
use crate::output::{digits, size};
use crate::results::{Columns, group, word};

/// How many methods are shown at first, besides the policy's choice, other libraries, the kernel and references.
const SHOWN_METHODS: usize = 5;

/// How the rows of a measurement become charts.
#[derive(Debug)]
pub(super) struct ChartLayout {
    /// The beginning of every chart's name.
    pub(super) name: String,
    /// The beginning of every chart's title.
    pub(super) title: &'static str,
    /// The dimension along the x axis. Without one, or if all rows have the same value, candidates stand there.
    pub(super) x: Option<Dimension>,
    /// Further dimensions that distinguish series instead of charts.
    pub(super) series: &'static [Dimension],
}

impl ChartLayout {
    /// Returns the charts of a machine's rows.
    pub(super) fn charts(&self, machine: &Machine<'_>, rows: &[&Row]) -> Vec<Chart> {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|row| row.metric);
        let several_metrics = rows.first().map(|row| row.metric) != rows.last().map(|row| row.metric);
        let x = self.x.filter(|it| varies(&rows, *it));
        let mut split = varying(&rows);
        split.retain(|it| Some(*it) != x && !self.series.contains(it));
        let key = |row: &&Row| (row.metric, values(row, &split));
        let charts = group(rows.iter().copied(), key).into_iter().map(|(_, part)| {
            let mut config: Vec<String> = split.iter().map(|it| labels::in_title(part[0], *it)).collect();
            config.extend(several_metrics.then(|| labels::metric(part[0].metric)));
            self.chart(machine, &part, x, &config)
        });
        charts.collect()
    }

    fn chart(&self, machine: &Machine<'_>, rows: &[&Row], x: Option<Dimension>, config: &[String]) -> Chart {
        let metric = rows[0].metric;
        let within: Vec<Dimension> = self.series.iter().copied().filter(|it| varies(rows, *it)).collect();
        let series_name = |row: &Row| {
            let mut name = candidate(&row.candidate);
            for key in within.iter().filter(|key| row.config.get(**key).is_some()) {
                name += &format!(", {}", labels::in_title(row, *key));
            }
            name
        };
        let x_axis = match x {
            Some(key) => Axis { name: labels::title(key).to_owned(), scale: scale(rows, key) },
            None => {
                let mut sorted = rows.to_vec();
                sorted.sort_by(|a, b| order(metric, a.stats.median, b.stats.median));
                Axis {
                    name: String::new(),
                    scale: Scale::Named(sorted.into_iter().map(series_name).collect()),
                }
            }
        };
        let position = |row: &Row| match &x_axis.scale {
            Scale::Named(names) => {
                let name = x.map_or_else(|| series_name(row), |key| labels::value(row, key));
                names.iter().position(|it| *it == name).map(|at| at as f64)
            }
            _ => row.config.get(x?).and_then(|text| text.parse().ok()),
        };
        // Without an x dimension each candidate has one bar, and the legend names kinds of candidates.
        let key = |row: &&Row| x.map_or_else(|| kind_name(row).to_owned(), |_| series_name(row));
        let mut series: Vec<Series> = group(rows.iter().copied(), key)
            .into_iter()
            .map(|(name, rows)| {
                let points = rows.iter().filter_map(|row| Some(point(row, position(row)?)));
                let mut points: Vec<Point> = points.collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                Series { name, kind: rows[0].candidate.kind, shown: true, points }
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        match x {
            Some(_) => hide_slow_methods(&mut series, metric),
            None => series.sort_by_key(|it| it.kind),
        }
        let lines = !matches!(x_axis.scale, Scale::Named(_));
        Chart {
            name: slug(&machine.titled(&format!("{} {}", self.name, config.join(" ")))),
            title: machine.titled(&[&[self.title.to_owned()], config].concat().join(", ")),
            shape: if lines { Shape::Lines } else { Shape::Bars },
            higher_is_better: metric.higher_is_better(),
            marks: if x_axis.scale == Scale::Bytes {
                marks(machine.provenance.caches, &series)
            } else {
                Vec::new()
            },
            x_axis,
            y_axis: Axis { name: labels::metric(metric), scale: Scale::Linear },
            series,
            group: format!("{} {config:?}", self.name),
            folded: false,
            overview: overview(rows, x, &series_name),
            details: details(rows),
        }
    }
}

/// Returns the dimensions in which rows differ.
pub(super) fn varying(rows: &[&Row]) -> Vec<Dimension> {
    Dimension::ALL.into_iter().filter(|key| varies(rows, *key)).collect()
}

fn varies(rows: &[&Row], key: Dimension) -> bool {
    rows.iter().any(|row| row.config.get(key) != rows[0].config.get(key))
}

/// Returns the values of a row in some dimensions.
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
        Kind::Control => "controls",
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
        Dimension::ReadBack | Dimension::Rate | Dimension::Threads => Scale::Linear,
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
    let inside = levels.filter(|(_, bytes)| *bytes > 0 && (from..=to).contains(&(*bytes as f64)));
    inside.map(|(level, bytes)| (bytes as f64, format!("{level} {}", size(bytes)))).collect()
}

/// Returns a table with series down and positions across; the best of each position is marked.
fn overview(rows: &[&Row], x: Option<Dimension>, series_name: &dyn Fn(&Row) -> String) -> Grid {
    let unit = rows[0].metric.unit();
    let position = |row: &&Row| x.map_or_else(|| unit.to_owned(), |key| labels::value(row, key));
    let columns: Vec<(String, Option<&Row>)> =
        group(rows.iter().copied(), position).into_iter().map(|(name, rows)| (name, best(rows))).collect();
    let first = if x.is_some() { unit } else { "" };
    let titles = columns.iter().map(|(name, _)| (name.as_str(), Cells::Numbers));
    let mut grid = Grid::new([(first, Cells::Words)].into_iter().chain(titles));
    for (name, rows) in group(rows.iter().copied(), |row| series_name(row)) {
        let cells = columns.iter().map(|(column, best)| {
            let Some(row) = rows.iter().copied().find(|row| position(row) == *column) else {
                return String::new();
            };
            let mark = if best.is_some_and(|best| std::ptr::eq(best, row)) { " *" } else { "" };
            format!("{}{mark}", labels::mean(row))
        });
        grid.rows.push([name].into_iter().chain(cells).collect());
    }
    grid
}

/// Returns a table of all that is known of each row.
pub(super) fn details(rows: &[&Row]) -> Grid {
    let columns = Columns::of(rows.iter().copied());
    let doubtful = rows.iter().any(|row| !row.flags.is_empty());
    let unit = rows.first().map_or("", |row| row.metric.unit());
    let median = format!("median, {unit}");
    let stats = [&median, "95 % interval", "mean ± deviation", "smallest", "largest", "samples"];
    let mut titles: Vec<String> =
        columns.dimensions.iter().map(|key| labels::title(*key).to_owned()).collect();
    titles.extend(stats.map(str::to_owned));
    titles.extend(columns.others.iter().map(|name| labels::with_unit(name)));
    let mut grid = Grid::new([("candidate", Cells::Words)]);
    grid.columns.extend(titles.into_iter().map(|title| (title, Cells::Numbers)));
    grid.columns.extend(doubtful.then(|| ("flags".to_owned(), Cells::Words)));
    for row in rows {
        let stats = &row.stats;
        let mut cells = vec![candidate(&row.candidate)];
        cells.extend(columns.dimensions.iter().map(|key| labels::value(row, *key)));
        cells.extend([digits(stats.median), stats.interval.map(digits).join("–"), labels::mean(row)]);
        cells.extend([digits(stats.min), digits(stats.max), row.samples.len().to_string()]);
        let others = columns.others.iter().map(|name| Columns::other(row, name));
        cells.extend(others.map(|value| value.map(digits).unwrap_or_default()));
        cells.extend(doubtful.then(|| flags(row)));
        grid.rows.push(cells);
    }
    grid
}

/// Returns what makes a row doubtful, in words.
fn flags(row: &Row) -> String {
    let words = row.flags.iter().filter_map(|flag| word(flag).ok());
    words.map(|word| word.replace(['_', '-'], " ")).collect::<Vec<_>>().join(", ")
}
