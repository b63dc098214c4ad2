//! Random reads and writes in memory of several cache attributes: the source's table, with more methods.

use bulkmem_measure::engine::{Config, Dimension, Direction, Row};

use super::rows::{deviation, distinct, group_by, is_best, name, value};
use crate::output::{Column, Table, count, marked, plural, section};

/// Splits rows into groups that differ only in attribute, direction and candidate, and have several attributes; and all
/// other rows.
pub(super) fn split<'r>(rows: &[&'r Row]) -> (Vec<Vec<&'r Row>>, Vec<&'r Row>) {
    let others = |row: &Row| Config { attribute: None, direction: None, mix: None, ..row.config.clone() };
    let several = |part: &Vec<&Row>| part.iter().any(|row| row.config.attribute != part[0].config.attribute);
    let (parts, others): (Vec<_>, Vec<_>) =
        group_by(rows.iter().copied(), others).into_iter().partition(several);
    (parts, others.concat())
}

/// Shows a group: a line for each attribute and candidate, a column for each direction.
pub(super) fn table(part: &[&Row], width: usize) -> String {
    let heading = format!(
        "iops by cache attribute, {}, {}: {} of {} each",
        value(part[0], Dimension::Chunk),
        plural(part[0].config.threads.unwrap_or(1), "thread"),
        value(part[0], Dimension::Size),
        value(part[0], Dimension::Target),
    );
    let mut directions = distinct(part.iter().filter_map(|row| row.config.direction));
    directions.sort();
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
    let names = distinct(part.iter().map(|row| name(row)));
    for here in group_by(part.iter().copied(), |row| value(row, Dimension::Attribute)) {
        for candidate in &names {
            let cell = |direction: &Direction| {
                let rivals: Vec<&Row> =
                    here.iter().copied().filter(|row| row.config.direction == Some(*direction)).collect();
                let row = rivals.iter().find(|row| name(row) == *candidate)?;
                let text = format!("{} {}", count(row.stats.mean), deviation(row));
                Some(marked(&text, is_best(&rivals, row)))
            };
            let cells: Vec<Option<String>> = directions.iter().map(cell).collect();
            if cells.iter().any(Option::is_some) {
                let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–  ".to_owned()));
                table.row([value(here[0], Dimension::Attribute), candidate.clone()].into_iter().chain(cells));
            }
        }
    }
    section(&heading, &table.render(width), width)
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
            "config": {
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
                "wb movnti 2.40M ±0.0% 2.60M ±0.0% *",
                "wb memcpy 3.60M ±0.0% * –",
                "uc memcpy 37.0k ±0.0% * 21.0k ±0.0% *",
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
