//! `bulkmem bench vm`.

use bulkmem_measure::engine::{Dimension, Measurement, Memory, PageSize, Results, Row};
use bulkmem_measure::measurements::VmOptions;
use clap::Args;

use super::common::Common;
use super::rows::{group_by, is_best, name, remarks, value};
use crate::failure::Outcome;
use crate::figures::deviation;
use crate::output::{Column, Table, digits, faint, marked, section};
use crate::parsers::{given_or, size, threads};

/// Memory for a virtual machine: reserved, prefaulted and cleared by the kernel, and cleared again by each method
///
/// Fresh memory: the kernel clears it while it is prefaulted, as QEMU does before a guest starts, on one thread and on
/// several with a part each. If /dev/kvm can be used, the same memory also becomes that of a real virtual machine. Reused
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
time), `release_s` (not part of the time), and `first_s` (the untimed first round).")]
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
    let default = VmOptions::default();
    let (methods, peers, runs) = args.common.candidates();
    let options = VmOptions {
        size: args.size.unwrap_or(default.size),
        page_sizes: given_or(args.page_size.clone(), default.page_sizes),
        threads: given_or(args.threads.clone(), default.threads),
        hint: args.hint,
        methods,
        peers,
        runs,
    };
    args.common.outputs.run(None, &options, view)
}

/// Shows for each size and page size the time of each candidate, and the phases of fresh memory.
pub(super) fn view(found: &Results, width: usize) -> String {
    let config = |row: &Row| [Dimension::Size, Dimension::PageSize].map(|dimension| value(row, dimension));
    let tables = group_by(found.of(Measurement::Vm), config).into_iter().map(|rows| {
        let [size, page_size] = config(rows[0]);
        let heading = format!("vm, {size} in {page_size} pages");
        section(&heading, &times(&rows, width), width) + &phases(&rows, width)
    });
    tables.collect::<String>() + &remarks(found, width)
}

fn times(rows: &[&Row], width: usize) -> String {
    let base = rows.iter().find(|row| row.config.memory == Some(Memory::Fresh)).map(|row| row.stats.median);
    let longest = rows.iter().map(|row| row.stats.mean).fold(0.0, f64::max);
    let (unit, scale) = if longest < 1.0 { ("milliseconds", 1e3) } else { ("seconds", 1.0) };
    let mut table = Table::new([
        Column::left("memory").optional(1),
        Column::left(""),
        Column::right("threads"),
        Column::right(format!("{unit} ")),
        Column::right("bytes/ns"),
        Column::right("times"),
    ]);
    for rivals in group_by(rows.iter().copied(), |row| row.config.memory) {
        for row in &rivals {
            let seconds = format!("{} ±{}", digits(row.stats.mean * scale), deviation(row));
            table.row([
                value(row, Dimension::Memory),
                name(row),
                value(row, Dimension::Threads),
                marked(&seconds, is_best(&rivals, row)),
                digits(row.config.size.map_or(f64::NAN, |size| size as f64 / 1e9 / row.stats.median)),
                digits(base.map_or(f64::NAN, |base| base / row.stats.median)),
            ]);
        }
    }
    let note = "Mean ± standard deviation; other columns by medians. * marks the best of fresh and of reused memory.";
    table.render(width) + &faint(note, width)
}

fn phases(rows: &[&Row], width: usize) -> String {
    const PHASES: [(&str, &[&str]); 5] = [
        ("map", &["reserve_s"]),
        ("prefault", &["prefault_s"]),
        ("KVM", &["register_s", "vcpu_s"]),
        ("(guest)", &["guest_s"]),
        ("(release)", &["release_s"]),
    ];
    let mut fresh = rows.iter().filter(|row| row.config.memory == Some(Memory::Fresh)).peekable();
    if fresh.peek().is_none() {
        return String::new();
    }
    let titles = PHASES.iter().map(|(title, _)| Column::right(*title));
    let mut table =
        Table::new([Column::left("milliseconds"), Column::right("threads")].into_iter().chain(titles));
    for row in fresh {
        let cells = PHASES.iter().map(|(_, keys)| {
            let seconds: Option<f64> = keys.iter().map(|key| row.also.get(*key)).sum();
            digits(seconds.map_or(f64::NAN, |seconds| seconds * 1e3))
        });
        table.row([row.candidate.name.clone(), value(row, Dimension::Threads)].into_iter().chain(cells));
    }
    table.render(width) + &faint("Medians. Phases in brackets are not part of the time above.", width) + "\n"
}
