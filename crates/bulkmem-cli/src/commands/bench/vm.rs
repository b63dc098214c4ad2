//! `bulkmem bench vm`.

use std::num::NonZeroUsize;

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Memory, Results, Row};
use bulkmem_measure::measurements::VmOptions;
use clap::Args;

use super::common::{Common, MethodArgs, remarks};
use super::pivot::{digits, name, value};
use crate::failure::Outcome;
use crate::figures::deviation;
use crate::output::{Column, FAINT, GOOD, HEADING, Table, styled, wrapped};
use crate::parsers::size;
use bulkmem_measure::engine::PageSize;

/// Memory for a virtual machine: reserve, prefault and clear it; by the kernel, and again by each method
///
/// Fresh memory: the kernel clears it while it is made ready, as QEMU has it before a guest starts (mmap, then
/// MADV_POPULATE_WRITE), by one thread and by several that get a part each. Where /dev/kvm can be used, the same memory
/// also becomes that of a real virtual machine, whose processor looks at 4096 places of it and writes there.
///
/// Reused memory: it belonged to a guest before and is cleared for the next one, by each method and as the policy
/// chooses.
///
/// Lower is better, and bytes/ns are GB/s. "times" is how many times as fast as fresh memory by one thread of the
/// kernel's. Compare with other machines by bytes/ns: the published figures are of 192 GB.
///
/// 2M and 1G pages that are missing are reserved, which takes root, and given back afterwards, also when the command is
/// interrupted or killed. An untimed round comes first: memory that a virtual machine touches for the first time must
/// be found by its host, which takes several times as long, once.
///
/// Source: Ankur Arora, "huge page clearing optimizations", linux-kernel, 2022.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: rows as all measurements have them; `metric` is `seconds`; `config` has `size`, `page_size`, `threads` and `memory` (`fresh` \
or `reused`); `also` has `bytes_per_ns`, and for fresh memory the phases `reserve_s` (mapping), `prefault_s`, `register_s` \
(creating the virtual machine and handing the memory over), `vcpu_s` (its processor), `guest_s` (the guest looks at its \
memory; not part of the time) and `release_s` (giving all back; not part of it), and `first_s` (the untimed first round).")]
pub(crate) struct VmArgs {
    /// The memory's size [default: half of what is available, at most 4G]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<u64>,
    /// The pages behind it: 4K, thp (transparent huge pages), 2M, 1G [default: thp, and 2M where they can be had]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub(crate) page_size: Vec<PageSize>,
    /// Threads that share the work [default: 1, and as many as there are processors]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) threads: Vec<NonZeroUsize>,
    /// Beside fresh memory, the same declared to the kernel module as one extent (docs/kernel/README.md); a note says so
    /// where the module is not there
    #[arg(long)]
    pub(crate) hint: bool,
    #[command(flatten)]
    pub(crate) methods: MethodArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(super) fn run(args: &VmArgs) -> Outcome {
    let usual = VmOptions::default();
    let or = |given: Vec<_>, usual| if given.is_empty() { usual } else { given };
    let options = VmOptions {
        size: args.size.unwrap_or(usual.size),
        page_sizes: if args.page_size.is_empty() { usual.page_sizes } else { args.page_size.clone() },
        threads: or(args.threads.iter().map(|threads| threads.get()).collect(), usual.threads),
        methods: args.methods.wanted(),
        peers: args.common.peers(),
        hint: args.hint,
        runs: args.common.runs(),
    };
    args.common.run(&[&options], text)
}

/// The tables: for each size and page size who took how long, and where the time went.
pub(super) fn text(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(bulkmem_measure::engine::Measurement::Vm).collect();
    let mut text = String::new();
    let mut configs: Vec<(String, String)> = Vec::new();
    for row in &rows {
        let config = (value(row, Dimension::Size), value(row, Dimension::PageSize));
        if configs.contains(&config) {
            continue;
        }
        let of_place: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| (value(row, Dimension::Size), value(row, Dimension::PageSize)) == config)
            .collect();
        let heading = format!("vm, {} in {} pages", config.0, config.1);
        text += &format!("{}\n{}\n", styled(HEADING, heading), times(&of_place, width));
        text += &phases(&of_place, width);
        configs.push(config);
    }
    text + &remarks(found, width)
}

fn times(rows: &[&Row], width: usize) -> String {
    let fresh = |row: &&&Row| row.config.memory == Some(Memory::Fresh);
    let base = rows.iter().find(fresh).map(|row| row.stats.median);
    // One unit for all.
    let most = rows.iter().map(|row| row.stats.mean).fold(0.0, f64::max);
    let (unit, scale) = if most < 1.0 { ("milliseconds", 1e3) } else { ("seconds", 1.0) };
    let mut table = Table::new([
        Column::left("memory").optional(1),
        Column::left(""),
        Column::right("threads"),
        Column::right(format!("{unit} ")),
        Column::right("bytes/ns"),
        Column::right("times"),
    ]);
    for row in rows {
        let best = rows
            .iter()
            .filter(|rival| {
                rival.config.memory == row.config.memory
                    && !matches!(rival.candidate.kind, Kind::Read | Kind::Control)
            })
            .min_by(|one, other| one.stats.median.total_cmp(&other.stats.median));
        let seconds = format!("{} ±{}", digits(row.stats.mean * scale), deviation(row));
        table.row([
            value(row, Dimension::Memory),
            name(row),
            value(row, Dimension::Threads),
            if best == Some(row) { styled(GOOD, format!("{seconds}*")) } else { format!("{seconds} ") },
            row.config.size.map_or("–".to_owned(), |size| digits(size as f64 / 1e9 / row.stats.median)),
            base.map_or("–".to_owned(), |base| digits(base / row.stats.median)),
        ]);
    }
    let note =
        "Mean ± standard deviation; the others by medians. * marks the best of fresh and of reused memory.";
    format!("{}{}\n", table.render(width), styled(FAINT, wrapped(note, "", width)))
}

/// Where the time of fresh memory went.
fn phases(rows: &[&Row], width: usize) -> String {
    const PHASES: [(&str, &[&str]); 5] = [
        ("map", &["reserve_s"]),
        ("prefault", &["prefault_s"]),
        ("KVM", &["register_s", "vcpu_s"]),
        ("(guest)", &["guest_s"]),
        ("(release)", &["release_s"]),
    ];
    let fresh: Vec<&&Row> = rows.iter().filter(|row| row.config.memory == Some(Memory::Fresh)).collect();
    if fresh.is_empty() {
        return String::new();
    }
    let titles = PHASES.iter().map(|(title, _)| Column::right(*title));
    let mut table =
        Table::new([Column::left("milliseconds"), Column::right("threads")].into_iter().chain(titles));
    for row in fresh {
        let cells = PHASES.iter().map(|(_, keys)| {
            let seconds: Option<f64> = keys.iter().map(|key| row.also.get(*key)).sum();
            seconds.map_or("–".to_owned(), |seconds| digits(seconds * 1e3))
        });
        table.row([row.candidate.name.clone(), value(row, Dimension::Threads)].into_iter().chain(cells));
    }
    let note = "Medians. What is in brackets is not part of the time above.";
    format!("{}{}\n\n", table.render(width), styled(FAINT, note))
}
