//! What a caller asks for: the operation, and what will happen to the bytes next.

use std::fmt;
use std::str::FromStr;

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Operation {
    /// Every byte becomes zero.
    Clear,
    /// Every byte becomes one given value.
    Fill,
    /// The bytes of one range are written to another.
    Copy,
    /// Fill, and make durable: when it returns, the bytes have left the processor's caches.
    FillPersist,
    /// Copy, and make durable.
    CopyPersist,
    /// Make durable what ordinary stores wrote before.
    Persist,
}

/// What the caller will do next with the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Intent {
    /// Nothing is known: finish soonest.
    #[default]
    Throughput,
    /// Read them soon: leave them in the cache.
    Reuse,
    /// Not soon: leave the cache to others.
    Stream,
}

impl Operation {
    /// Every operation, in the order of declaration.
    pub const ALL: [Operation; 6] = [
        Operation::Clear,
        Operation::Fill,
        Operation::Copy,
        Operation::FillPersist,
        Operation::CopyPersist,
        Operation::Persist,
    ];

    /// The name used in profiles, on command lines and in `BULKMEM_METHOD`.
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
    pub const ALL: [Intent; 3] = [Intent::Throughput, Intent::Reuse, Intent::Stream];

    /// The name used in profiles and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Intent::Throughput => "throughput",
            Intent::Reuse => "reuse",
            Intent::Stream => "stream",
        }
    }
}

/// A name that is none of the known ones; the message lists those.
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
            /// The one of that name, without the heap.
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
