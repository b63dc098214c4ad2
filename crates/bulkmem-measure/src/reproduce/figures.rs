//! Every published figure next to this machine's own.

use bulkmem::Operation;

use super::PublishedFigure;
use super::ours::Ours;
use super::published::published;
use crate::engine::{Direction, Measurement, Metric};

const MIB: u64 = 1 << 20;

/// A candidate with its published figure and the one measured here.
type Entry = (String, f64, Option<f64>);

/// Collects figures, table by table.
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
        let ratio = |value: f64, base: f64| metric.times_as_good(value, base);
        self.0.extend(entries.into_iter().map(|(candidate, published, here)| PublishedFigure {
            table: table.to_owned(),
            machine: machine.to_owned(),
            candidate,
            config: config.to_owned(),
            unit: unit.to_owned(),
            published,
            here,
            against: against.clone(),
            published_ratio: Some(ratio(published, base)),
            here_ratio: here.zip(own_base).map(|(here, base)| ratio(here, base)),
        }));
    }
}

/// Sorts the string instruction, which the others are compared with, to the front.
fn string_first(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|(candidate, ..)| !candidate.starts_with("rep_"));
    entries
}

/// Compares all tables, figure by figure.
pub(super) fn compare(ours: &Ours<'_>) -> Vec<PublishedFigure> {
    let mut figures = Figures::default();
    clearing(ours, &mut figures);
    let facts = published();
    let widths = &facts.persist_by_width.rows;
    let speeds = widths.iter().map(|row| (row.method.clone(), row.ram, ours.persist(&row.method)));
    let table = ["persistent writes by width", "unnamed", "GB/s"];
    figures.add(table, "memory", Metric::Bandwidth, speeds);
    let throughput = facts.persist_throughput.rows.iter().filter(|row| row.target == "ram");
    let speeds = throughput.map(|row| (row.method.clone(), row.mean, ours.persist(&row.method)));
    figures.add(["persistent writes", "unnamed", "GB/s"], "memory", Metric::Bandwidth, speeds);
    let pollution = facts.cache_pollution.rows.iter().filter(|row| row.target == "ram");
    let growth = pollution.map(|row| (row.method.clone(), row.after / row.before, ours.growth(&row.method)));
    let table = ["cache pollution", "unnamed", "times the walk before"];
    figures.add(table, "L1 list", Metric::Nanoseconds, growth);
    for row in &facts.zero_then_read.rows {
        let (cached, bypassing) = ours.read_back(Operation::Clear, row.length);
        let ratio = bypassing.zip(cached).map(|(bypassing, cached)| bypassing / cached);
        let entries = [
            ("cached".to_owned(), 1.0, cached.map(|_| 1.0)),
            ("bypassing".to_owned(), row.bypassing / row.cached, ratio),
        ];
        let table = ["clearing, then reading", "Duron", "times the cached"];
        figures.add(table, &size(row.length), Metric::Seconds, entries);
    }
    for row in &facts.fork_copy.rows {
        let published = |seconds: f64| seconds / row.loops * 1e6;
        // A stock kernel has one way to copy pages, and a program cannot choose another.
        let here = ours.fork(row.length).map(|ns| ns / 1e3);
        let entries = [
            ("cached".to_owned(), published(row.cached), here),
            ("bypassing".to_owned(), published(row.bypassing), None),
        ];
        figures.add(["fork and copy-on-write", "Duron", "µs"], &size(row.length), Metric::Seconds, entries);
    }
    random_access(ours, &mut figures);
    lines_replaced(ours, &mut figures);
    figures.0
}

fn clearing(ours: &Ours<'_>, figures: &mut Figures) {
    let facts = published();
    for machine in &facts.memset_by_size.machines {
        for (at, &mib) in facts.memset_by_size.sizes_mib.iter().enumerate() {
            let here = |name: &str| match name.starts_with("rep_") {
                true => ours.string(mib * MIB),
                false => ours.clear(name, mib * MIB),
            };
            let entries = machine.methods.iter().map(|(name, row)| (name.clone(), row.mean[at], here(name)));
            let table = ["clearing by size", &machine.uarch, "GB/s"];
            let entries = string_first(entries.collect());
            figures.add(table, &format!("{mib} MiB"), Metric::Bandwidth, entries);
        }
    }
    for machine in &facts.clear_by_chunk.machines {
        for (at, &chunk) in facts.clear_by_chunk.chunks.iter().enumerate() {
            let entries = machine
                .methods
                .iter()
                .map(|(name, row)| (name.clone(), row[at] / 1e3, ours.chunk(name, chunk)));
            let table = ["clearing by chunk", &machine.uarch, "GB/s"];
            figures.add(table, &size(chunk), Metric::Bandwidth, string_first(entries.collect()));
        }
    }
    for machine in &facts.vm_creation.machines {
        // As a bandwidth, so that an extent of another length compares.
        let entries = machine.rows.iter().map(|row| {
            let published = facts.vm_creation.extent as f64 / row.seconds / 1e9;
            let candidate = format!("{} by {}", row.method, size(row.chunk));
            (candidate, published, ours.chunk(&row.method, row.chunk))
        });
        let table = ["memory of a virtual machine", &machine.uarch, "GB/s"];
        figures.add(table, "192 GiB", Metric::Bandwidth, entries);
    }
}

fn random_access(ours: &Ours<'_>, figures: &mut Figures) {
    for row in &published().random_4k.rows {
        let (attribute, how) = row.attribute.split_once(", ").unwrap_or((&row.attribute, ""));
        let name = if how.is_empty() { "c_library" } else { "movnti" };
        // Prefers the kernel module's memory, so that all figures are of one kind; ordinary memory is write-back.
        let here = |direction| {
            let attribute = attribute.to_lowercase();
            let ordinary = if attribute == "wb" { ours.iops(name, direction) } else { None };
            ours.iops_in(&attribute, name, direction).or(ordinary)
        };
        let entries = [
            (format!("{} read", row.attribute), row.read, here(Direction::Read)),
            (format!("{} write", row.attribute), row.write, here(Direction::Write)),
        ];
        figures.add(["random 4 KiB", "two sockets of DDR4", "IOPS"], &row.attribute, Metric::Iops, entries);
    }
}

fn lines_replaced(ours: &Ours<'_>, figures: &mut Figures) {
    let facts = &published().write_allocate;
    let lines = facts.lines as f64;
    for machine in &facts.machines {
        for (name, replaced) in &machine.replaced {
            let counted = ours.row(Measurement::Clear, name, |config| config.size == Some(4096 * MIB));
            let misses = counted.and_then(|row| row.counters.as_ref()?.l1d_load_misses);
            let entry = (name.clone(), *replaced as f64 / lines, misses.map(|misses| misses / lines));
            let table = ["L1 lines replaced", &machine.uarch, "a line written"];
            figures.add(table, "4096 MiB", Metric::Seconds, [entry]);
        }
    }
}

/// Formats a power of two of bytes.
fn size(bytes: u64) -> String {
    crate::engine::units::bytes(bytes)
}
