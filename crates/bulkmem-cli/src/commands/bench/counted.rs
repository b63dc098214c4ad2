//! Counts of the hardware, as tables.

use bulkmem_measure::engine::{Results, Row};

use super::rows::{group_by, name};
use crate::figures::describe_config;
use crate::output::{Column, Table, count, faint, section};

/// Counters with their titles, and their ranks if the column may be left out.
const COLUMNS: [(&str, &str, Option<u8>); 19] = [
    ("lines_fetched_per_line_written", "fetched/written", None),
    ("cycles", "cycles", None),
    ("instructions", "instr", None),
    ("l1d_loads", "L1D loads", None),
    ("l1d_load_misses", "misses", None),
    ("l1d_stores", "stores", None),
    ("l1d_fills", "L1D fills", Some(10)),
    ("l1d_fills_from_l2", "from L2", Some(9)),
    ("l1d_fills_from_l3", "from L3", Some(8)),
    ("l1d_fills_from_dram", "from DRAM", Some(7)),
    ("wcb_closes", "WCB flushes", Some(11)),
    ("l1d_prefetches", "L1D prefetches", Some(6)),
    ("l1d_prefetch_misses", "misses", Some(5)),
    ("llc_loads", "LLC loads", None),
    ("llc_load_misses", "misses", Some(3)),
    ("llc_stores", "LLC stores", Some(4)),
    ("llc_store_misses", "misses", Some(2)),
    ("cache_references", "LLC refs", Some(0)),
    ("cache_misses", "LLC misses", Some(1)),
];

/// Returns a table for each configuration of which something was counted.
pub(super) fn text(found: &Results, width: usize) -> String {
    let counted = found.rows.iter().filter(|row| row.counters.is_some());
    let mut text = String::new();
    for group in group_by(counted, |row| (row.measurement, row.config.clone())) {
        let first = group[0];
        let config = describe_config(&first.config, |_| true);
        let measurement = first.measurement;
        let heading =
            format!("{measurement}{config}: counted in user mode, an operation on the whole length");
        let get = |row: &Row, name: &str| row.counters.as_ref()?.get(name);
        let mut table = Table::of(&group).column(Column::left(""), |row| name(row));
        for (counter, title, rank) in COLUMNS {
            if group.iter().all(|row| get(row, counter).is_none()) {
                continue;
            }
            // On AMD Zen, `cache-references` and `cache-misses` are those of the second-level cache.
            let of_l2 = counter.starts_with("cache_") && found.provenance.cpu.vendor == "AuthenticAMD";
            let title = if of_l2 { &title.replace("LLC", "L2") } else { title };
            let column = Column::right(title);
            let column = rank.map_or(column.clone(), |rank| column.optional(rank));
            let text = |it: f64| if counter == COLUMNS[0].0 { format!("{it:.2}") } else { count(it) };
            table = table.column(column, move |row| get(row, counter).map_or("–".to_owned(), text));
        }
        text += &section(&heading, &table.render(width), width);
    }
    if !text.is_empty() {
        let note = "k: thousands, M: millions, G: billions. Each group of counters had a sample of its own. \
                    fetched/written: lines that came into the L1D per line written, in far more memory than the caches \
                    hold about 1 if stores bring in what they overwrite and 0 if they bypass the cache; a copy reads one \
                    more.";
        text += &faint(note, width);
    }
    text
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::engine::{Candidate, Config, Measurement, Metric};
    use bulkmem_measure::stats::Stats;
    use bulkmem_measure::{Counts, Kind};

    use super::*;
    use crate::results::testing::results;

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

    /// The figures of the sources: clearing 4 GiB on a Broadwell-X, where they count two passes.
    #[test]
    fn what_the_sources_counted_can_be_read_off() {
        let counts = |misses: f64, loads: f64| Counts {
            cycles: Some(9.1e9),
            instructions: Some(1234.0),
            l1d_load_misses: Some(misses),
            l1d_fills: Some(misses),
            lines_fetched_per_line_written: Some(misses / 2.0 / f64::from(1 << 26)),
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
        for part in [
            "size 4 GiB",
            "rep_stosb",
            "fetched/written",
            "1.00",
            "0.00",
            "134M",
            "95.9k",
            "27.8k",
            "9.10G",
            "1.23k",
            "  0",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("LLC") && !text.contains("clzero"), "only what was counted: {text}");
        assert_eq!(super::text(&results(vec![row("clzero", None)]), 80), "");
    }
}
