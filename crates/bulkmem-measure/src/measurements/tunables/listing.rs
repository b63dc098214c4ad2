//! The C library's tunables, as the dynamic linker lists them and as `GLIBC_TUNABLES` sets them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::{fs, io};

use bulkmem::Operation;
use serde::Serialize;

use crate::engine::units::exact_bytes;
use crate::engine::{MeasureError, Result};

/// The variable that sets tunables.
pub(super) const VARIABLE: &str = "GLIBC_TUNABLES";
/// Precedes each name.
const PREFIX: &str = "glibc.cpu.";
/// The tunables to find values for, in pairs: from which length on REP MOVSB and REP STOSB are used, and non-temporal stores.
pub(super) const PAIRS: [[(&str, Operation); 2]; 2] = [
    [("x86_rep_movsb_threshold", Operation::Copy), ("x86_rep_stosb_threshold", Operation::Clear)],
    [
        ("x86_non_temporal_threshold", Operation::Copy),
        ("x86_memset_non_temporal_threshold", Operation::Clear),
    ],
];

/// Values of tunables, by name.
pub(super) type Settings = BTreeMap<&'static str, u64>;

/// A length from which on `memcpy` or `memset` works in another way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tunable {
    /// The name without `glibc.cpu.`.
    pub name: &'static str,
    /// The operation that it affects: copy for `memcpy` and `memmove`, clear for `memset`.
    pub operation: Operation,
    /// The value in effect, bytes.
    pub current: u64,
    /// The limits of values, bytes.
    pub limits: [u64; 2],
    /// The value that is faster, bytes; `None` to leave it alone.
    pub recommended: Option<u64>,
}

impl Tunable {
    /// The smallest value that has an effect: the C library ignores some of the lower limits themselves.
    pub(super) fn least(&self) -> u64 {
        self.limits[0].saturating_add(1)
    }

    /// True if it is a length for non-temporal stores.
    pub fn is_non_temporal(&self) -> bool {
        self.name.contains("non_temporal")
    }

    /// Formats a value: `24 MiB`, or `never` above every length.
    pub fn text(value: u64) -> String {
        if value > 1 << 47 { "never".to_owned() } else { exact_bytes(value) }
    }
}

/// Lists the tunables that programs have with this value of `GLIBC_TUNABLES`.
///
/// # Errors
/// If the C library is not glibc 2.33 or later, or has none of them.
pub(super) fn list(value: &str) -> Result<Vec<Tunable>> {
    let failed = |source| MeasureError::System { doing: "list the C library's tunables", source };
    let missing = |what: String| {
        let needed = "needed is glibc 2.33 or later on x86-64, and a dynamically linked `bulkmem`";
        Err(failed(io::Error::other(format!("{what}; {needed}"))))
    };
    let Some(linker) = linker() else { return missing("this process has no dynamic linker".to_owned()) };
    let output =
        Command::new(&linker).arg("--list-tunables").env(VARIABLE, value).output().map_err(failed)?;
    let found = parse(&String::from_utf8_lossy(&output.stdout));
    match output.status.success() && !found.is_empty() {
        true => Ok(found),
        false => missing(format!("{} --list-tunables names none that is measured", linker.display())),
    }
}

/// The dynamic linker of this process.
fn linker() -> Option<PathBuf> {
    // SAFETY: only reads what the kernel passed to the process.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let starts_there = |line: &&str| {
        let start = line.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        base != 0 && start == Some(base)
    };
    let line = maps.lines().find(starts_there)?;
    Some(line.get(line.find('/')?..)?.into())
}

/// Reads lines such as `glibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xffffffffffffffff)`.
pub(super) fn parse(text: &str) -> Vec<Tunable> {
    let find = |(name, operation): (&'static str, Operation)| {
        let value = |line: &'_ str| {
            Some(line.strip_prefix(PREFIX)?.strip_prefix(name)?.strip_prefix(": ")?.to_owned())
        };
        let value = text.lines().find_map(value)?;
        let (current, limits) = value.strip_suffix(')')?.split_once(" (min: ")?;
        let (least, most) = limits.split_once(", max: ")?;
        let limits = [number(least)?, number(most)?];
        Some(Tunable { name, operation, current: number(current)?, limits, recommended: None })
    };
    PAIRS.into_iter().flatten().filter_map(find).collect()
}

fn number(text: &str) -> Option<u64> {
    let hexadecimal = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    hexadecimal.unwrap_or_else(|| text.parse()).ok()
}

/// Returns the value of `GLIBC_TUNABLES` with these settings, and with the other tunables of the `existing` value.
pub(super) fn value(existing: &str, settings: &Settings) -> String {
    let is_set = |part: &str| settings.keys().any(|name| part.starts_with(&format!("{PREFIX}{name}=")));
    let kept = existing.split(':').filter(|part| !part.is_empty() && !is_set(part)).map(str::to_owned);
    kept.chain(settings.iter().map(|(name, value)| format!("{PREFIX}{name}={value}")))
        .collect::<Vec<_>>()
        .join(":")
}
