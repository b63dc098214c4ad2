//! What can be tuned in a method: values, and the ranges that calibration searches.

use std::fmt;

/// The values of every tunable; one that a method does not have stays 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Parameters {
    /// How far ahead of the loads the source is prefetched, bytes; 0: not at all.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub read_distance: u32,
    /// 0: prefetch the source into all cache levels (PREFETCHT0); 1: with the non-temporal hint (PREFETCHNTA).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub read_hint: u32,
    /// How far ahead of the stores the destination is prefetched for writing (PREFETCHW), bytes; 0: not at all.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub write_distance: u32,
    /// How many pages are worked on side by side.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub streams: u32,
    /// How many bytes form a block: one REP instruction, or one stretch prefetched as a whole before its first
    /// store; 0: no blocks.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub block: u32,
}

impl fmt::Display for Parameters {
    /// `[tunable=value,tunable=value]`; parameters that are 0 are left out, and nothing remains if all are.
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

/// One thing that can be tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// The field of [`Parameters`].
    pub name: &'static str,
    /// The smallest and the largest value the method accepts, both included.
    pub range: (u32, u32),
    /// Accepted values are multiples of this.
    pub step: u32,
    /// What serves where nothing was measured.
    pub default: u32,
    /// What calibration tries.
    pub search: &'static [u32],
}

impl Parameters {
    /// All 0.
    pub(crate) const NONE: Parameters =
        Parameters { read_distance: 0, read_hint: 0, write_distance: 0, streams: 0, block: 0 };

    /// The names of all tunables.
    pub const NAMES: [&'static str; 5] = ["read_distance", "read_hint", "write_distance", "streams", "block"];

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

    /// The value of a tunable, by name; `None` for a name that is no tunable's.
    pub fn get(mut self, name: &str) -> Option<u32> {
        self.field(name).copied()
    }

    /// Sets a tunable by name; false for a name that is no tunable's.
    pub fn set(&mut self, name: &str, value: u32) -> bool {
        self.field(name).map(|field| *field = value).is_some()
    }

    /// Whether a method with these tunables can run with these values: each tunable's value is in its range and on
    /// its step, and every field without a tunable is 0.
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
