//! Every published figure beside ours.

use bulkmem::Operation;

use super::PublishedFigure;
use super::ours::Ours;
use super::published::published;
use crate::engine::{Direction, Measurement, Metric};

const MIB: u64 = 1 << 20;

/// A subject of a table in one place, before it is compared.
struct Entry {
    candidate: String,
    published: f64,
    here: Option<f64>,
}

impl Entry {
    fn new(candidate: impl Into<String>, published: f64, here: Option<f64>) -> Entry {
        Entry { candidate: candidate.into(), published, here }
    }
}

/// All tables, figure by figure.
pub(super) fn lay(ours: &Ours<'_>) -> Vec<PublishedFigure> {
    let mut figures = Vec::new();
    let facts = published();
    let mut add =
        |table: &str, machine: &str, config: String, metric: Metric, unit: &str, entries: Vec<Entry>| {
            let base = &entries[0];
            let ratio = |value: Option<f64>, base: Option<f64>| Some(metric.times_as_good(value?, base?));
            figures.extend(entries.iter().map(|entry| PublishedFigure {
                table: table.to_owned(),
                machine: machine.to_owned(),
                candidate: entry.candidate.clone(),
                config: config.clone(),
                unit: unit.to_owned(),
                published: entry.published,
                here: entry.here,
                against: base.candidate.clone(),
                published_ratio: ratio(Some(entry.published), Some(base.published)),
                here_ratio: ratio(entry.here, base.here),
            }));
        };
    for machine in &facts.memset_by_size.machines {
        for (at, &mib) in facts.memset_by_size.sizes_mib.iter().enumerate() {
            let mut entries: Vec<Entry> = machine
                .methods
                .iter()
                .map(|(name, row)| {
                    let string = name.starts_with("rep_");
                    let here = if string { ours.string(mib * MIB) } else { ours.clear(name, mib * MIB) };
                    Entry::new(name, row.mean[at], here)
                })
                .collect();
            entries.sort_by_key(|entry| !entry.candidate.starts_with("rep_"));
            add("clearing by size", &machine.uarch, format!("{mib} MiB"), Metric::Bandwidth, "GB/s", entries);
        }
    }
    for machine in &facts.clear_by_chunk.machines {
        for (at, &chunk) in facts.clear_by_chunk.chunks.iter().enumerate() {
            let entries = machine
                .methods
                .iter()
                .map(|(name, row)| Entry::new(name, row[at] / 1e3, ours.chunk(name, chunk)));
            let mut entries: Vec<Entry> = entries.collect();
            entries.sort_by_key(|entry| !entry.candidate.starts_with("rep_"));
            add("clearing by chunk", &machine.uarch, size(chunk), Metric::Bandwidth, "GB/s", entries);
        }
    }
    for machine in &facts.vm_creation.machines {
        // Bytes a nanosecond, so that an extent of another length compares.
        let entries = machine.rows.iter().map(|row| {
            let there = facts.vm_creation.extent as f64 / row.seconds / 1e9;
            Entry::new(
                format!("{} by {}", row.method, size(row.chunk)),
                there,
                ours.chunk(&row.method, row.chunk),
            )
        });
        let entries = entries.collect();
        add(
            "memory of a virtual machine",
            &machine.uarch,
            "192 GiB".to_owned(),
            Metric::Bandwidth,
            "GB/s",
            entries,
        );
    }
    let widths = facts
        .persist_by_width
        .rows
        .iter()
        .map(|row| Entry::new(&row.method, row.ram, ours.persist(&row.method)));
    add(
        "persistent writes by width",
        "unnamed",
        "memory".to_owned(),
        Metric::Bandwidth,
        "GB/s",
        widths.collect(),
    );
    let throughput = facts.persist_throughput.rows.iter().filter(|row| row.target == "ram");
    let entries =
        throughput.map(|row| Entry::new(&row.method, row.mean, ours.persist(&row.method))).collect();
    add("persistent writes", "unnamed", "memory".to_owned(), Metric::Bandwidth, "GB/s", entries);
    let pollution = facts.cache_pollution.rows.iter().filter(|row| row.target == "ram");
    let entries = pollution
        .map(|row| Entry::new(&row.method, row.after / row.before, ours.growth(&row.method)))
        .collect();
    add(
        "cache pollution",
        "unnamed",
        "L1 list".to_owned(),
        Metric::Nanoseconds,
        "times the walk before",
        entries,
    );
    for row in &facts.zero_then_read.rows {
        let (cached, bypassing) = ours.read_back(Operation::Clear, row.length);
        let entries = vec![Entry::new("cached", 1.0, cached.map(|_| 1.0)), {
            let here = bypassing.zip(cached).map(|(bypassing, cached)| bypassing / cached);
            Entry::new("bypassing", row.bypassing / row.cached, here)
        }];
        add(
            "clearing, then reading",
            "Duron",
            size(row.length),
            Metric::Seconds,
            "times the cached",
            entries,
        );
    }
    for row in &facts.fork_copy.rows {
        let there = |seconds: f64| seconds / row.loops * 1e6;
        let here = ours.fork(row.length).map(|ns| ns / 1e3);
        // A stock kernel has one way to copy; which one is not ours to choose.
        let entries = vec![
            Entry::new("cached", there(row.cached), here),
            Entry::new("bypassing", there(row.bypassing), None),
        ];
        add("fork and copy-on-write", "Duron", size(row.length), Metric::Seconds, "µs", entries);
    }
    for row in &facts.random_4k.rows {
        let (attribute, how) = row.attribute.split_once(", ").unwrap_or((&row.attribute, ""));
        let name = if how.is_empty() { "c_library" } else { "movnti" };
        // Of the kernel module's memory, so that all rows are of one kind; without it write-back memory is ordinary.
        let here = |direction| {
            let attribute = attribute.to_lowercase();
            let ordinary = if attribute == "wb" { ours.iops(name, direction) } else { None };
            ours.iops_in(&attribute, name, direction).or(ordinary)
        };
        let entries = vec![
            Entry::new(format!("{} read", row.attribute), row.read, here(Direction::Read)),
            Entry::new(format!("{} write", row.attribute), row.write, here(Direction::Write)),
        ];
        add("random 4 KiB", "two sockets of DDR4", row.attribute.clone(), Metric::Iops, "IOPS", entries);
    }
    let lines = facts.write_allocate.lines as f64;
    for machine in &facts.write_allocate.machines {
        for (name, replaced) in &machine.replaced {
            let counted = ours.row(Measurement::Clear, name, |config| config.size == Some(4096 * MIB));
            let misses = counted.and_then(|row| row.counters.as_ref()?.l1d_load_misses);
            let here = misses.map(|misses| misses / lines);
            let entries = vec![Entry::new(name, *replaced as f64 / lines, here)];
            add(
                "L1 lines replaced",
                &machine.uarch,
                "4096 MiB".to_owned(),
                Metric::Seconds,
                "a line written",
                entries,
            );
        }
    }
    figures
}

/// A power of two of bytes, for people.
fn size(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        30.. => format!("{} GiB", bytes >> 30),
        20..30 => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}
