//! Reads, checks and writes profiles.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Deserialize;

use bulkmem::machine::Machine;
use bulkmem::method::{self, Parameters, Tunable};
use bulkmem::policy::{Choice, MOST_RULES, MOST_THREADS};
use bulkmem::{Intent, Operation};

use super::profile::{FORMAT, Profile, VERSION};
use super::profile_error::ProfileError;

/// Largest profile that is read; a thorough calibration writes some hundred KiB.
const MOST_BYTES: u64 = 16 << 20;

/// The fields that every version of the format has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

impl Profile {
    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// If there are too many bytes, they are not JSON, the format or version is another, or a field is missing, unknown
    /// or of the wrong type. [`Profile::check`] checks the values.
    pub fn parse(bytes: &[u8]) -> Result<Profile, ProfileError> {
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ProfileError::TooLarge { bytes: bytes.len() as u64, most: MOST_BYTES });
        }
        // The head first: a newer version may have fields that this one does not know.
        let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
        if head.format != FORMAT {
            return Err(ProfileError::Format);
        }
        if head.version != VERSION {
            return Err(ProfileError::Version { found: head.version });
        }
        serde_json::from_slice(bytes).map_err(damaged)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If there is none, it cannot be read, is not a regular file or is larger than 16 MiB; and as [`Profile::parse`].
    pub fn load(path: &Path) -> Result<Profile, ProfileError> {
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ProfileError::Missing,
            _ => ProfileError::Unreadable(error),
        };
        // Does not block, so that opening a FIFO does not wait for a writer.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        // Files in /proc are regular, have size 0, and may block or have effects when they are read.
        if !about.is_file() || about.len() == 0 {
            return Err(ProfileError::NotAFile);
        }
        if about.len() > MOST_BYTES {
            return Err(ProfileError::TooLarge { bytes: about.len(), most: MOST_BYTES });
        }
        let mut bytes = Vec::new();
        file.take(about.len()).read_to_end(&mut bytes).map_err(unreadable)?;
        Profile::parse(&bytes)
    }

    /// Replaces a file atomically and creates its directory if missing. Readers see the old file or the new one, and
    /// after a failure the old one remains. Follows symbolic links.
    ///
    /// # Errors
    /// [`ProfileError::Value`] if a value is invalid on every machine; [`ProfileError::Unwritable`] if the file cannot
    /// be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        self.sound()?;
        let unwritable = |source| ProfileError::Unwritable { path: path.to_owned(), source };
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| unwritable(error.into()))?;
        text.push(b'\n');
        bulkmem_output::write(path, &text).map_err(unwritable)
    }

    /// Checks that the profile can be used on a machine: measured on the same processor model, rules in order, every
    /// method known and available, every parameter within its tunable's range.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, machine: &Machine) -> Result<(), ProfileError> {
        if self.format != FORMAT {
            return Err(ProfileError::Format);
        }
        if self.version != VERSION {
            return Err(ProfileError::Version { found: self.version });
        }
        if !self.provenance.cpu.same_model(&machine.cpu) {
            let machine = format!("{} ({})", machine.cpu.key(), machine.cpu.name);
            return Err(ProfileError::ForeignCpu { machine });
        }
        self.sound()?;
        for (at, rule) in self.rules.iter().enumerate() {
            let place = format!("rule {}", at + 1);
            check_method(machine, place, rule.operation, &rule.method, &rule.parameters)?;
        }
        for (at, figure) in self.figures.iter().enumerate() {
            let place = format!("figure {}", at + 1);
            check_method(machine, place, figure.operation, &figure.method, &figure.parameters)?;
        }
        Ok(())
    }

    /// Checks everything that does not depend on the machine.
    fn sound(&self) -> Result<(), ProfileError> {
        let seconds = self.provenance.seconds;
        if !seconds.is_finite() || seconds < 0.0 {
            return wrong("the provenance", format!("says it took {seconds} seconds"));
        }
        let mut last: BTreeMap<(Operation, Intent), (u64, usize)> = BTreeMap::new();
        for (at, rule) in self.rules.iter().enumerate() {
            let place = format!("rule {} ({}, {})", at + 1, rule.operation, rule.intent);
            let (before, count) = match last.get(&(rule.operation, rule.intent)) {
                Some((from, count)) => (Some(*from), count + 1),
                None => (None, 1),
            };
            if count > MOST_RULES {
                return wrong(place, format!("is one too many: at most {MOST_RULES} of its kind are read"));
            }
            if before.is_none() && rule.from != 0 {
                return wrong(place, format!("is the first of its kind and starts at {}, not 0", rule.from));
            }
            rises(&place, before, rule.from)?;
            last.insert((rule.operation, rule.intent), (rule.from, count));
        }
        let mut last: BTreeMap<Operation, u64> = BTreeMap::new();
        for (at, it) in self.threads.iter().enumerate() {
            let place = format!("number of threads {} ({})", at + 1, it.operation);
            if !(1..=MOST_THREADS).contains(&it.threads) {
                return wrong(place, format!("is {}, not 1 to {MOST_THREADS}", it.threads));
            }
            rises(&place, last.insert(it.operation, it.from), it.from)?;
        }
        for (at, figure) in self.figures.iter().enumerate() {
            let place = format!("figure {}", at + 1);
            let [low, high] = figure.quartiles_ns;
            let times = [low, figure.median_ns, high];
            if times.iter().any(|time| !time.is_finite() || *time < 0.0) || low > high {
                return wrong(place, format!("has the impossible times {times:?}"));
            }
            if figure.disturbance_ns.is_some_and(|time| !time.is_finite()) {
                return wrong(place, "has an impossible disturbance");
            }
            if !(1..=MOST_THREADS).contains(&figure.condition.threads) {
                return wrong(place, format!("was measured with {} threads", figure.condition.threads));
            }
        }
        Ok(())
    }
}

fn wrong(place: impl Into<String>, what: impl Into<String>) -> Result<(), ProfileError> {
    Err(ProfileError::Value { place: place.into(), what: what.into() })
}

/// Checks that lengths rise.
fn rises(place: &str, before: Option<u64>, from: u64) -> Result<(), ProfileError> {
    match before {
        Some(before) if from <= before => wrong(place, format!("starts at {from}, not after {before}")),
        _ => Ok(()),
    }
}

/// Reports only the position: the parser's own message quotes the file.
fn damaged(error: serde_json::Error) -> ProfileError {
    ProfileError::Damaged { line: error.line(), column: error.column() }
}

fn check_method(
    machine: &Machine,
    place: String,
    operation: Operation,
    name: &str,
    parameters: &Parameters,
) -> Result<(), ProfileError> {
    let method = method::by_name(name).filter(|method| machine.features.contains(method.requires));
    let Some((method, tunables)) = method.and_then(|it| Some((it, it.tunables(operation)?))) else {
        return Err(ProfileError::Method { place });
    };
    if parameters.is_valid_for(tunables) {
        return Ok(());
    }
    let given = Choice { method, parameters: *parameters };
    let range = |it: &Tunable| {
        format!("{} from {} to {} in steps of {}", it.name, it.range.0, it.range.1, it.step.max(1))
    };
    let ranges: Vec<String> = tunables.iter().map(range).collect();
    let takes = if ranges.is_empty() { "no parameters".to_owned() } else { ranges.join(", ") };
    wrong(place, format!("says {given}, but {name} takes {takes}"))
}
