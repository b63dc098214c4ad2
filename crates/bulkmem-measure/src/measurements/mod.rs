//! The measurements: one file or folder each.

mod all;
mod checks;
pub(crate) mod choice;
mod chunks;
mod corun;
pub(crate) mod device;
mod first_touch;
mod fork;
mod iops;
mod participants;
mod persist;
mod pollution;
mod reuse;
mod sizes;
mod slots;
mod target;
pub(crate) mod targets;
mod vm;

pub use all::all;
pub use bulkmem_kmod::{Attribute, BadAttribute};
pub use chunks::ChunksOptions;
pub use corun::{ALONE, CorunOptions, SAME_PROCESSOR_TIME, Victim};
pub use device::Attributes;
pub use fork::{CHILD_WRITES, ForkOptions};
pub use iops::IopsOptions;
pub use persist::PersistOptions;
pub use pollution::{NOTHING, PollutionOptions, SAME_TIME, home_of};
pub use reuse::{Payoff, Pays, ReuseOptions, payoffs};
pub use sizes::SizesOptions;
pub use target::{Target, TargetOptions};
pub use vm::VmOptions;
