//! The situations that have rules of their own: the caller's intents, and what a look finds for each.

use std::fmt;

use crate::operation::Intent;

/// What the rules of a table are for: an intent, or a cache state that a look found, for one thread or for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "unstable-internals"), allow(unreachable_pub, reason = "public with the feature"))]
pub enum Situation {
    /// [`Intent::Throughput`], and the cache state is not known.
    Throughput,
    /// [`Intent::Reuse`].
    Reuse,
    /// [`Intent::Stream`].
    Stream,
    /// [`Intent::Throughput`], and the range is cached, or its pages are not mapped yet.
    Cached,
    /// [`Intent::Throughput`], and the range is not cached.
    Uncached,
    /// As [`Situation::Uncached`], and several threads share the work. Measured with all of them.
    SeveralThreads,
    /// [`Intent::Reuse`], and the range is not cached. Measured with reading the result back.
    UncachedReuse,
    /// [`Intent::Reuse`], and the range is cached, or its pages are not mapped yet.
    CachedReuse,
}

#[cfg_attr(not(feature = "unstable-internals"), allow(unreachable_pub, reason = "public with the feature"))]
impl Situation {
    /// Every situation, in the order of declaration: the intents in theirs, then the cache states.
    pub const ALL: [Situation; 8] = [
        Situation::Throughput,
        Situation::Reuse,
        Situation::Stream,
        Situation::Cached,
        Situation::Uncached,
        Situation::SeveralThreads,
        Situation::UncachedReuse,
        Situation::CachedReuse,
    ];

    /// Returns the name that profiles and policy files use.
    pub const fn name(self) -> &'static str {
        match self {
            Situation::Throughput => Intent::Throughput.name(),
            Situation::Reuse => Intent::Reuse.name(),
            Situation::Stream => Intent::Stream.name(),
            Situation::Cached => "cached",
            Situation::Uncached => "uncached",
            Situation::SeveralThreads => "several_threads",
            Situation::UncachedReuse => "uncached_reuse",
            Situation::CachedReuse => "cached_reuse",
        }
    }

    pub(super) fn by_name(name: &str) -> Option<Situation> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Intent> for Situation {
    #[inline(always)]
    fn from(intent: Intent) -> Situation {
        match intent {
            Intent::Throughput => Situation::Throughput,
            Intent::Reuse => Situation::Reuse,
            Intent::Stream => Situation::Stream,
        }
    }
}
