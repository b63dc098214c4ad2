//! Tunables of methods and their values.

use std::fmt;

/// Values of all tunables. Those that a method does not have are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub struct Parameters {
    /// Distance in bytes by which the source is prefetched ahead of the loads; 0 disables it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub read_distance: u32,
    /// Hint of the source prefetch: 0 into the second-level cache (PREFETCHT1), 1 for non-temporal (PREFETCHNTA), 2 into all cache
    /// levels (PREFETCHT0).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub read_hint: u32,
    /// Distance in bytes by which the destination is prefetched for writing (PREFETCHW) ahead of the stores; 0
    /// disables it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub write_distance: u32,
    /// Number of pages that are written in parallel, one cache line of each in turn.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub streams: u32,
    /// Length of a block in bytes: what one REP instruction writes, or what is prefetched before the first store to
    /// it; 0 disables blocks.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub block: u32,
}

impl fmt::Display for Parameters {
    /// Writes `[tunable=value,tunable=value]` without the values that are 0, or nothing if all are 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Parameters::NAMES.iter().filter_map(|name| {
            let value = self.get(name).filter(|&value| value != 0)?;
            Some(format!("{name}={value}"))
        });
        let set: Vec<String> = set.collect();
        if set.is_empty() { Ok(()) } else { write!(f, "[{}]", set.join(",")) }
    }
}

#[cfg(feature = "serde")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// A setting of a method, which calibration searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub struct Tunable {
    /// The field of [`Parameters`].
    pub name: &'static str,
    /// Smallest and largest accepted value, inclusive.
    pub range: (u32, u32),
    /// Accepted values are multiples of this.
    pub step: u32,
    /// Value to use if nothing was measured.
    pub default: u32,
    /// Values that calibration tries.
    pub search: &'static [u32],
}

impl Parameters {
    /// All 0.
    pub(crate) const NONE: Parameters =
        Parameters { read_distance: 0, read_hint: 0, write_distance: 0, streams: 0, block: 0 };

    /// The names of all tunables.
    #[cfg(feature = "unstable-internals")]
    pub const NAMES: [&'static str; 5] = Parameters::EVERY_NAME;
    #[cfg(not(feature = "unstable-internals"))]
    pub(crate) const NAMES: [&'static str; 5] = Parameters::EVERY_NAME;
    const EVERY_NAME: [&'static str; 5] =
        ["read_distance", "read_hint", "write_distance", "streams", "block"];

    /// Returns the names of all tunables.
    pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
        Self::NAMES.into_iter()
    }

    fn field(&mut self, name: &str) -> Option<&mut u32> {
        Some(match name {
            "read_distance" => &mut self.read_distance,
            "read_hint" => &mut self.read_hint,
            "write_distance" => &mut self.write_distance,
            "streams" => &mut self.streams,
            "block" => &mut self.block,
            _ => return None,
        })
    }

    /// Returns the value of a tunable; `None` if no tunable has that name.
    pub fn get(mut self, name: &str) -> Option<u32> {
        self.field(name).copied()
    }

    /// Sets the value of a tunable. Returns false if no tunable has that name.
    pub fn set(&mut self, name: &str, value: u32) -> bool {
        self.field(name).map(|field| *field = value).is_some()
    }

    /// True if a method with these tunables accepts these values: each is in its tunable's range and a multiple of
    /// its step, and values without a tunable are 0.
    pub fn is_valid_for(&self, tunables: &[Tunable]) -> bool {
        Self::NAMES.iter().all(|name| {
            let value = self.get(name).unwrap_or_default();
            match tunables.iter().find(|tunable| tunable.name == *name) {
                Some(tunable) => {
                    (tunable.range.0..=tunable.range.1).contains(&value) && value % tunable.step.max(1) == 0
                }
                None => value == 0,
            }
        })
    }
}
