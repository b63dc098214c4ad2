//! The measurements: one file or folder each.

mod all;
mod applications;
mod choice;
mod chunks;
mod corun;
mod fork;
mod iops;
mod numa;
mod participants;
mod persist;
mod pollution;
mod reuse;
mod sizes;
mod threshold;
mod tunables;
mod vm;

pub(crate) use crate::engine::options as checks;
pub use crate::target::device::Attributes;
pub use crate::target::{RAM, TargetOptions};
pub use all::all;
pub use applications::ApplicationOptions;
pub use bulkmem_kmod::{Attribute, UnknownAttribute};
pub use choice::{ChoiceOptions, Overall, TargetsOptions, is_baseline, overall};
pub use chunks::ChunksOptions;
pub use corun::{ALONE, CorunOptions, SAME_PROCESSOR_TIME, Victim, beside};
pub(crate) use corun::{FULL_RATE, KERNEL_4K};
pub(crate) use fork::{BYPASSING_COPIES, BYPASSING_PAGES, CACHED_PAGES, STRING_PAGES};
pub use fork::{CHILD_WRITES, ForkOptions};
pub use iops::IopsOptions;
pub use numa::{NumaOptions, local_of};
pub use participants::Candidates;
pub use persist::{BlocksOptions, PersistOptions};
pub(crate) use persist::{Crossover, HALVES, WHOLE, compared, crossovers, describe, longer};
pub use pollution::{NOTHING, PollutionOptions, SAME_TIME, alone, home_of};
pub use reuse::{Payoff, ReuseOptions, cache_effect, payoffs, pays_text};
pub use sizes::SizesOptions;
pub use threshold::{ThresholdOptions, UNCACHED, WALK, c_function, located};
pub use tunables::{
    Advice, Gain, PROCESS, SlowCopies, Tunable, TunablesOptions, answer_requests, tunables_here,
};
pub use vm::VmOptions;
pub(crate) use vm::{HINTED, PREFAULT};
