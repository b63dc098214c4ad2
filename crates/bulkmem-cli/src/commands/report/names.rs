//! What people call what was measured.

use std::fmt::Write as _;

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Candidate, Dimension, Metric, Row};

use crate::figures::name_with;
use crate::output::exact_size;

/// A subject, for somebody who knows none of our words.
pub(super) fn candidate(candidate: &Candidate) -> String {
    match candidate.kind {
        Kind::Policy => match candidate.name.strip_prefix("policy") {
            Some(more) => format!("bulkmem's choice{more}"),
            None => format!("bulkmem's choice, {}", candidate.name),
        },
        Kind::Read => "reading, for comparison".to_owned(),
        Kind::Control => format!("control: {}", candidate.name),
        Kind::Kernel => format!("kernel: {}", candidate.name),
        Kind::Peer if is_c_library(candidate) => "C library".to_owned(),
        Kind::Method | Kind::Peer => name_with(&candidate.name, &candidate.parameters),
    }
}

pub(super) fn is_c_library(candidate: &Candidate) -> bool {
    candidate.name == bulkmem::method::c_library().name
}

/// The value of a key, for people; empty where it is not set.
pub(super) fn value(row: &Row, key: Dimension) -> String {
    let text = row.config.get(key).unwrap_or_default();
    match (key, text.as_str()) {
        (_, "") => text,
        (Dimension::PageSize, "thp") => "transparent huge".to_owned(),
        (Dimension::ReadBack, _) => format!("{text} %"),
        (Dimension::Rate, _) => format!("{text} GB/s"),
        _ => match text.parse() {
            Ok(bytes) if key.is_bytes() => exact_size(bytes),
            _ => text,
        },
    }
}

/// A key and its value, as they stand in a title: `4 KiB pages`, `2 threads`.
pub(super) fn config(row: &Row, key: Dimension) -> String {
    let value = value(row, key);
    match key {
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
        Dimension::Rate => format!("at {value}"),
        Dimension::Mix => format!("{value} % reads"),
        Dimension::Offset => format!("off by {value}"),
        Dimension::Size
        | Dimension::Operation
        | Dimension::Pattern
        | Dimension::Direction
        | Dimension::Target
        | Dimension::Alignment
        | Dimension::Cache => value,
        Dimension::Intent => format!("intent {value}"),
    }
}

/// A key as the title of a column or an axis.
pub(super) fn title(key: Dimension) -> &'static str {
    match key {
        Dimension::ReadBack => "read back",
        Dimension::PageSize => "pages",
        other => other.name(),
    }
}

/// What is measured, with its unit.
pub(super) fn metric(metric: Metric) -> String {
    let unit = metric.unit();
    match metric {
        Metric::Bandwidth => format!("speed, {unit}"),
        Metric::Iops => "operations a second".to_owned(),
        _ => format!("time, {unit}"),
    }
}

/// A number to three digits, with thousands apart: `12.3`, `0.0456`, `1 234 567`.
pub(super) fn digits(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        return "–".to_owned();
    }
    let decimals = match size {
        _ if size == 0.0 || size >= 99.95 => 0,
        _ => (2 - size.log10().floor() as i32).clamp(0, 9) as usize,
    };
    let text = format!("{number:.decimals$}");
    if size < 9999.5 {
        return text;
    }
    let (sign, whole) = match text.strip_prefix('-') {
        Some(whole) => ("-", whole),
        None => ("", text.as_str()),
    };
    let mut grouped = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push('\u{a0}');
        }
        grouped.push(digit);
    }
    grouped
}

/// Mean and deviation: `12.3 ±0.4 %`; where the mean is about 0, as differences are, `2.1 ±3.4`; of a
/// single run `12.3 (1 run)`.
pub(super) fn mean(row: &Row) -> String {
    if row.samples.len() < 2 {
        return format!("{} (1 run)", digits(row.stats.mean));
    }
    let (mean, deviation) = (row.stats.mean, row.stats.pstdev);
    if mean.abs() < deviation {
        return format!("{} ±{}", digits(mean), digits(deviation));
    }
    format!("{} ±{:.1} %", digits(mean), row.stats.pstdev_percent().abs())
}

/// What a name in `also` means: `p99_ns` is `p99, ns`.
pub(super) fn also(name: &str) -> String {
    match name.rsplit_once('_') {
        Some((what, unit @ ("ns" | "us" | "ms" | "s" | "percent"))) => {
            let unit = if unit == "percent" { "%" } else { unit };
            format!("{}, {unit}", what.replace('_', " "))
        }
        _ => name.replace('_', " "),
    }
}

/// Names joined as in a sentence: `a, b and c`.
pub(super) fn list(names: &[String]) -> String {
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        let joint = match at {
            0 => "",
            _ if at + 1 == names.len() => " and ",
            _ => ", ",
        };
        _ = write!(text, "{joint}{name}");
    }
    text
}

/// A text with its first letter in upper case.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (number, text) in [
            (12.345, "12.3"),
            (0.045_6, "0.0456"),
            (999.6, "1000"),
            (0.0, "0"),
            (-3.0, "-3.00"),
            (1_234_567.0, "1\u{a0}234\u{a0}567"),
            (-12_345.6, "-12\u{a0}346"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(digits(number), text);
        }
    }

    #[test]
    fn names_of_other_figures_read_well() {
        assert_eq!(also("p99.9_ns"), "p99.9, ns");
        assert_eq!(also("pages_cleared"), "pages cleared");
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
        assert_eq!(capital("clear"), "Clear");
    }
}
