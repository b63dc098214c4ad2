//! The effect of the cache attribute on the same method.

use bulkmem::method;

use crate::engine::{Config, Direction, Row, Run, units};

/// Published figures (Elliott 2015) by memcpy: the attribute, and random reads and writes of 4 KiB relative to those in
/// write-back memory.
const PUBLISHED: [(&str, f64, f64); 2] =
    [("wc", 764.0 / 3600.0, 3700.0 / 2500.0), ("uc", 37.0 / 3600.0, 21.0 / 2500.0)];

/// Summarizes, for each number of threads and block, the speed of memcpy in memory of other attributes.
pub(super) fn conclude(run: &mut Run<'_>) {
    let plain: Vec<Row> =
        run.rows().filter(|row| row.candidate.name == method::c_library().name).cloned().collect();
    let mut findings = Vec::new();
    for base in plain.iter().filter(|row| row.config.attribute.as_deref() == Some("wb")) {
        let direction = match base.config.direction {
            Some(Direction::Read) => "reads",
            Some(Direction::Write) => "writes",
            _ => continue,
        };
        for row in &plain {
            let same = Config { attribute: base.config.attribute.clone(), ..row.config.clone() };
            let Some(attribute) = row.config.attribute.as_deref().filter(|_| same == base.config) else {
                continue;
            };
            if attribute == "wb" {
                continue;
            }
            let ratio = row.stats.median / base.stats.median;
            let block = units::bytes(row.config.chunk.unwrap_or_default());
            let threads = row.config.threads.unwrap_or(1);
            let plural = if threads == 1 { "" } else { "s" };
            let mut text = format!(
                "{direction} of {block} by memcpy, {threads} thread{plural}: in {attribute} memory {ratio:.3} times as \
                 many as in wb memory"
            );
            let published = PUBLISHED.iter().find(|published| published.0 == attribute);
            if let Some((_, reads, writes)) = published.filter(|_| row.config.chunk == Some(4096)) {
                let there = if base.config.direction == Some(Direction::Read) { reads } else { writes };
                text += &format!("; published (Elliott 2015): {there:.3}");
            }
            findings.push(text + ".");
        }
    }
    findings.into_iter().for_each(|text| run.add_finding(text));
}
