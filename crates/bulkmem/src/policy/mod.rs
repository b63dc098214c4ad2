//! (operation, length, intent) → method and its parameters, read from the profile.

mod profile;

use crate::method::{Method, Parameters};

pub use profile::{
    Condition, Cost, CpuIdentity, FORMAT, Figure, Mode, Profile, Provenance, Rule, Saturation, VERSION,
};

/// What the policy answers: a method and its parameters, ready to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method; available on this machine.
    pub method: &'static Method,
    /// Its parameters; within its knobs' ranges.
    pub parameters: Parameters,
}
