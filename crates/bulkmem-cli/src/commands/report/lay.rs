//! Rows as charts: what varies along an axis, who varies between series, and a chart for each combination of the rest.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Metric, Row};

use super::input::Machine;
use super::model::{Axis, Chart, Grid, Holds, Point, Scale, Series, Shape, slug};
use super::names;

/// So many methods are shown at once, beside the choice, other libraries, the kernel and references.
const METHODS: usize = 5;

/// How to lay the rows of a measurement out.
#[derive(Clone, Copy)]
pub(super) struct Lay<'a> {
    /// What every chart's name begins with.
    pub(super) name: &'a str,
    /// What every chart's title begins with.
    pub(super) title: &'a str,
    /// What goes along the axis of places; where there is nothing, or all rows have the same, subjects do.
    pub(super) along: Option<Dimension>,
    /// What else tells series apart, not charts.
    pub(super) within: &'a [Dimension],
    /// Whether the machine's label belongs into names and titles: there are several.
    pub(super) several: bool,
    /// Whether cache sizes are places of this axis.
    pub(super) caches: bool,
}

impl<'a> Lay<'a> {
    /// Bars by subject.
    pub(super) fn new(name: &'a str, title: &'a str) -> Lay<'a> {
        Lay { name, title, along: None, within: &[], several: false, caches: false }
    }

    /// The charts of a machine's rows; none of no rows.
    pub(super) fn charts(&self, machine: &Machine<'_>, rows: &[&Row]) -> Vec<Chart> {
        if rows.is_empty() {
            return Vec::new();
        }
        let along = self.along.filter(|key| distinct(rows, *key) > 1);
        let apart: Vec<Dimension> = Dimension::ALL
            .into_iter()
            .filter(|key| Some(*key) != along && !self.within.contains(key) && distinct(rows, *key) > 1)
            .collect();
        let metrics = {
            let mut metrics: Vec<Metric> = rows.iter().map(|row| row.metric).collect();
            metrics.sort_unstable();
            metrics.dedup();
            metrics
        };
        let mut charts = Vec::new();
        for metric in &metrics {
            let of_metric: Vec<&Row> = rows.iter().copied().filter(|row| row.metric == *metric).collect();
            for part in parts(&of_metric, &apart) {
                let mut config: Vec<String> = apart.iter().map(|key| names::config(part[0], *key)).collect();
                if metrics.len() > 1 {
                    config.push(names::metric(*metric));
                }
                charts.push(self.chart(machine, &part, along, &config));
            }
        }
        charts
    }

    fn chart(
        &self,
        machine: &Machine<'_>,
        rows: &[&Row],
        along: Option<Dimension>,
        config: &[String],
    ) -> Chart {
        let machine_name = self.several.then(|| machine.label.clone());
        let title =
            [self.title.to_owned()].into_iter().chain(config.iter().cloned()).chain(machine_name.clone());
        let named = [self.name.to_owned()].into_iter().chain(config.iter().cloned()).chain(machine_name);
        let values = Axis { name: names::metric(rows[0].metric), scale: Scale::Even };
        let (shape, configs, mut series) = match along {
            Some(key) => {
                let scale = scale(rows, key);
                let series = self.lines(rows, key, &scale);
                let shape = if matches!(scale, Scale::Named(_)) { Shape::Bars } else { Shape::Lines };
                (shape, Axis { name: names::title(key).to_owned(), scale }, series)
            }
            None => {
                let (subjects, series) = self.bars(rows);
                (Shape::Bars, Axis { name: String::new(), scale: Scale::Named(subjects) }, series)
            }
        };
        if along.is_some() {
            choose_shown(&mut series, rows[0].metric);
        }
        Chart {
            name: slug(&named.collect::<Vec<_>>().join(" ")),
            title: title.collect::<Vec<_>>().join(", "),
            shape,
            more: rows[0].metric.higher_is_better(),
            marks: if self.caches { marks(machine.caches, &series) } else { Vec::new() },
            configs,
            values,
            series,
            group: format!("{} {config:?}", self.name),
            folded: false,
            brief: brief(rows, along, &|row| self.who(rows, row)),
            figures: figures(rows),
        }
    }

    /// Who a row is about, with what else tells series apart.
    fn who(&self, rows: &[&Row], row: &Row) -> String {
        let mut name = names::candidate(&row.candidate);
        for key in
            self.within.iter().filter(|key| distinct(rows, **key) > 1 && row.config.get(**key).is_some())
        {
            name += &format!(", {}", names::config(row, *key));
        }
        name
    }

    fn lines(&self, rows: &[&Row], key: Dimension, scale: &Scale) -> Vec<Series> {
        let mut series: Vec<Series> = Vec::new();
        for row in rows {
            let name = self.who(rows, row);
            let config = match scale {
                Scale::Named(configs) => {
                    configs.iter().position(|it| *it == names::value(row, key)).map(|at| at as f64)
                }
                _ => row.config.get(key).and_then(|text| text.parse().ok()),
            };
            let Some(config) = config else { continue };
            let point = point(row, config);
            match series.iter_mut().find(|it| it.name == name) {
                Some(found) => found.points.push(point),
                None => {
                    let kind = row.candidate.kind;
                    series.push(Series { name, kind, shown: true, points: vec![point] });
                }
            }
        }
        for it in &mut series {
            it.points.sort_by(|a, b| a.config.total_cmp(&b.config));
        }
        series
    }

    /// The names of those who have bars, best first, and one series for each kind of them.
    fn bars(&self, rows: &[&Row]) -> (Vec<String>, Vec<Series>) {
        let mut sorted = rows.to_vec();
        let metric = rows[0].metric;
        sorted.sort_by(|a, b| {
            let order = a.stats.median.total_cmp(&b.stats.median);
            if metric.higher_is_better() { order.reverse() } else { order }
        });
        let subjects: Vec<String> = sorted.iter().map(|row| self.who(rows, row)).collect();
        let mut series: Vec<Series> = Vec::new();
        for (at, row) in sorted.iter().enumerate() {
            let kind = row.candidate.kind;
            let name = kind_name(kind, names::is_c_library(&row.candidate)).to_owned();
            let point = point(row, at as f64);
            match series.iter_mut().find(|it| it.name == name) {
                Some(found) => found.points.push(point),
                None => series.push(Series { name, kind, shown: true, points: vec![point] }),
            }
        }
        series.sort_by_key(|it| it.kind);
        (subjects, series)
    }
}

/// What bars of one kind are called.
fn kind_name(kind: Kind, c_library: bool) -> &'static str {
    match kind {
        Kind::Policy => "bulkmem's choice",
        Kind::Method => "methods",
        Kind::Peer if c_library => "C library",
        Kind::Peer => "other libraries",
        Kind::Kernel => "the kernel",
        Kind::Read => "reading, for comparison",
        Kind::Control => "controls",
    }
}

fn point(row: &Row, config: f64) -> Point {
    let stats = &row.stats;
    Point { config, value: stats.median, interval: Some(stats.interval), remark: remark(row) }
}

/// What is to be said of a row besides its figures.
fn remark(row: &Row) -> String {
    let flags = flags(row);
    let flags = (!flags.is_empty()).then(|| format!("doubtful: {flags}"));
    row.chosen.clone().into_iter().chain(flags).collect::<Vec<_>>().join("; ")
}

/// How many values a key has in rows; not being set is one.
pub(super) fn distinct(rows: &[&Row], key: Dimension) -> usize {
    let mut values: Vec<Option<String>> = rows.iter().map(|row| row.config.get(key)).collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}

/// Rows by what they have in keys, in the order in which they turn up.
pub(super) fn parts<'r>(rows: &[&'r Row], keys: &[Dimension]) -> Vec<Vec<&'r Row>> {
    let mut parts: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same =
            |part: &&mut Vec<&Row>| keys.iter().all(|key| part[0].config.get(*key) == row.config.get(*key));
        match parts.iter_mut().find(same) {
            Some(part) => part.push(row),
            None => parts.push(vec![row]),
        }
    }
    parts
}

fn scale(rows: &[&Row], key: Dimension) -> Scale {
    if key.is_bytes() {
        return Scale::Bytes;
    }
    if matches!(key, Dimension::ReadBack | Dimension::Rate | Dimension::Threads) {
        return Scale::Even;
    }
    let mut configs: Vec<String> = Vec::new();
    for row in rows {
        let value = names::value(row, key);
        if !configs.contains(&value) {
            configs.push(value);
        }
    }
    Scale::Named(configs)
}

/// Many methods hide each other: those that are the best or nearly so somewhere are shown, the others when asked for.
pub(super) fn choose_shown(series: &mut [Series], metric: Metric) {
    let mut best: Vec<(f64, f64)> = Vec::new();
    for point in series.iter().flat_map(|it| &it.points) {
        match best.iter_mut().find(|(config, _)| *config == point.config) {
            Some((_, value)) if better(metric, point.value, *value) => *value = point.value,
            Some(_) => {}
            None => best.push((point.config, point.value)),
        }
    }
    let score = |it: &Series| -> f64 {
        let near = |point: &Point| {
            let best =
                best.iter().find(|(config, _)| *config == point.config).map_or(f64::NAN, |(_, value)| *value);
            metric.times_as_good(point.value, best).clamp(0.0, 1.0).powi(8)
        };
        it.points.iter().map(near).filter(|score| score.is_finite()).sum()
    };
    let mut methods: Vec<(usize, f64)> = series
        .iter()
        .enumerate()
        .filter(|(_, it)| it.kind == Kind::Method)
        .map(|(at, it)| (at, score(it)))
        .collect();
    methods.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (at, _) in methods.into_iter().skip(METHODS) {
        series[at].shown = false;
    }
}

/// The caches whose size lies between the smallest and the largest place.
pub(super) fn marks(caches: [u64; 3], series: &[Series]) -> Vec<(f64, String)> {
    let configs = || series.iter().flat_map(|it| &it.points).map(|point| point.config);
    let (from, to) = (configs().fold(f64::INFINITY, f64::min), configs().fold(0.0, f64::max));
    let levels = ["L1", "L2", "L3"].into_iter().zip(caches);
    let inside = levels.filter(|(_, bytes)| *bytes > 0 && (from..=to).contains(&(*bytes as f64)));
    inside.map(|(level, bytes)| (bytes as f64, format!("{level} {}", crate::output::size(bytes)))).collect()
}

/// Who stands where: subjects down, places across, the best of each place marked.
fn brief(rows: &[&Row], along: Option<Dimension>, who: &dyn Fn(&Row) -> String) -> Grid {
    let unit = rows[0].metric.unit();
    let config = |row: &Row| along.map_or_else(|| unit.to_owned(), |key| names::value(row, key));
    let (mut people, mut configs): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for row in rows {
        for (list, item) in [(&mut people, who(row)), (&mut configs, config(row))] {
            if !list.contains(&item) {
                list.push(item);
            }
        }
    }
    let rivals = |at: &str| -> Option<&Row> {
        let here = rows.iter().copied().filter(|row| config(row) == at && !reference(row.candidate.kind));
        here.reduce(
            |best, row| {
                if better(row.metric, row.stats.median, best.stats.median) { row } else { best }
            },
        )
    };
    let best: Vec<Option<&Row>> = configs.iter().map(|at| rivals(at)).collect();
    let first = if along.is_some() { unit } else { "" };
    let columns = configs.iter().map(|it| (it.as_str(), Holds::Numbers));
    let mut grid = Grid::new([(first, Holds::Words)].into_iter().chain(columns));
    for person in &people {
        let cells = configs.iter().zip(&best).map(|(at, best)| {
            let row = rows.iter().copied().find(|row| who(row) == *person && config(row) == *at);
            row.map_or_else(String::new, |row| {
                let mark = if best.is_some_and(|best| std::ptr::eq(best, row)) { " *" } else { "" };
                format!("{}{mark}", names::mean(row))
            })
        });
        grid.rows.push([person.clone()].into_iter().chain(cells).collect());
    }
    grid
}

/// Whether a figure is better than another.
pub(super) fn better(metric: Metric, new: f64, old: f64) -> bool {
    if metric.higher_is_better() { new > old } else { new < old }
}

/// Reading and controls do not compete.
pub(super) fn reference(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Control)
}

/// A row a row, with all that is known.
pub(super) fn figures(rows: &[&Row]) -> Grid {
    let keys: Vec<Dimension> = Dimension::ALL
        .into_iter()
        .filter(|key| rows.iter().any(|row| row.config.get(*key).is_some()))
        .collect();
    let mut also: Vec<&str> = rows.iter().flat_map(|row| row.also.keys()).map(String::as_str).collect();
    also.sort_unstable();
    also.dedup();
    let counts: Vec<Vec<(String, f64)>> = rows.iter().map(|row| counts(row)).collect();
    let mut counted: Vec<&str> = counts.iter().flatten().map(|(name, _)| name.as_str()).collect();
    counted.sort_unstable();
    counted.dedup();
    let doubtful = rows.iter().any(|row| !row.flags.is_empty());
    let unit = rows.first().map_or("", |row| row.metric.unit());
    let stats = [
        format!("median, {unit}"),
        "95 % interval".to_owned(),
        "mean ± deviation".to_owned(),
        "smallest".to_owned(),
        "largest".to_owned(),
        "samples".to_owned(),
    ];
    let mut grid = Grid::new([("who", Holds::Words)]);
    grid.columns.extend(keys.iter().map(|key| (names::title(*key).to_owned(), Holds::Numbers)));
    grid.columns.extend(stats.map(|title| (title, Holds::Numbers)));
    grid.columns.extend(also.iter().map(|name| (names::also(name), Holds::Numbers)));
    grid.columns.extend(counted.iter().map(|name| (name.replace('_', " "), Holds::Numbers)));
    grid.columns.extend(doubtful.then(|| ("flags".to_owned(), Holds::Words)));
    for (row, counts) in rows.iter().zip(&counts) {
        let stats = &row.stats;
        let mut cells = vec![names::candidate(&row.candidate)];
        cells.extend(keys.iter().map(|key| names::value(row, *key)));
        cells.push(names::digits(stats.median));
        cells.push(stats.interval.map(names::digits).join("–"));
        cells.push(names::mean(row));
        cells.extend([stats.min, stats.max].map(names::digits));
        cells.push(row.samples.len().to_string());
        cells.extend(
            also.iter().map(|name| row.also.get(*name).copied().map(names::digits).unwrap_or_default()),
        );
        cells.extend(counted.iter().map(|name| {
            counts
                .iter()
                .find(|(it, _)| it == name)
                .map(|(_, value)| names::digits(*value))
                .unwrap_or_default()
        }));
        cells.extend(doubtful.then(|| flags(row)));
        grid.rows.push(cells);
    }
    grid
}

/// What makes a row doubtful, in words.
fn flags(row: &Row) -> String {
    let words = row.flags.iter().filter_map(|doubt| crate::results::word(doubt).ok());
    words.map(|word| word.replace(['_', '-'], " ")).collect::<Vec<_>>().join(", ")
}

/// What the hardware counted, by name.
fn counts(row: &Row) -> Vec<(String, f64)> {
    let Some(counters) = &row.counters else { return Vec::new() };
    let value = serde_json::to_value(counters).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    fields.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
}
