//! What goes with every result: the machine and its settings, the memory, the commit, the date.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::calibration::{Load, Mode, OperationProvenance, Provenance};
use bulkmem::Operation;
use bulkmem::machine::Machine;

use crate::measurements::choice::report::Evidence;

impl Evidence {
    /// The evidence of a run on this machine that ends now.
    pub(crate) fn collect(backing_page_size: usize, seconds: f64, samples: u64) -> Evidence {
        Evidence::below(Path::new("/"), Machine::current(), backing_page_size, seconds, samples)
    }

    /// The same, with the files of `/proc` and `/sys` taken from below `root`.
    fn below(
        root: &Path,
        machine: &Machine,
        backing_page_size: usize,
        seconds: f64,
        samples: u64,
    ) -> Evidence {
        Evidence {
            cpu: machine.cpu.clone(),
            microcode: machine.microcode.clone(),
            caches: [machine.caches.l1d, machine.caches.l2, machine.caches.l3],
            processors: machine.processors,
            kernel: machine.kernel.clone(),
            page_size: machine.page_size,
            backing_page_size,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            bulkmem: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("BULKMEM_COMMIT").unwrap_or("unknown").to_owned(),
            seconds,
            samples,
            hypervisor: machine.hypervisor.clone(),
            memory: machine.memory,
            nodes: machine.nodes,
            transparent_huge_pages: machine.transparent_huge_pages.clone(),
            governor: governor(root),
            turbo: turbo(root),
            smt: switch(root, "sys/devices/system/cpu/smt/active"),
            clock_source: word(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
            load: [None, load(root)],
        }
    }

    /// The same, as a profile has it, with the operations that were measured to the end, when, and under which load.
    pub(crate) fn provenance(
        self,
        mode: Mode,
        finished: &[(Operation, SystemTime, Option<Load>)],
    ) -> Provenance {
        let operations = finished.iter().map(|(operation, when, load)| OperationProvenance {
            operation: *operation,
            date: humantime::format_rfc3339_seconds(*when).to_string(),
            mode,
            bulkmem: self.bulkmem.clone(),
            commit: self.commit.clone(),
            microcode: self.microcode.clone(),
            kernel: self.kernel.clone(),
            backing_page_size: self.backing_page_size,
            load: load.clone(),
        });
        Provenance {
            operations: operations.collect(),
            complete: Operation::ALL.iter().all(|it| finished.iter().any(|(done, ..)| done == it)),
            cpu: self.cpu,
            microcode: self.microcode,
            caches: self.caches,
            processors: self.processors,
            kernel: self.kernel,
            page_size: self.page_size,
            backing_page_size: self.backing_page_size,
            date: self.date,
            bulkmem: self.bulkmem,
            commit: self.commit,
            mode,
            seconds: self.seconds,
            samples: self.samples,
        }
    }
}

/// What governs the clocks: of all processors, each once.
fn governor(root: &Path) -> Option<String> {
    let folders = fs::read_dir(root.join("sys/devices/system/cpu/cpufreq")).into_iter().flatten().flatten();
    let governors: BTreeSet<String> =
        folders.filter_map(|folder| word(&folder.path(), "scaling_governor")).collect();
    (!governors.is_empty()).then(|| governors.into_iter().collect::<Vec<_>>().join(","))
}

/// Whether clocks may rise above the nominal one: Intel's driver says when they may not, the others when they may.
fn turbo(root: &Path) -> Option<bool> {
    switch(root, "sys/devices/system/cpu/intel_pstate/no_turbo")
        .map(|off| !off)
        .or_else(|| switch(root, "sys/devices/system/cpu/cpufreq/boost"))
}

/// How many processes wanted to run, on average over a minute.
fn load(root: &Path) -> Option<f64> {
    word(root, "proc/loadavg")?.parse().ok().filter(|load: &f64| load.is_finite())
}

/// A file that holds 0 or 1.
fn switch(root: &Path, path: &str) -> Option<bool> {
    match word(root, path)?.as_str() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The first word of a file; `None` where there is none.
fn word(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()?.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_machine_the_moment_and_the_commit() {
        let evidence = Evidence::collect(4096, 1.5, 10);
        assert!(!evidence.cpu.vendor.is_empty() && !evidence.kernel.is_empty());
        assert!(humantime::parse_rfc3339(&evidence.date).is_ok(), "{}", evidence.date);
        assert!(!evidence.commit.is_empty() && evidence.memory > 0);
        let finished = Operation::ALL.map(|operation| (operation, SystemTime::now(), None));
        let part = evidence.clone().provenance(Mode::Quick, &finished[..4]);
        assert_eq!((part.samples, part.complete, part.mode), (10, false, Mode::Quick));
        let done: Vec<Operation> = part.operations.iter().map(|it| it.operation).collect();
        assert_eq!(done, Operation::ALL[..4]);
        assert!(evidence.provenance(Mode::Quick, &finished).complete);
    }

    fn with(files: &[(&str, &str)]) -> Evidence {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Evidence::below(root.path(), Machine::current(), 4096, 1.0, 1)
    }

    #[test]
    fn settings_are_read_where_the_kernel_shows_them() {
        let intel = with(&[
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpufreq/policy2/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/smt/active", "0\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock\n"),
            ("proc/loadavg", "12.25 7.56 3.78 11/192 18959\n"),
        ]);
        assert_eq!((intel.turbo, intel.smt), (Some(false), Some(false)));
        assert_eq!(intel.governor.as_deref(), Some("performance,powersave"));
        assert_eq!(intel.clock_source.as_deref(), Some("kvm-clock"));
        assert_eq!(intel.load, [None, Some(12.25)]);
        let amd = with(&[
            ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
            ("sys/devices/system/cpu/smt/active", "1"),
        ]);
        assert_eq!((amd.turbo, amd.smt, amd.governor), (Some(true), Some(true), None));
    }

    #[test]
    fn what_is_not_there_or_damaged_is_unknown() {
        for evidence in [
            with(&[]),
            with(&[
                ("sys/devices/system/cpu/intel_pstate/no_turbo", "yes"),
                ("sys/devices/system/cpu/smt/active", ""),
                ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "\n"),
                ("proc/loadavg", "NaN"),
            ]),
        ] {
            assert_eq!((evidence.turbo, evidence.smt, evidence.load), (None, None, [None, None]));
            assert_eq!((evidence.governor, evidence.clock_source), (None, None));
        }
    }

    /// Files of before these fields existed still load.
    #[test]
    fn what_an_older_file_lacks_is_unknown() {
        let mut json = serde_json::to_value(with(&[])).unwrap();
        let fields = json.as_object_mut().unwrap();
        for new in ["hypervisor", "memory", "nodes", "transparent_huge_pages", "governor", "turbo", "smt"] {
            fields.remove(new).expect(new);
        }
        fields.remove("clock_source");
        fields.remove("load");
        let evidence: Evidence = serde_json::from_value(json).unwrap();
        assert_eq!((evidence.memory, evidence.turbo, evidence.load), (0, None, [None, None]));
    }
}
