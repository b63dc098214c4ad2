//! A strict parser of Prometheus's text format, version 0.0.4.

use std::collections::{BTreeMap, BTreeSet};

/// Parsed metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The type of each metric.
    pub kinds: BTreeMap<String, String>,
    /// The value of each sample, by name and labels as written: `name{label="value"}`.
    pub samples: BTreeMap<String, f64>,
}

/// Parses a text in which every metric has a help text and a type, in this order, and its samples follow immediately.
///
/// # Errors
/// If the text breaks the grammar or this order, repeats a metric or a sample, or has a counter that is negative or whose
/// name does not end in `_total`. The error contains the line.
pub fn parse(text: &str) -> Result<Metrics, String> {
    let mut metrics = Metrics::default();
    let (mut helped, mut metric) = (BTreeSet::new(), String::new());
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line does not end in a line break".to_owned());
    }
    for line in text.lines() {
        let wrong = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if !is_name(name, true) || help.is_empty() || !is_escaped(help, "\\n") {
                return wrong("not a help text");
            }
            if !helped.insert(name) {
                return wrong("a second help text");
            }
            metric = String::new();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            if !["counter", "gauge"].contains(&kind) || (kind == "counter") != name.ends_with("_total") {
                return wrong("not a type, or not of this name");
            }
            if !helped.contains(name) || metrics.kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                return wrong("no help text before, or a second type");
            }
            name.clone_into(&mut metric);
        } else {
            let Some((sample, value)) = sample(line) else { return wrong("not a sample") };
            if sample.split('{').next() != Some(&metric) {
                return wrong("not a sample of the metric above");
            }
            if metrics.kinds[&metric] == "counter" && value < 0.0 {
                return wrong("a negative counter");
            }
            if metrics.samples.insert(sample.to_owned(), value).is_some() {
                return wrong("a second sample");
            }
        }
    }
    Ok(metrics)
}

/// Splits a sample into its name with labels, and its value.
fn sample(line: &str) -> Option<(&str, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name, true) {
        return None;
    }
    if let Some(mut labels) = rest.strip_prefix('{') {
        loop {
            let (label, value) = labels.split_once("=\"")?;
            let end = end_of_text(value)?;
            if !is_name(label, false) || !is_escaped(&value[..end], "\\n\"") {
                return None;
            }
            labels = &value[end + 1..];
            match labels.strip_prefix(',') {
                Some(more) => labels = more,
                None => break,
            }
        }
        rest = labels.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?;
    // Rust's numbers are those of Go, except for `infinity` and signs alone.
    let number = value.starts_with(|letter: char| letter.is_ascii_digit() || "+-".contains(letter));
    let value = value.parse().ok().filter(|_| number || ["NaN", "Inf"].contains(&value))?;
    Some((&line[..line.len() - rest.len()], value))
}

/// Returns the position of the quote that ends a label's value.
fn end_of_text(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|letter| {
        let end = letter == b'"' && !escaped;
        escaped = letter == b'\\' && !escaped;
        end
    })
}

/// True if each backslash escapes itself or one of these letters.
fn is_escaped(text: &str, letters: &str) -> bool {
    let mut text = text.chars();
    while let Some(letter) = text.next() {
        if letter == '\\' && !text.next().is_some_and(|next| next == '\\' || letters.contains(next)) {
            return false;
        }
    }
    true
}

fn is_name(text: &str, colon: bool) -> bool {
    let first = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || (colon && letter == ':');
    text.starts_with(first) && text.chars().all(|letter| first(letter) || letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a_total It \\\\ counts.\n# TYPE a_total counter\na_total{x=\"1\",y=\"\\\"}\"} 2\na_total 3e9\n\
                        # HELP b B.\n# TYPE b gauge\nb -0.5\n";

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let metrics = parse(GOOD).unwrap();
        assert_eq!(metrics.samples["a_total{x=\"1\",y=\"\\\"}\"}"], 2.0);
        assert_eq!((metrics.samples["a_total"], metrics.samples["b"]), (3e9, -0.5));
        assert_eq!(metrics.kinds["b"], "gauge");
        assert_eq!(parse("").unwrap(), Metrics::default());
    }

    #[test]
    fn other_texts_are_refused() {
        for (old, new) in [
            ("b -0.5\n", "b -0.5"),
            ("b -0.5", "b"),
            ("b -0.5", "b  -0.5"),
            ("b -0.5", "b many"),
            ("b -0.5", "b infinity"),
            ("b -0.5", "b 0x1"),
            ("b -0.5", "c 1"),
            ("b -0.5", "b 1\nb 1"),
            ("b -0.5", "b{} 1"),
            ("b -0.5", "b{x=\"1} 1"),
            ("b -0.5", "b{x=1} 1"),
            ("b -0.5", "b{x=\"\\t\"} 1"),
            ("b -0.5", "b{1x=\"\"} 1"),
            ("3e9", "-1"),
            ("gauge", "number"),
            ("b gauge", "b counter"),
            ("# HELP b B.\n", ""),
            ("# TYPE b gauge\n", ""),
            ("# HELP b B.", "# HELP b"),
            ("# HELP b B.", "# HELP 1b B."),
            ("It \\\\ ", "It \\t "),
            ("b -0.5\n", "b -0.5\n# TYPE b gauge\n"),
            ("b -0.5\n", "b -0.5\na_total 1\n"),
        ] {
            let text = GOOD.replace(old, new);
            assert!(text != GOOD && parse(&text).is_err(), "{text}");
        }
    }
}
