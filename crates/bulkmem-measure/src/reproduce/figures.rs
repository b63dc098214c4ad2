//! Every published figure next to this machine's own.

use super::PublishedFigure;
use super::ours::{Ours, Place};
use super::published::{Curves, published};
use crate::engine::units::bytes;
use crate::engine::{Direction, Measurement, Metric};
use crate::measurements::{BYPASSING_COPIES, BYPASSING_PAGES, CACHED_PAGES, STRING_PAGES};

const MIB: u64 = 1 << 20;

/// A candidate with its published figure and the one measured here.
type Entry = (String, f64, Option<f64>);
/// A speed measured here, by method and length.
type Speed<'s> = &'s dyn Fn(&str, u64) -> Option<f64>;

#[derive(Default)]
struct Figures(Vec<PublishedFigure>);

impl Figures {
    /// Adds the candidates of one configuration. Ratios are relative to the first.
    fn add(
        &mut self,
        [table, machine, unit]: [&str; 3],
        config: &str,
        metric: Metric,
        entries: impl IntoIterator<Item = Entry>,
    ) {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let Some((against, base, own_base)) = entries.first().cloned() else { return };
        self.0.extend(entries.into_iter().map(|(candidate, published, here)| PublishedFigure {
            table: table.to_owned(),
            machine: machine.to_owned(),
            candidate,
            config: config.to_owned(),
            unit: unit.to_owned(),
            published,
            here,
            against: against.clone(),
            published_ratio: Some(metric.times_as_good(published, base)),
            here_ratio: here.zip(own_base).map(|(here, base)| metric.times_as_good(here, base)),
        }));
    }
}

pub(super) fn compare(ours: &Ours<'_>) -> Vec<PublishedFigure> {
    let mut figures = Figures::default();
    clearing(ours, &mut figures);
    let facts = published();
    for (place, name) in Place::ALL {
        let rows = facts.persist_by_width.rows.iter().map(|row| {
            let published = if place == Place::Ram { row.ram } else { row.nvdimm };
            (row.method.clone(), published, ours.persist(place, &row.method))
        });
        figures.add(["persistent writes by width", "unnamed", "GB/s"], name, Metric::Bandwidth, rows);
    }
    for (place, name) in Place::ALL {
        let rows = facts.persist_throughput.rows.iter().filter(|row| Place::named(&row.target) == place);
        let rows = rows.map(|row| (row.method.clone(), row.mean, ours.persist(place, &row.method)));
        figures.add(["persistent writes", "unnamed", "GB/s"], name, Metric::Bandwidth, rows);
    }
    let blocks = ours.blocks(Place::Persistent);
    for row in &facts.persist_by_block.rows {
        let entries = [("movnti", row.movnti), ("store_8_clflushopt", row.store_8_clflushopt)];
        let entries = entries.map(|(method, published)| {
            let mut rows = blocks.iter();
            let here = rows.find(|it| it.candidate.name == method && it.config.chunk == Some(row.length));
            (method.to_owned(), published / 1e3, here.map(|row| row.stats.median))
        });
        let config = format!("{}, persistent memory", bytes(row.length));
        figures.add(["persistent writes by block", "Optane", "GB/s"], &config, Metric::Bandwidth, entries);
    }
    for (place, name) in Place::ALL {
        let rows = facts.cache_pollution.rows.iter().filter(|row| Place::named(&row.target) == place);
        let rows =
            rows.map(|row| (row.method.clone(), row.after / row.before, ours.growth(place, &row.method)));
        let table = ["cache pollution", "unnamed", "times the walk before"];
        figures.add(table, &format!("L1 list, {name}"), Metric::Nanoseconds, rows);
    }
    let mut by_routine = |table, unit, length: u64, [cached, bypassing]: [(f64, Option<f64>); 2]| {
        let entries = [("cached", cached), ("bypassing", bypassing)];
        let entries = entries.map(|(name, (published, here))| (name.to_owned(), published, here));
        figures.add([table, "Duron", unit], &bytes(length), Metric::Seconds, entries);
    };
    for row in &facts.zero_then_read.rows {
        let here = ours.read_back(row.length);
        let entries = [(1.0, here.map(|_| 1.0)), (row.bypassing / row.cached, here)];
        by_routine("clearing, then reading", "times the cached", row.length, entries);
    }
    for row in &facts.fork_copy.rows {
        let published = |seconds: f64| seconds / row.loops * 1e6;
        // A stock kernel has one way to copy pages, and a program cannot choose another.
        let here = ours.fork(row.length).map(|ns| ns / 1e3);
        let entries = [(published(row.cached), here), (published(row.bypassing), None)];
        by_routine("fork and copy-on-write", "µs", row.length, entries);
    }
    for row in &facts.fork_copy.rows {
        // The published times include the fork.
        let pairs = [
            (CACHED_PAGES, Some(row.cached)),
            (STRING_PAGES, Some(row.string)),
            (BYPASSING_PAGES, Some(row.bypassing)),
            (BYPASSING_COPIES, row.bypassing_copy_only),
        ];
        let entries = pairs.into_iter().filter_map(|(name, seconds)| {
            let here = ours.pages(name, row.length).map(|row| row.stats.median / 1e3);
            Some((name.to_owned(), seconds? / row.loops * 1e6, here))
        });
        let table = ["the pages of a fork, within a process here", "Duron", "µs"];
        figures.add(table, &bytes(row.length), Metric::Seconds, entries);
    }
    random_access(ours, &mut figures);
    lines_replaced(ours, &mut figures);
    figures.0
}

fn clearing(ours: &Ours<'_>, figures: &mut Figures) {
    let facts = published();
    let mut add = |table, curves: &Curves, per_gb: f64, config: fn(u64) -> String, here: Speed<'_>| {
        for machine in &curves.machines {
            for (at, &length) in curves.lengths.iter().enumerate() {
                let methods = machine.methods.iter();
                let mut entries: Vec<Entry> = methods
                    .map(|(name, means)| (name.clone(), means[at] / per_gb, here(name, length)))
                    .collect();
                // The others are compared with the string instruction.
                entries.sort_by_key(|(candidate, ..)| !candidate.starts_with("rep_"));
                figures.add([table, &machine.uarch, "GB/s"], &config(length), Metric::Bandwidth, entries);
            }
        }
    };
    let mib = |mib| format!("{mib} MiB");
    add("clearing by size", &facts.memset_by_size, 1.0, mib, &|name, mib| ours.clear(name, mib * MIB));
    add("clearing by chunk", &facts.clear_by_chunk, 1e3, bytes, &|name, chunk| ours.chunk(name, chunk));
    for machine in &facts.vm_creation.machines {
        // As a bandwidth, so that an extent of another length compares. A stock kernel clears page by page, and the module
        // past the cache; none here clears by the string instruction as parts of the whole.
        let entries = machine.rows.iter().map(|row| {
            let published = facts.vm_creation.amount as f64 / row.seconds / 1e9;
            let candidate = format!("{} by {}", row.method, bytes(row.chunk));
            let here = match (row.chunk, row.method.starts_with("rep_")) {
                (4096, _) => ours.vm(false),
                (_, false) => ours.vm(true),
                (_, true) => None,
            };
            (candidate, published, here)
        });
        let table = ["memory of a virtual machine, by the kernel", &machine.uarch, "GB/s"];
        figures.add(table, "192 GiB there", Metric::Bandwidth, entries);
    }
}

fn random_access(ours: &Ours<'_>, figures: &mut Figures) {
    for row in &published().random_4k.rows {
        let (attribute, how) = row.attribute.split_once(", ").unwrap_or((&row.attribute, ""));
        let name = if how.is_empty() { "c_library" } else { "movnti" };
        let attribute = attribute.to_lowercase();
        let both = [(Direction::Read, "read", row.read), (Direction::Write, "write", row.write)];
        let entries = both.map(|(direction, word, iops)| {
            // Prefers the kernel module's memory, so that all figures are of one kind; ordinary memory is write-back.
            let ordinary = || ours.iops(name, direction).filter(|_| attribute == "wb");
            let here = ours.iops_in(&attribute, name, direction).or_else(ordinary);
            (format!("{} {word}", row.attribute), iops, here)
        });
        figures.add(["random 4 KiB", "two sockets of DDR4", "IOPS"], &row.attribute, Metric::Iops, entries);
    }
}

fn lines_replaced(ours: &Ours<'_>, figures: &mut Figures) {
    let facts = &published().write_allocate;
    let lines = facts.amount as f64;
    for machine in &facts.machines {
        for (name, replaced) in &machine.rows {
            let counted = ours.row(Measurement::Clear, name, |config| config.size == Some(4096 * MIB));
            let fetched = counted.and_then(|row| row.counters.as_ref()?.lines_fetched_per_line_written);
            let entry = (name.clone(), *replaced as f64 / lines, fetched);
            let table = ["L1 lines fetched", &machine.uarch, "a line written"];
            figures.add(table, "4096 MiB", Metric::Seconds, [entry]);
        }
    }
}
