//! `bulkmem bench vm`.

use bulkmem_measure::engine::{Dimension, Measurement, Memory, PageSize, Results, Row, distinct};
use bulkmem_measure::measurements::VmOptions;
use clap::Args;

use super::common::Common;
use super::rows::{DOUBTFUL, deviation, group_by, is_best, name, remarks, short_name, value};
use crate::failure::Outcome;
use crate::output::{Column, Table, digits, faint, marked, section};
use crate::parsers::{given_or, size, threads};

/// Memory for a virtual machine: reserved, prefaulted and cleared by the kernel, and cleared again by each method
///
/// Fresh memory: the kernel clears it while it is prefaulted, as QEMU does before a guest starts, on one thread and on
/// several with a part each. bulkmem's own prefault, fallocate and QEMU's preallocation (QEMU is run, if it is installed and
/// --size is at least 256M) do the same. If /dev/kvm can be used, the same memory also becomes that of a real virtual machine. Reused
/// memory: it belonged to a guest before and is cleared for the next one, by each method and by the policy's choice.
///
/// bytes/ns are GB/s. "times" is the speed-up compared with fresh memory and one thread. Compare with other machines by
/// bytes/ns: the published figures are for 192 GB. An untimed round comes first, because the host of a virtual machine
/// must allocate memory that is touched for the first time.
///
/// Missing 2M and 1G pages are reserved, which needs root, and released afterwards, even if the command is interrupted or
/// killed. docs/bench/vm.md has the details.
///
/// Source: Ankur Arora, "huge page clearing optimizations", linux-kernel, 2022.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `rows` as in all measurements; `metric` is `seconds`; `config` has `size`, `page_size`, `threads` and `memory` (`fresh` or \
`reused`); `also` has `bytes_per_ns`, and for fresh memory the phases `reserve_s` (mmap), `prefault_s`, `register_s` (creating the \
virtual machine with this memory), `vcpu_s` (creating its processor), `guest_s` (the guest reads its memory; not part of the \
time), `start_s` (QEMU's start without preallocation; not part of the time), `release_s` (not part of the time), and `first_s` (the untimed first round).")]
pub(crate) struct VmArgs {
    /// Size of the memory [default: half of the available memory, at most 4G]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Page sizes: 4K, thp (transparent huge pages), 2M, 1G [default: thp, and 2M if available]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    page_size: Vec<PageSize>,
    /// Numbers of threads that share the work [default: 1, and the number of processors]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Also measure fresh memory that is declared to the kernel module as a whole (docs/kernel/README.md); a note says
    /// so if the module is not loaded
    #[arg(long)]
    hint: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &VmArgs) -> Outcome {
    let mut options = VmOptions { hint: args.hint, ..VmOptions::default() };
    options.size = args.size.unwrap_or(options.size);
    options.page_sizes = given_or(args.page_size.clone(), options.page_sizes);
    options.threads = given_or(args.threads.clone(), options.threads);
    options.candidates = args.common.candidates();
    args.common.outputs.run(&[], &[&options], &view)
}

/// Shows for each size and page size the time of each candidate, for fresh and for reused memory, and the phases of fresh
/// memory.
pub(super) fn view(found: &Results, width: usize) -> String {
    let config = |row: &Row| [Dimension::Size, Dimension::PageSize].map(|dimension| value(row, dimension));
    let tables = group_by(found.of(Measurement::Vm), config).into_iter().map(|rows| {
        let [size, page_size] = config(rows[0]);
        let parts = group_by(rows.iter().copied(), |row| row.config.memory).into_iter().map(|part| {
            let memory = value(part[0], Dimension::Memory);
            let heading = format!("vm, {size} in {page_size} pages, {memory} memory");
            section(&heading, &times(&part, &rows, width), width) + &phases(&part, width)
        });
        let note = format!(
            "Mean ± standard deviation; other columns by medians. * marks the best of fresh and of reused memory; \
             {DOUBTFUL}"
        );
        parts.collect::<String>() + &faint(&note, width) + "\n"
    });
    tables.collect::<String>() + &remarks(found, width)
}

/// Returns the table of fresh or of reused memory; `all` has the rows of both.
fn times(rows: &[&Row], all: &[&Row], width: usize) -> String {
    let base = all.iter().find(|row| row.config.memory == Some(Memory::Fresh)).map(|row| row.stats.median);
    let longest = all.iter().map(|row| row.stats.mean).fold(0.0, f64::max);
    let (unit, scale) = if longest < 1.0 { ("milliseconds", 1e3) } else { ("seconds", 1.0) };
    let rate = |row: &Row| row.config.size.map_or(f64::NAN, |size| size as f64 / 1e9 / row.stats.median);
    let seconds = |row: &Row| {
        marked(&format!("{} {}", digits(row.stats.mean * scale), deviation(row)), is_best(rows, row))
    };
    let short = |row: &Row| {
        let rivals = rows.iter().copied().filter(|rival| rival.config == row.config);
        short_name(row, &rivals.collect::<Vec<_>>())
    };
    let table = Table::of(rows)
        .column(Column::left(""), |row| short(row))
        .column(Column::right("threads"), |row| value(row, Dimension::Threads))
        .column(Column::right(format!("{unit} ")), |row| seconds(row))
        .column(Column::right("bytes/ns").optional(1), |row| digits(rate(row)))
        .column(Column::right("times"), |row| digits(base.map_or(f64::NAN, |base| base / row.stats.median)));
    let shortened = distinct(rows.iter().filter(|row| short(row) != name(row)).map(|row| name(row)));
    let names = faint(&format!("With parameters: {}.", shortened.join(", ")), width);
    table.render(width) + if shortened.is_empty() { "" } else { &names }
}

fn phases(rows: &[&Row], width: usize) -> String {
    let mut fresh = rows.to_vec();
    fresh.retain(|row| row.config.memory == Some(Memory::Fresh));
    if fresh.is_empty() {
        return String::new();
    }
    let time = |row: &Row, keys: &[&str]| {
        let seconds: Option<f64> = keys.iter().map(|key| row.also.get(*key)).sum();
        digits(seconds.map_or(f64::NAN, |seconds| seconds * 1e3))
    };
    let table = Table::of(fresh)
        .column(Column::left("milliseconds"), |row| row.candidate.name.clone())
        .column(Column::right("threads"), |row| value(row, Dimension::Threads))
        .column(Column::right("map"), |row| time(row, &["reserve_s"]))
        .column(Column::right("prefault"), |row| time(row, &["prefault_s"]))
        .column(Column::right("KVM"), |row| time(row, &["register_s", "vcpu_s"]))
        .column(Column::right("(guest)"), |row| time(row, &["guest_s"]))
        .column(Column::right("(release)"), |row| time(row, &["release_s"]));
    let note = "Medians. Phases in brackets are not part of the time above.";
    table.render(width) + &faint(note, width) + "\n"
}
