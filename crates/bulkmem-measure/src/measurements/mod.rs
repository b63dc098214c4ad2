//! The measurements: one file or folder each.

mod all;
mod checks;
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
mod slots;
mod vm;

pub use crate::target::device::Attributes;
pub use crate::target::{Target, TargetOptions};
pub use all::all;
pub use bulkmem_kmod::{Attribute, UnknownAttribute};
pub use choice::{
    ChoiceOptions, Overall, Regret, TargetsOptions, is_baseline, overall, regret, unmeasured_lengths,
};
pub use chunks::ChunksOptions;
pub use corun::{ALONE, CorunOptions, SAME_PROCESSOR_TIME, Victim};
pub use fork::{CHILD_WRITES, ForkOptions};
pub use iops::IopsOptions;
pub use persist::PersistOptions;
pub use pollution::{NOTHING, PollutionOptions, SAME_TIME, home_of};
pub use reuse::{Payoff, Pays, ReuseOptions, payoffs};
pub use sizes::SizesOptions;
pub use vm::VmOptions;
