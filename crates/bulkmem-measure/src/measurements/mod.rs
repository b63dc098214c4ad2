//! The measurements: one file or folder each.

mod all;
mod choice;
mod chunks;
mod corun;
mod fork;
mod iops;
mod participants;
mod persist;
mod pollution;
mod reuse;
mod sizes;
mod tunables;
mod vm;

pub(crate) use crate::engine::options as checks;
pub use crate::target::device::Attributes;
pub use crate::target::{RAM, TargetOptions};
pub use all::all;
pub use bulkmem_kmod::{Attribute, UnknownAttribute};
pub use choice::{ChoiceOptions, Overall, TargetsOptions, is_baseline, overall};
pub use chunks::ChunksOptions;
pub(crate) use corun::KERNEL_4K;
pub use corun::{ALONE, CorunOptions, SAME_PROCESSOR_TIME, Victim, beside};
pub use fork::{CHILD_WRITES, ForkOptions};
pub use iops::IopsOptions;
pub use participants::Candidates;
pub use persist::PersistOptions;
pub use pollution::{NOTHING, PollutionOptions, SAME_TIME, alone, home_of};
pub use reuse::{Payoff, ReuseOptions, cache_effect, payoffs, pays_text};
pub use sizes::SizesOptions;
pub use tunables::{Advice, Gain, PROCESS, Tunable, TunablesOptions, answer_requests};
pub use vm::VmOptions;
pub(crate) use vm::{HINTED, PREFAULT};
