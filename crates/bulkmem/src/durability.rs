//! The platform's guarantee about power failures.

/// The contents that survive a power failure, which determine what a persisting operation must do.
///
/// The default comes from the policy: [`Durability::FlushToMemory`], unless the policy file says otherwise
/// (`bulkmem calibrate --durability caches-included`). [`Options::durability`](crate::Options::durability) overrides it.
/// The line is ignored in a file that `BULKMEM_PROFILE` names, because an inherited variable must not disable flushing. A
/// policy file is recognized by the processor model only: do not share one that says `caches-included` with machines
/// whose caches do not survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub enum Durability {
    /// Memory survives and caches do not (ADR): every line is written back, and a fence waits for it.
    #[default]
    FlushToMemory,
    /// Caches survive too (eADR, GPF): a persisting copy or fill is an ordinary one with a fence, and
    /// [`persist`](crate::persist) is a fence. On a machine where caches do not survive, a power failure loses data.
    CachesIncluded,
}

impl Durability {
    /// Every value, in the order of declaration.
    #[cfg(feature = "unstable-internals")]
    pub const ALL: [Durability; 2] = Durability::EVERY;
    #[cfg(not(feature = "unstable-internals"))]
    pub(crate) const ALL: [Durability; 2] = Durability::EVERY;
    const EVERY: [Durability; 2] = [Durability::FlushToMemory, Durability::CachesIncluded];

    /// Returns every value, in the order of declaration.
    pub fn all() -> impl ExactSizeIterator<Item = Durability> {
        Self::ALL.into_iter()
    }

    /// Returns the name that policy files and command lines use.
    pub const fn name(self) -> &'static str {
        match self {
            Durability::FlushToMemory => "flush-to-memory",
            Durability::CachesIncluded => "caches-included",
        }
    }
}
