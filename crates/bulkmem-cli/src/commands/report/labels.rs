//! Labels of charts, tables and sentences.

use bulkmem_measure::engine::{Dimension, Metric, Row};

use crate::figures::{config_value, words};
use crate::output::digits;

/// Returns the value of a row in a dimension; empty if it is not set.
pub(super) fn value(row: &Row, key: Dimension) -> String {
    let text = config_value(&row.config, key);
    match (key, text.as_str()) {
        (_, "") => text,
        (Dimension::PageSize, "thp") => "transparent huge".to_owned(),
        (Dimension::ReadBack, _) => format!("{text} %"),
        (Dimension::Rate, _) => format!("{text} GB/s"),
        _ => text,
    }
}

/// Returns a dimension and the value of a row as in a title: `4 KiB pages`, `2 threads`.
pub(super) fn in_title(row: &Row, key: Dimension) -> String {
    let value = value(row, key);
    match key {
        Dimension::Side if value.is_empty() => "both sides".to_owned(),
        Dimension::Side => format!("{value} alone"),
        Dimension::Rate if value.is_empty() => "without a limit".to_owned(),
        _ if value.is_empty() => format!("any {}", title(key)),
        Dimension::PageSize => format!("{value} pages"),
        Dimension::Threads => format!("{value} thread{}", if value == "1" { "" } else { "s" }),
        Dimension::Memory => format!("{value} memory"),
        Dimension::Chunk => format!("chunks of {value}"),
        Dimension::List => format!("list of {value}"),
        Dimension::Width => format!("{value} wide"),
        Dimension::ReadBack => format!("{value} read back"),
        Dimension::Content => format!("memory of {value}"),
        Dimension::Attribute => format!("mapped {value}"),
        Dimension::Durable => "durable".to_owned(),
        Dimension::Rate => format!("at {value}"),
        Dimension::Mix => format!("{value} % reads"),
        Dimension::Group => format!("groups of {value}"),
        Dimension::Offset => format!("off by {value}"),
        Dimension::Intent => format!("intent {value}"),
        Dimension::Source => format!("{value} source"),
        Dimension::ProcessorNode => format!("processors of node {value}"),
        Dimension::MemoryNode => format!("memory of node {value}"),
        Dimension::SourceNode => format!("source on node {value}"),
        _ => value,
    }
}

pub(super) fn title(key: Dimension) -> String {
    if key == Dimension::PageSize { "pages".to_owned() } else { words(key) }
}

pub(super) fn metric(metric: Metric) -> String {
    match metric {
        Metric::Bandwidth => format!("speed, {}", metric.unit()),
        Metric::Iops => "operations per second".to_owned(),
        _ => format!("time, {}", metric.unit()),
    }
}

/// Returns mean and standard deviation: `12.3 ±0.4 %`; `2.1 ±3.4` if the mean is about 0, as differences are; `12.3 (1
/// run)`.
pub(super) fn mean(row: &Row) -> String {
    let (mean, deviation) = (row.stats.mean, row.stats.pstdev);
    match row.samples.len() {
        0 | 1 => format!("{} (1 run)", digits(mean)),
        _ if mean.abs() < deviation => format!("{} ±{}", digits(mean), digits(deviation)),
        _ => format!("{} ±{:.1} %", digits(mean), row.stats.pstdev_percent().abs()),
    }
}

/// Returns the name of a figure with its unit apart: `p99_ns` becomes `p99, ns`.
pub(super) fn with_unit(name: &str) -> String {
    match name.rsplit_once('_') {
        Some((what, unit @ ("ns" | "us" | "ms" | "s"))) => format!("{}, {unit}", what.replace('_', " ")),
        Some((what, "percent")) => format!("{}, %", what.replace('_', " ")),
        _ => name.replace('_', " "),
    }
}

/// Joins names as in a sentence: `a, b and c`.
pub(super) fn list(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_may_have_a_meaning() {
        let row = |config: serde_json::Value| -> Row {
            serde_json::from_value(serde_json::json!({
                "measurement": "corun", "candidate": { "kind": "kernel", "name": "4K pages" },
                "config": config, "metric": "seconds", "samples": [1.0],
                "stats": bulkmem_measure::stats::Stats::of(&[1.0]),
            }))
            .expect("a row")
        };
        let (none, set) =
            (row(serde_json::json!({})), row(serde_json::json!({ "rate": 1, "side": "source" })));
        let of = |key| [&none, &set].map(|row| in_title(row, key));
        assert_eq!(of(Dimension::Rate), ["without a limit", "at 1 GB/s"]);
        assert_eq!(of(Dimension::Side), ["both sides", "source alone"]);
        assert_eq!(in_title(&none, Dimension::Threads), "any threads");
    }

    #[test]
    fn names_of_other_figures_read_well() {
        assert_eq!(with_unit("p99.9_ns"), "p99.9, ns");
        assert_eq!(with_unit("pages_cleared"), "pages cleared");
        assert_eq!(with_unit("hit_percent"), "hit, %");
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
        assert_eq!(list(&["a".into()]), "a");
        assert_eq!(list(&[]), "");
    }
}
