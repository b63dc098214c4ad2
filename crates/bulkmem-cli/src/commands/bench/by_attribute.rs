//! Random input and output in memory of several cache attributes: the source's table, with more methods.

use bulkmem_measure::engine::{Config, Direction, Row};

use super::groups::{Group, deviation, is_best};
use super::iops::count;
use super::pivot::name;
use crate::output::{Column, GOOD, HEADING, Table, exact_size, styled, wrapped};

/// Rows that differ in attribute and direction only, of all methods; never empty.
pub(super) type Part<'r> = Vec<&'r Row>;

/// The rows that stand in tables by attribute, and all others, in the order in which they were measured.
pub(super) fn split<'r>(rows: &[&'r Row]) -> (Vec<Part<'r>>, Vec<&'r Row>) {
    let same = |row: &Row| Config { attribute: None, direction: None, mix: None, ..row.config.clone() };
    let mut parts: Vec<Part<'r>> = Vec::new();
    for row in rows {
        match parts.iter_mut().find(|part| same(part[0]) == same(row)) {
            Some(part) => part.push(row),
            None => parts.push(vec![row]),
        }
    }
    let several = |part: &Part<'_>| part.iter().any(|row| row.config.attribute != part[0].config.attribute);
    let (parts, others): (Vec<Part<'r>>, Vec<Part<'r>>) = parts.into_iter().partition(several);
    (parts, others.concat())
}

/// One table: a line for each attribute and method, a column for each direction.
pub(super) fn table(part: &Part<'_>, width: usize) -> String {
    let config = &part[0].config;
    let threads = config.threads.unwrap_or(1);
    let heading = format!(
        "iops by cache attribute, {}, {threads} thread{}: {} of {} each",
        config.chunk.map(exact_size).unwrap_or_default(),
        if threads == 1 { "" } else { "s" },
        config.size.map(exact_size).unwrap_or_default(),
        config.target.as_deref().unwrap_or_default(),
    );
    let all = [Direction::Read, Direction::Write, Direction::Mixed];
    let directions: Vec<Direction> =
        all.into_iter().filter(|it| part.iter().any(|row| row.config.direction == Some(*it))).collect();
    let title = |direction: &Direction| match direction {
        Direction::Read => "reads/s".to_owned(),
        Direction::Write => "writes/s".to_owned(),
        Direction::Mixed => {
            let mix = part.iter().find_map(|row| row.config.mix).unwrap_or_default();
            format!("{mix} % reads/s")
        }
    };
    let columns = [Column::left("attr"), Column::left("method")];
    let mut table =
        Table::new(columns.into_iter().chain(directions.iter().map(|it| Column::right(title(it)))));
    // Methods in the order of their first row; attributes likewise.
    let attributes = distinct(part.iter().map(|row| row.config.attribute.as_deref().unwrap_or_default()));
    let names = distinct(part.iter().map(|row| name(row)));
    for attribute in &attributes {
        for who in &names {
            let cell = |direction: &Direction| {
                let here: Group<'_> = part
                    .iter()
                    .copied()
                    .filter(|row| row.config.attribute.as_deref().unwrap_or_default() == *attribute)
                    .filter(|row| row.config.direction == Some(*direction))
                    .collect();
                let row = here.iter().copied().find(|row| name(row) == *who)?;
                let text = format!("{} {}", count(row.stats.mean), deviation(row));
                Some(if is_best(&here, row) { styled(GOOD, format!("{text}*")) } else { format!("{text} ") })
            };
            let cells: Vec<Option<String>> = directions.iter().map(cell).collect();
            if cells.iter().any(Option::is_some) {
                let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–  ".to_owned()));
                table.row([(*attribute).to_owned(), who.clone()].into_iter().chain(cells));
            }
        }
    }
    format!("{}\n{}\n", styled(HEADING, wrapped(&heading, "", width)), table.render(width))
}

/// Each value once.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    super::sizes::distinct(values.collect())
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::Kind;
    use bulkmem_measure::stats::Stats;

    use super::*;

    fn row(attribute: &str, direction: &str, method: &str, iops: f64) -> Row {
        let samples = [iops, iops, iops];
        serde_json::from_value(serde_json::json!({
            "measurement": "iops",
            "candidate": { "kind": Kind::Method, "name": method },
            "place": {
                "target": "/dev/bulkmem", "attribute": attribute, "direction": direction, "chunk": 4096,
                "size": 1 << 30, "threads": 1,
            },
            "metric": "iops",
            "samples": samples,
            "stats": Stats::of(&samples),
        }))
        .expect("a row")
    }

    #[test]
    fn attributes_stand_in_one_table_in_which_each_has_its_best() {
        let rows = [
            row("wb", "read", "movnti", 2.4e6),
            row("wb", "read", "memcpy", 3.6e6),
            row("uc", "read", "memcpy", 37e3),
            row("wb", "write", "movnti", 2.6e6),
            row("uc", "write", "memcpy", 21e3),
        ];
        let all: Vec<&Row> = rows.iter().collect();
        let (parts, others) = split(&all);
        assert_eq!((parts.len(), parts[0].len(), others.len()), (1, 5, 0));
        let text = anstream::adapter::strip_str(&table(&parts[0], 80)).to_string();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines[1..5],
            [
                "attr method reads/s writes/s",
                "wb movnti 2.40 M ±0.0% 2.60 M ±0.0% *",
                "wb memcpy 3.60 M ±0.0% * –",
                "uc memcpy 37.0 k ±0.0% * 21.0 k ±0.0% *",
            ],
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn one_attribute_alone_stands_in_the_usual_tables() {
        let rows = [row("wb", "read", "movnti", 1.0), row("wb", "write", "movnti", 1.0)];
        let (parts, others) = split(&rows.iter().collect::<Vec<_>>());
        assert_eq!((parts.len(), others.len()), (0, 2));
    }
}
