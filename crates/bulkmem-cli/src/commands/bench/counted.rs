//! What the hardware counted, as tables.

use bulkmem_measure::Counts;
use bulkmem_measure::engine::{Results, Row};

use super::rows::{name, value};
use crate::output::{Column, FAINT, HEADING, Table, styled, wrapped};

/// Titles, and how soon a column is left out where the terminal is narrow.
const COLUMNS: [(&str, &str, Option<u8>); 10] = [
    ("cycles", "cycles", None),
    ("instructions", "instr", None),
    ("l1d_loads", "L1D loads", None),
    ("l1d_load_misses", "misses", None),
    ("l1d_stores", "stores", None),
    ("llc_loads", "LLC loads", None),
    ("llc_load_misses", "misses", Some(3)),
    ("llc_stores", "LLC stores", Some(4)),
    ("llc_store_misses", "misses", Some(2)),
    ("cache_misses", "LLC misses", Some(1)),
];

/// The counts of all rows that have some: a table for each place.
pub(super) fn text(found: &Results, width: usize) -> String {
    let counted: Vec<(&Row, &Counts)> =
        found.rows.iter().filter_map(|row| Some((row, row.counters.as_ref()?))).collect();
    let mut text = String::new();
    for of_place in counted.chunk_by(|(a, _), (b, _)| a.measurement == b.measurement && a.config == b.config)
    {
        let row = of_place[0].0;
        let mut heading = row.measurement.to_string();
        for key in bulkmem_measure::engine::Dimension::ALL {
            if row.config.get(key).is_some() {
                heading += &format!(", {} {}", key.name().replace('_', " "), value(row, key));
            }
        }
        heading += ": counted in user mode, an operation on the whole length";
        let shown: Vec<_> = COLUMNS
            .into_iter()
            .filter(|(count, ..)| of_place.iter().any(|(_, counts)| counts.get(count).is_some()))
            .collect();
        let column = |(count, title, rank): &(&str, &str, Option<u8>)| {
            // `cache-misses` of AMD Zen (event 0x0964) counts misses of the second-level cache.
            let of_l2 = *count == "cache_misses" && found.provenance.cpu.vendor == "AuthenticAMD";
            let column = Column::right(if of_l2 { "L2 misses" } else { *title });
            rank.map_or(column.clone(), |rank| column.optional(rank))
        };
        let mut table = Table::new([Column::left("")].into_iter().chain(shown.iter().map(column)));
        for (row, counts) in of_place {
            let cell =
                |(count, ..): &(&str, &str, Option<u8>)| counts.get(count).map_or("–".to_owned(), short);
            table.row([name(row)].into_iter().chain(shown.iter().map(cell)));
        }
        text += &format!("{}\n{}\n", styled(HEADING, wrapped(&heading, "", width)), table.render(width));
    }
    if !text.is_empty() {
        let note = "k: thousands, M: millions, G: billions. Each group of counters had a sample of its own.";
        text += &format!("{}\n", styled(FAINT, wrapped(note, "", width)));
    }
    text
}

/// A count to three digits.
fn short(count: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, letter) = steps.into_iter().find(|(unit, _)| count >= *unit * 0.9995).unwrap_or((1.0, ""));
    let scaled = count / unit;
    match scaled {
        _ if letter.is_empty() => format!("{scaled:.0}"),
        it if it >= 99.95 => format!("{scaled:.0}{letter}"),
        it if it >= 9.995 => format!("{scaled:.1}{letter}"),
        _ => format!("{scaled:.2}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::engine::{Candidate, Config, Measurement, Metric};
    use bulkmem_measure::stats::Stats;
    use bulkmem_measure::{Kind, Provenance};

    use super::*;

    fn row(name: &str, counters: Option<Counts>) -> Row {
        Row {
            measurement: Measurement::Clear,
            candidate: Candidate::named(Kind::Method, name),
            config: Config { size: Some(4 << 30), ..Config::default() },
            metric: Metric::Bandwidth,
            samples: vec![10.0],
            stats: Stats::of(&[10.0]).unwrap(),
            chosen: None,
            also: Default::default(),
            counters,
            flags: Vec::new(),
        }
    }

    fn results(rows: Vec<Row>) -> Results {
        Results {
            format: Results::FORMAT.to_owned(),
            version: Results::VERSION,
            provenance: Provenance::default(),
            command: Vec::new(),
            rows,
            findings: Vec::new(),
            notes: Vec::new(),
            complete: true,
        }
    }

    /// The figures of the sources: clearing 4 GiB on a Broadwell-X.
    #[test]
    fn what_the_sources_counted_can_be_read_off() {
        let counts = |misses: f64, loads: f64| Counts {
            cycles: Some(9.1e9),
            instructions: Some(1234.0),
            l1d_load_misses: Some(misses),
            l1d_loads: Some(loads),
            ..Counts::default()
        };
        let found = results(vec![
            row("rep_stosb", Some(counts(133_947_283.0, 95_870.0))),
            row("movnti", Some(counts(27_834.0, 0.0))),
            row("clzero", None),
        ]);
        let text = anstream::adapter::strip_str(&text(&found, 80)).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in ["size 4 GiB", "rep_stosb", "134M", "95.9k", "27.8k", "9.10G", "1.23k", "  0"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("LLC") && !text.contains("clzero"), "only what was counted: {text}");
        assert_eq!(super::text(&results(vec![row("clzero", None)]), 80), "");
    }

    #[test]
    fn counts_keep_three_digits() {
        for (count, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (999_960.0, "1.00M"),
            (2.5e11, "250G"),
        ] {
            assert_eq!(short(count), text);
        }
    }
}
