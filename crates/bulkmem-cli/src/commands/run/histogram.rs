//! `bulkmem run --histogram`: runs a program and reports its memory operations by length.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::os::fd::AsRawFd;
use std::process::{self, Command};

use bulkmem::pointers::{self, Thresholds};
use bulkmem::policy::Policy;
use bulkmem::{Intent, Operation};
use bulkmem_histogram::{self as counts, CLASSES, Call, Process as Counted, lengths_of};
use bulkmem_measure::calibration::Cost;
use bulkmem_measure::engine::CacheState;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use schemars::JsonSchema;
use serde::Serialize;

use super::child::Ended;
use crate::active_policy::ActivePolicy;
use crate::commands::branches::Branches;
use crate::commands::lengths;
use crate::failure::Failure;
use crate::figures::{self, Series};

/// The operations that the functions of the C library are.
const OPERATIONS: [Operation; 3] = [Operation::Clear, Operation::Fill, Operation::Copy];

/// The processes of a program with their memory operations by length, as `bulkmem run --histogram --json` writes them.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::commands) struct Histogram {
    /// Always `bulkmem-histogram`.
    format: &'static str,
    /// The version of this format, 1.
    version: u32,
    /// Version of bulkmem.
    bulkmem: &'static str,
    /// The program and its arguments.
    command: Vec<String>,
    /// Date of the profile from which savings are predicted. Null if there is none.
    pub(super) profile: Option<String>,
    /// False if the program itself left no record, for example because it is statically linked.
    pub(super) program_recorded: bool,
    /// Number of processes for which there was no record.
    pub(super) without_record: u64,
    /// Length in bytes from which the policy chooses the method, by operation: `clear`, `copy` and `fill`. Null if it never does.
    pub(super) thresholds: BTreeMap<&'static str, Option<u64>>,
    /// The sum over all processes.
    pub(super) total: Tally,
    /// Copies below the threshold that the policy executed, because page aliasing would slow them down in the C library: the
    /// sum over all processes.
    pub(super) aliased: Count,
    /// The sum over all processes, by operation and length.
    pub(super) lengths: Vec<Length>,
    /// The processes, in the order in which they started.
    pub(super) processes: Vec<Process>,
}

/// The memory operations of one program in one process.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Process {
    /// Its number, in its own process namespace.
    pub(super) pid: u32,
    /// The process that forked it, if it has not executed a program since; otherwise null.
    forked_from: Option<u32>,
    /// True if the counts include those of some of its children.
    pub(super) with_children: bool,
    /// Name of the executed file.
    pub(super) name: String,
    /// The sum over all operations and lengths.
    pub(super) total: Tally,
    /// Copies below the threshold that the policy executed, because page aliasing would slow them down in the C library.
    aliased: Count,
    /// By operation and length.
    lengths: Vec<Length>,
}

/// Calls of an operation with lengths of one class.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Length {
    /// `copy`, `clear` or `fill`.
    pub(super) operation: Operation,
    /// Smallest length, bytes.
    pub(super) from: u64,
    /// Largest length, bytes.
    to: u64,
    /// The sum over all functions.
    #[serde(flatten)]
    pub(super) tally: Tally,
    /// By function of the C library.
    functions: BTreeMap<&'static str, Count>,
    /// The policy's choices for the mean length above the threshold. Null if no call is above it.
    pub(super) methods: Option<Methods>,
}

/// Methods with parameters, as `BULKMEM_METHOD` takes them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Methods {
    /// If the memory is cached. Differs from `uncached` only if the operation looks at the cache state.
    pub(super) cached: String,
    /// If it is not cached.
    pub(super) uncached: String,
}

/// A number of calls and their bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Count {
    /// Number of calls.
    pub(super) calls: u64,
    /// Sum of their lengths.
    pub(super) bytes: u64,
}

/// Counts and predictions.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Tally {
    /// All calls.
    #[serde(flatten)]
    pub(super) all: Count,
    /// The calls for which the policy chose the method. The C library executed the others.
    pub(super) above_threshold: Count,
    /// Predicted saving compared with the C library if all memory is cached. Null if nothing can be predicted.
    pub(super) cached: Option<Saving>,
    /// The same if no memory is cached.
    pub(super) uncached: Option<Saving>,
}

/// A predicted saving.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Saving {
    /// Time saved, nanoseconds; negative if the C library is faster.
    pub(super) ns: f64,
    /// Bytes above the threshold for which it is predicted: both methods were measured at about that length.
    pub(super) bytes: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        // The program could have written anything to the file.
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl From<counts::Count> for Count {
    fn from(counts::Count { calls, bytes }: counts::Count) -> Count {
        Count { calls, bytes }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.all += other.all;
        self.above_threshold += other.above_threshold;
        for (sum, more) in [(&mut self.cached, other.cached), (&mut self.uncached, other.uncached)] {
            if let Some(more) = more {
                let sum = sum.get_or_insert_default();
                sum.ns += more.ns;
                sum.bytes = sum.bytes.saturating_add(more.bytes);
            }
        }
    }
}

/// Creates the file in which processes count. It is in memory and disappears with the last process that has it.
pub(super) fn create() -> Result<File, Failure> {
    let create = || {
        let file =
            File::from(memfd_create("bulkmem-histogram", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        // A limit of file sizes is an error, not the end of this command.
        // SAFETY: signal has no precondition; the action is the one that was there before.
        unsafe {
            let before = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let prepared = counts::prepare(&file);
            libc::signal(libc::SIGXFSZ, before);
            prepared?;
        }
        // A process that maps it must not lose pages.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    };
    create().map_err(|error: io::Error| Failure::new(format!("cannot create a file in memory: {error}")))
}

/// Lets a program count in a file.
pub(super) fn count_in(file: &File, command: &mut Command) {
    command.env("BULKMEM_HISTOGRAM", format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd()));
}

impl Histogram {
    /// Reads the counts and predicts the savings.
    pub(super) fn read(
        file: &File,
        ended: &Ended,
        command: &[OsString],
        active: &ActivePolicy,
        from: Option<u64>,
    ) -> Result<Histogram, Failure> {
        let counted =
            counts::read(file).map_err(|error| Failure::new(format!("cannot read the counts: {error}")))?;
        let series = active.profile.as_ref().map(|(_, profile)| figures::all(profile)).unwrap_or_default();
        let from = from.map(|from| usize::try_from(from).unwrap_or(usize::MAX));
        // The program has the variables of this command, and --histogram excludes mapping pages in advance.
        let thresholds = pointers::thresholds(OPERATIONS, from, false);
        let policy = Preloaded { policy: &active.policy, thresholds };
        let process = |process| Process::of(process, &policy, &series);
        let processes: Vec<_> = counted.processes.iter().map(process).collect();
        let mut lengths: BTreeMap<(Operation, u64), Length> = BTreeMap::new();
        let mut total = Tally::default();
        for length in processes.iter().flat_map(|process| &process.lengths) {
            total += length.tally;
            lengths
                .entry((length.operation, length.from))
                .and_modify(|sum| sum.add(length))
                .or_insert_with(|| length.clone());
        }
        let mut aliased = Count::default();
        processes.iter().for_each(|process| aliased += process.aliased);
        let mut lengths: Vec<_> = lengths.into_values().collect();
        for length in &mut lengths {
            length.choose(&policy);
        }
        Ok(Histogram {
            format: "bulkmem-histogram",
            version: 1,
            bulkmem: env!("CARGO_PKG_VERSION"),
            command: command.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            profile: active.profile.as_ref().map(|(_, profile)| profile.provenance.date.clone()),
            program_recorded: processes.iter().any(|process| process.pid == ended.pid),
            without_record: counted.without_record,
            thresholds: policy.by_name(),
            total,
            aliased,
            lengths,
            processes,
        })
    }
}

/// The policy as the preloaded library uses it.
struct Preloaded<'p> {
    policy: &'p Policy,
    /// Of [`OPERATIONS`].
    thresholds: [Thresholds; OPERATIONS.len()],
}

impl Preloaded<'_> {
    fn by_name(&self) -> BTreeMap<&'static str, Option<u64>> {
        let from = |from: usize| (from < usize::MAX).then_some(from as u64);
        let all = OPERATIONS.iter().zip(&self.thresholds);
        all.map(|(operation, it)| (operation.name(), from(it.policy_from))).collect()
    }

    /// The choices for a call that the policy decides on, and the cost by which they were chosen.
    fn branches(&self, operation: Operation, length: usize) -> Option<(Branches, Cost)> {
        let (_, thresholds) = OPERATIONS.iter().zip(&self.thresholds).find(|(of, _)| **of == operation)?;
        let (intent, cost) = if length < thresholds.reused_below {
            (Intent::Reuse, Cost::Reuse)
        } else {
            (Intent::Throughput, Cost::Throughput)
        };
        Some((Branches::find(self.policy, operation, length, intent, 1)?, cost))
    }
}

impl Process {
    fn of(counted: &Counted, policy: &Preloaded<'_>, series: &[Series<'_>]) -> Process {
        let lengths = |operation| (0..CLASSES).filter_map(move |class| Length::of(counted, operation, class));
        let mut lengths: Vec<Length> = OPERATIONS.into_iter().flat_map(lengths).collect();
        let mut total = Tally::default();
        for length in &mut lengths {
            length.predict(policy, series);
            total += length.tally;
        }
        let Counted { pid, forked_from, with_children, ref name, .. } = *counted;
        let aliased = counted.aliased().into();
        Process { pid, forked_from, with_children, name: name.clone(), total, aliased, lengths }
    }
}

impl Length {
    /// Returns `None` if there was no such call.
    fn of(counted: &Counted, operation: Operation, class: usize) -> Option<Length> {
        let (from, to) = lengths_of(class);
        let (mut tally, mut functions) = (Tally::default(), BTreeMap::<_, Count>::new());
        for call in Call::ALL.into_iter().filter(|call| call.operation() == operation) {
            let count = Count::from(counted.calls(call, class));
            if count.calls > 0 {
                *functions.entry(call.function()).or_default() += count;
                tally.all += count;
            }
        }
        tally.above_threshold = counted.above_threshold(operation, class).into();
        (tally.all.calls > 0).then_some(Length { operation, from, to, tally, functions, methods: None })
    }

    fn add(&mut self, other: &Length) {
        self.tally += other.tally;
        for (function, count) in &other.functions {
            *self.functions.entry(function).or_default() += *count;
        }
    }

    /// Finds the policy's choices for the mean length above the threshold, which it returns too.
    fn choose(&mut self, policy: &Preloaded<'_>) -> Option<(u64, Branches, Cost)> {
        let mean = self.tally.above_threshold.bytes.checked_div(self.tally.above_threshold.calls)?;
        let (branches, cost) = policy.branches(self.operation, mean as usize)?;
        let (cached, uncached) = (branches.cached.to_string(), branches.uncached.to_string());
        self.methods = Some(Methods { cached, uncached });
        Some((mean, branches, cost))
    }

    /// Predicts the saving of the policy's choices from the measurements nearest to the mean length.
    fn predict(&mut self, policy: &Preloaded<'_>, series: &[Series<'_>]) {
        let Some((mean, branches, cost)) = self.choose(policy) else { return };
        let bytes = self.tally.above_threshold.bytes;
        let saving = |state| {
            let choice = branches.choice(state == CacheState::Warm);
            let cell = lengths::measured(series, self.operation, mean, state, cost, choice)?;
            let ns = bytes as f64 / cell.gb_per_s? * (cell.times_c_library? - 1.0);
            Some(Saving { ns, bytes })
        };
        (self.tally.cached, self.tally.uncached) = (saving(CacheState::Warm), saving(CacheState::Cold));
    }
}
