//! Operations, and what the caller does with the bytes afterwards.

use std::fmt;
use std::str::FromStr;

/// An operation on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub enum Operation {
    /// Sets every byte to zero.
    Clear,
    /// Sets every byte to one value.
    Fill,
    /// Copies one range to another.
    Copy,
    /// Fills a range and makes it durable: when it returns, the bytes have left the processor's caches.
    FillPersist,
    /// Copies one range to another and makes the destination durable.
    CopyPersist,
    /// Makes durable what ordinary stores wrote.
    Persist,
}

/// The caller's intent for the bytes after the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub enum Intent {
    /// Not known. The policy minimizes the time of the operation itself.
    #[default]
    Throughput,
    /// The bytes are read soon. The policy minimizes the time of the operation and of reading them. That may mean to bypass
    /// the cache, for long operations that [find](crate::look) the memory uncached.
    Reuse,
    /// The bytes are not read soon. The policy minimizes the operation's effect on other users of the cache; a copy may
    /// evict its source, too.
    Stream,
}

impl Operation {
    /// Every operation, in the order of declaration.
    #[cfg(feature = "unstable-internals")]
    pub const ALL: [Operation; 6] = Operation::EVERY;
    #[cfg(not(feature = "unstable-internals"))]
    pub(crate) const ALL: [Operation; 6] = Operation::EVERY;
    const EVERY: [Operation; 6] = [
        Operation::Clear,
        Operation::Fill,
        Operation::Copy,
        Operation::FillPersist,
        Operation::CopyPersist,
        Operation::Persist,
    ];

    /// Returns every operation, in the order of declaration.
    pub fn all() -> impl ExactSizeIterator<Item = Operation> {
        Self::ALL.into_iter()
    }

    /// Returns the name that profiles, command lines and `BULKMEM_METHOD` use.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Clear => "clear",
            Operation::Fill => "fill",
            Operation::Copy => "copy",
            Operation::FillPersist => "fill_persist",
            Operation::CopyPersist => "copy_persist",
            Operation::Persist => "persist",
        }
    }

    /// True if the operation reads a source range.
    pub const fn has_source(self) -> bool {
        matches!(self, Operation::Copy | Operation::CopyPersist)
    }

    /// True if the bytes are durable when the operation returns.
    pub const fn persists(self) -> bool {
        matches!(self, Operation::FillPersist | Operation::CopyPersist | Operation::Persist)
    }
}

impl Intent {
    /// Every intent, in the order of declaration.
    #[cfg(feature = "unstable-internals")]
    pub const ALL: [Intent; 3] = Intent::EVERY;
    #[cfg(not(feature = "unstable-internals"))]
    pub(crate) const ALL: [Intent; 3] = Intent::EVERY;
    const EVERY: [Intent; 3] = [Intent::Throughput, Intent::Reuse, Intent::Stream];

    /// Returns every intent, in the order of declaration.
    pub fn all() -> impl ExactSizeIterator<Item = Intent> {
        Self::ALL.into_iter()
    }

    /// Returns the name that profiles and command lines use.
    pub const fn name(self) -> &'static str {
        match self {
            Intent::Throughput => "throughput",
            Intent::Reuse => "reuse",
            Intent::Stream => "stream",
        }
    }
}

/// An unknown name. The message lists the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{given}`; known are: {known}")]
pub struct UnknownName {
    kind: &'static str,
    given: String,
    known: String,
}

/// `Display` and `FromStr` of a type that has `ALL` and `name`.
macro_rules! named {
    ($type:ty, $kind:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl $type {
            /// Returns the value of that name. Does not allocate.
            pub(crate) fn by_name(name: &str) -> Option<$type> {
                Self::ALL.into_iter().find(|it| it.name() == name)
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                Self::by_name(text).ok_or_else(|| UnknownName {
                    kind: $kind,
                    given: text.to_owned(),
                    known: Self::ALL.map(Self::name).join(", "),
                })
            }
        }
    };
}

named!(Operation, "operation");
named!(Intent, "intent");
