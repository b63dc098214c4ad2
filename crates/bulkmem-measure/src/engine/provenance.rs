//! Provenance of results: the machine and its settings, the memory, the commit, the date.

use std::collections::BTreeSet;
#[cfg(target_env = "gnu")]
use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use bulkmem::Operation;
use bulkmem::machine::{CpuIdentity, Machine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{libpmem, numa};

/// The machine, its settings, the date and the version that results come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The processor.
    pub cpu: CpuIdentity,
    /// Microcode revision, as the kernel prints it; empty where unknown.
    pub microcode: String,
    /// Data and unified cache sizes by level (index 0 is L1), bytes; 0 where unknown.
    pub caches: [u64; 3],
    /// How many processors the process could run on.
    pub processors: usize,
    /// Kernel release.
    pub kernel: String,
    /// Size of a base page, bytes.
    pub page_size: usize,
    /// Size of the pages behind the measured memory, as the kernel reported it, bytes.
    pub backing_page_size: usize,
    /// When the measuring ended: RFC 3339, UTC.
    pub date: String,
    /// Version of bulkmem.
    pub bulkmem: String,
    /// The commit bulkmem was built from; "unknown" outside a checkout.
    pub commit: String,
    /// Origin of the policy, for people; empty for a calibration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Samples taken in all.
    pub samples: u64,
    /// The hypervisor that this machine runs under; null where there is none, or where it hides.
    #[serde(default)]
    pub hypervisor: Option<String>,
    /// The emulator that the measuring ran under; absent if the processor is real. The times then say nothing about a
    /// processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<String>,
    /// Memory of the machine, bytes; 0 where unknown.
    #[serde(default)]
    pub memory: u64,
    /// NUMA nodes; 0 where unknown.
    #[serde(default)]
    pub nodes: usize,
    /// The processors that the process could run on, as a list (`0-3,8`), if these are not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_list: Option<String>,
    /// The NUMA nodes that memory was bound to, as a list, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_nodes: Option<String>,
    /// The kernel's setting for transparent huge pages: `always`, `madvise` or `never`; null where it has none.
    #[serde(default)]
    pub transparent_huge_pages: Option<String>,
    /// Clock governor, as the kernel calls it (`performance`, `powersave`, `schedutil`); several, with commas,
    /// if processors differ; null if the kernel does not govern the clock.
    #[serde(default)]
    pub governor: Option<String>,
    /// True if clocks may rise above the nominal one (turbo, boost); null if unknown.
    #[serde(default)]
    pub turbo: Option<bool>,
    /// True if threads share cores; null if unknown.
    #[serde(default)]
    pub smt: Option<bool>,
    /// The kernel's clock: `tsc` is read fast and finely, others are not.
    #[serde(default)]
    pub clock_source: Option<String>,
    /// How many processes wanted to run, on average over the minute before the measuring began and before it ended; null
    /// where unknown.
    #[serde(default)]
    pub load: [Option<f64>; 2],
    /// The C library, and libpmem if it was loaded, with their versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// The lengths from which the C library's functions bypass the cache, as a calibration located them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thresholds: Vec<Threshold>,
}

/// The length from which a function of the C library bypasses the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Threshold {
    /// Clear for `memset`, copy for `memcpy`.
    pub operation: Operation,
    /// The longest length below it, bytes: the cache holds what was written last. 0 if even the shortest bypasses the cache.
    pub cached: u64,
    /// The shortest length above it, bytes; absent if there is none at the lengths that were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncached: Option<u64>,
}

impl Provenance {
    /// The provenance of a run on this machine that ends now.
    pub(crate) fn collect(backing_page_size: usize, seconds: f64, samples: u64) -> Provenance {
        Provenance::below(Path::new("/"), backing_page_size, seconds, samples)
    }

    /// The same, with the files of `/proc` and `/sys` taken from below `root`.
    fn below(root: &Path, backing_page_size: usize, seconds: f64, samples: u64) -> Provenance {
        let machine = Machine::current();
        // A file that holds 0 or 1.
        let switch = |path| word(root, path)?.parse().ok().filter(|it| *it <= 1).map(|it: u8| it == 1);
        let load: Option<f64> = word(root, "proc/loadavg").and_then(|word| word.parse().ok());
        Provenance {
            cpu: machine.cpu.clone(),
            microcode: machine.microcode.clone(),
            caches: [machine.caches.l1d, machine.caches.l2, machine.caches.l3],
            processors: machine.processors,
            kernel: machine.kernel.clone(),
            page_size: machine.page_size,
            backing_page_size,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            bulkmem: env!("CARGO_PKG_VERSION").to_owned(),
            policy: String::new(),
            commit: option_env!("BULKMEM_COMMIT").unwrap_or("unknown").to_owned(),
            seconds,
            samples,
            hypervisor: machine.hypervisor.clone(),
            emulator: machine.emulator.clone(),
            memory: machine.memory,
            nodes: machine.nodes,
            processor_list: numa::restricted_processors(root).map(|it| it.to_string()),
            memory_nodes: numa::bound_nodes().map(|it| it.to_string()),
            transparent_huge_pages: machine.transparent_huge_pages.clone(),
            governor: governor(root),
            // Intel's driver reports when clocks may not rise, the others when they may.
            turbo: switch("sys/devices/system/cpu/intel_pstate/no_turbo")
                .map(|off| !off)
                .or_else(|| switch("sys/devices/system/cpu/cpufreq/boost")),
            smt: switch("sys/devices/system/cpu/smt/active"),
            clock_source: word(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
            load: [None, load.filter(|load| load.is_finite())],
            libraries: c_library().into_iter().chain(libpmem::version()).collect(),
            thresholds: Vec::new(),
        }
    }
}

impl Provenance {
    /// The note of a run that is restricted to some processors or nodes.
    pub(crate) fn placement(&self) -> Option<String> {
        let processors = self.processor_list.iter().map(|it| format!("processors: only {it}"));
        let memory = self.memory_nodes.iter().map(|it| format!("NUMA nodes of the memory: only {it}"));
        let texts: Vec<String> = processors.chain(memory).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Returns the name and version of the C library that this process uses; `None` if it is not glibc.
pub fn c_library() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the function returns a static text.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(format!("glibc {}", version.to_string_lossy()))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Returns the clock governors of all processors, each once.
fn governor(root: &Path) -> Option<String> {
    let folders = fs::read_dir(root.join("sys/devices/system/cpu/cpufreq")).into_iter().flatten().flatten();
    let governors: BTreeSet<String> =
        folders.filter_map(|folder| word(&folder.path(), "scaling_governor")).collect();
    (!governors.is_empty()).then(|| governors.into_iter().collect::<Vec<_>>().join(","))
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
        let provenance = Provenance::collect(4096, 1.5, 10);
        assert!(!provenance.cpu.vendor.is_empty() && !provenance.kernel.is_empty());
        assert!(humantime::parse_rfc3339(&provenance.date).is_ok(), "{}", provenance.date);
        assert!(!provenance.commit.is_empty() && provenance.memory > 0);
    }

    fn with(files: &[(&str, &str)]) -> Provenance {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Provenance::below(root.path(), 4096, 1.0, 1)
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
        for provenance in [
            with(&[]),
            with(&[
                ("sys/devices/system/cpu/intel_pstate/no_turbo", "yes"),
                ("sys/devices/system/cpu/smt/active", ""),
                ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "\n"),
                ("proc/loadavg", "NaN"),
            ]),
        ] {
            assert_eq!((provenance.turbo, provenance.smt, provenance.load), (None, None, [None, None]));
            assert_eq!((provenance.governor, provenance.clock_source), (None, None));
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
        let provenance: Provenance = serde_json::from_value(json).unwrap();
        assert_eq!((provenance.memory, provenance.turbo, provenance.load), (0, None, [None, None]));
    }
}
