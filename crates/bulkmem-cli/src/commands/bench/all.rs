//! `bulkmem bench all`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkmem_measure::engine::{Measure, Measurement, Results, distinct};
use bulkmem_measure::measurements::all;
use bulkmem_measure::reproduce::besides_all;
use clap::Args;

use super::common::{CountersArg, Display};
use super::rows::remarks;
use super::{
    applications, choice, counted, disturbance, fork, iops, numa, persist, reuse, sizes, threshold, vm,
};
use crate::commands::runner::{self, Files};
use crate::failure::Outcome;
use crate::output::{self, duration};
use crate::plain::plain;

/// Run every measurement; the expected duration is printed first
///
/// Runs every measurement of this list except choice and targets with its default options, for a report (`bulkmem report
/// FILE`), for comparing machines, and for `bulkmem reproduce`. Takes some minutes, or about one with --quick. Leave the
/// machine idle. Results are saved after each step; Ctrl-C keeps those that are complete.
#[derive(Args, Debug)]
pub(crate) struct AllArgs {
    /// Take about a minute: fewer and smaller sizes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    counters: CountersArg,
    #[command(flatten)]
    display: Display,
    /// Save the results to this file after each step
    #[arg(long, value_name = "FILE", default_value = "bulkmem-results.json")]
    output: PathBuf,
}

pub(super) fn run(args: &AllArgs) -> Outcome {
    let measurements: Vec<_> = all(args.quick).into_iter().chain(besides_all(args.quick)).collect();
    let measurements: Vec<&dyn Measure> = measurements.iter().map(AsRef::as_ref).collect();
    let seconds: f64 = measurements.iter().map(|it| it.seconds()).sum();
    output::note(&format!(
        "bench all: {} measurements, about {} on an idle machine; results are saved to {}",
        distinct(measurements.iter().map(|it| it.measurement())).len(),
        duration(Duration::from_secs_f64(seconds)),
        plain(&args.output.display().to_string())
    ))?;
    let files = Files { json: Some(&args.output), csv: args.display.csv.as_deref(), inputs: &[] };
    runner::run("bench all", &measurements, args.counters.counters, files, |found| {
        args.display.print(found, &|found, width| text(found, &args.output, width))
    })
}

fn text(found: &Results, saved: &Path, width: usize) -> String {
    let tables = found.measurements().into_iter().map(|it| view(it)(&found.only(it), width) + "\n");
    let rest = Results { rows: Vec::new(), findings: Vec::new(), ..found.clone() };
    let path = plain(&saved.display().to_string());
    format!(
        "{}{}{}Saved to {path}. `bulkmem report {path}` shows it as a page, `bulkmem reproduce {path}` compares it with \
         published figures.\n",
        tables.collect::<String>(),
        counted::text(found, width),
        remarks(&rest, width),
    )
}

fn view(measurement: Measurement) -> fn(&Results, usize) -> String {
    match measurement {
        Measurement::Clear | Measurement::Fill | Measurement::Copy => {
            |found, width| sizes::view(found, sizes::BASELINE, width)
        }
        Measurement::Chunks => sizes::view_chunks,
        Measurement::Vm => vm::view,
        Measurement::Persist | Measurement::Blocks => persist::view,
        Measurement::Pollution => disturbance::view_pollution,
        Measurement::Corun => disturbance::view_corun,
        Measurement::Reuse => reuse::view,
        Measurement::Fork => fork::view,
        Measurement::Iops => iops::view,
        Measurement::WriteCache => applications::view_write_cache,
        Measurement::Log => applications::view_log,
        Measurement::Threshold => threshold::view,
        Measurement::Numa => numa::view,
        Measurement::Choice => choice::view,
        Measurement::Targets => choice::view_targets,
        Measurement::Tunables => |found, width| sizes::view(found, "unchanged, run 1", width),
    }
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::Provenance;
    use bulkmem_measure::engine::Row;
    use bulkmem_measure::stats::Stats;
    use serde_json::json;

    use super::*;

    fn row(measurement: Measurement, [kind, name]: [&str; 2], config: serde_json::Value) -> Row {
        let samples = [1.0, 1.1, 0.9, 1.05, 0.95];
        let metric = if measurement == Measurement::Threshold { "bandwidth" } else { "seconds" };
        serde_json::from_value(json!({
            "measurement": measurement, "candidate": { "kind": kind, "name": name }, "config": config,
            "metric": metric, "samples": samples, "stats": Stats::of(&samples), "flags": ["noise"],
        }))
        .expect("a row")
    }

    /// Returns the tables of one measurement as text without styles.
    fn tables(measurement: Measurement, rows: &[Row], width: usize) -> String {
        let found = Results {
            format: Results::FORMAT.to_owned(),
            version: Results::VERSION,
            provenance: Provenance::default(),
            command: Vec::new(),
            rows: rows.to_vec(),
            findings: Vec::new(),
            notes: Vec::new(),
            complete: true,
        };
        anstream::adapter::strip_str(&view(measurement)(&found, width)).to_string()
    }

    #[test]
    fn doubtful_rows_are_marked_in_tables_of_their_own_layout() {
        let clear = || json!({ "operation": "clear", "size": 1 << 30, "rate": 1.0, "chunk": 1 << 21 });
        for (measurement, candidate, config) in [
            (Measurement::Threshold, ["peer", "c_library"], clear()),
            (Measurement::Corun, ["method", "movnti"], clear()),
            (Measurement::Vm, ["kernel", "prefault"], json!({ "size": 1 << 30, "memory": "fresh" })),
            (Measurement::Fork, ["kernel", "fork alone"], json!({ "size": 4096, "page_size": "4K" })),
        ] {
            let mut rows = [row(measurement, candidate, config)];
            let text = tables(measurement, &rows, 80);
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains("±7.1%~") && words.contains("~ doubtful: the notes say why."), "{text}");
            rows[0].flags.clear();
            let text = tables(measurement, &rows, 80);
            assert!(text.contains("±7.1%") && !text.contains("%~"), "{text}");
        }
    }

    #[test]
    fn the_longest_names_of_memory_for_a_machine_fit_into_80_columns() {
        let memory =
            |memory: &str| json!({ "size": 1 << 30, "threads": 2, "page_size": "thp", "memory": memory });
        let mut rows = [
            row(Measurement::Vm, ["kernel", "KVM virtual machine, hinted"], memory("fresh")),
            row(Measurement::Vm, ["method", "nontemporal_streams_avx512"], memory("reused")),
        ];
        rows[1].candidate.parameters.streams = 16;
        let text = tables(Measurement::Vm, &rows, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for words in [
            "vm, 1 GiB in thp pages, fresh memory",
            "vm, 1 GiB in thp pages, reused memory",
            "\nkernel: KVM virtual machine, hinted        2",
            "\nnontemporal_streams_avx512        2",
            "With parameters: nontemporal_streams_avx512[streams=16].",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("too narrow"), "{text}");
    }
}
