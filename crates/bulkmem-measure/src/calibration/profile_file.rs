//! Reads, checks and writes profiles and the policy files derived from them.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use bulkmem::machine::Machine;
use bulkmem::method::{self, Parameters, Tunable};
use bulkmem::policy::{Choice, MOST_RULES, MOST_THREADS, POLICY_FORMAT, POLICY_VERSION, Policy, Situation};
use bulkmem::{Intent, Operation, probe};

use super::profile::{
    AliasingRule, FORMAT, LookRule, ModuleFigure, NewHugeRule, Profile, Rule, Saturation, UnmappedRule,
    VERSION,
};
use crate::engine::{Head, LIBPMEM};

/// Largest profile that is read; a thorough calibration writes some hundred KiB.
const MOST_BYTES: u64 = 16 << 20;

/// Error of reading, checking or writing a profile. The remedy is mostly to run `bulkmem calibrate` on this machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe variants and fields")]
pub enum ProfileError {
    #[error("there is no profile; run `bulkmem calibrate`")]
    Missing,
    #[error("the profile cannot be read; check its permissions")]
    Unreadable(#[source] io::Error),
    #[error("the profile is not a regular file; name a file that `bulkmem calibrate` wrote")]
    NotAFile,
    #[error("the profile has {0} bytes, and at most {MOST_BYTES} are read; run `bulkmem calibrate`")]
    TooLarge(u64),
    /// Not JSON, or a field is missing, unknown or of the wrong type. Line and column count from 1; the column is 0 in an
    /// empty line.
    #[error("the profile is damaged at line {line}, column {column}; run `bulkmem calibrate`")]
    Damaged { line: usize, column: usize },
    #[error("the file's format is not `{}`; name a file that `bulkmem calibrate` wrote", FORMAT)]
    Format,
    #[error(
        "the profile has version {found}, this library reads version {VERSION}; {}run `bulkmem calibrate`",
        if *.found > VERSION.into() { "update bulkmem, or " } else { "" }
    )]
    Version { found: u64 },
    #[error(
        "the profile was measured on another processor model than this, {0}; run `bulkmem calibrate` here"
    )]
    ForeignCpu(String),
    /// The rule or figure: `rule 3`, `figure 17`, counted from 1.
    #[error(
        "{0} of the profile names a method that is unknown, cannot do the operation or cannot run here; run `bulkmem \
         calibrate`"
    )]
    Method(String),
    /// Calibration writes no such value: the rule or figure, as above, or `the provenance`, and the problem.
    #[error("{0} of the profile {1}; run `bulkmem calibrate`")]
    Value(String, String),
    /// An earlier file is unchanged.
    #[error("the profile cannot be written to {}; check the folder, its permissions and the space left", .path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

impl Profile {
    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// If there are too many bytes, they are not JSON, the format or version is another, or a field is missing, unknown
    /// or of the wrong type. [`Profile::check`] checks the values.
    pub fn parse(bytes: &[u8]) -> Result<Profile, ProfileError> {
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ProfileError::TooLarge(bytes.len() as u64));
        }
        // The fields of every version first: a newer one may have fields that this one does not know.
        let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
        check_format(&head.format, head.version)?;
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
            return Err(ProfileError::TooLarge(about.len()));
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
        self.check_values(None)?;
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
        check_format(&self.format, self.version.into())?;
        if !self.provenance.cpu.same_model(&machine.cpu) {
            return Err(ProfileError::ForeignCpu(format!("{} ({})", machine.cpu.key(), machine.cpu.name)));
        }
        self.check_values(Some(machine))
    }

    /// Checks the values, and whether the methods can be used on a machine.
    fn check_values(&self, machine: Option<&Machine>) -> Result<(), ProfileError> {
        let seconds = self.provenance.seconds;
        if !seconds.is_finite() || seconds < 0.0 {
            return wrong("the provenance", format!("says it took {seconds} seconds"));
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let Rule { operation, situation, from, .. } = *rule;
            let place = format!("rule {} ({operation}, {situation})", at + 1);
            let same = |it: &&Rule| (it.operation, it.situation) == (operation, situation);
            let before: Vec<u64> = self.rules[..at].iter().filter(same).map(|it| it.from).collect();
            if before.len() >= MOST_RULES {
                return wrong(place, format!("is one too many: at most {MOST_RULES} of its kind are read"));
            }
            if before.is_empty() && from != 0 {
                return wrong(place, format!("is the first of its kind and starts at {from}, not 0"));
            }
            if let Some(before) = before.last().filter(|before| from <= **before) {
                return wrong(place, format!("starts at {from}, not after {before}"));
            }
            check_method(machine, place, operation, &rule.method, rule.parameters)?;
        }
        for (at, look) in self.looks.iter().enumerate() {
            let place = format!("look {} ({})", at + 1, look.operation);
            let states = [Situation::Cached, Situation::Uncached];
            if !states.into_iter().all(|state| self.rules_of(look.operation, state).next().is_some()) {
                return wrong(place, "has no rules for both cache states");
            }
            if self.looks[..at].iter().any(|other| other.operation == look.operation) {
                return wrong(place, "is the second one of its operation");
            }
            let impossible = look.from < probe::LEAST as u64 || look.cached_below == 0;
            let in_order = |it: &UnmappedRule| it.from > 0 && it.huge.is_none_or(|huge| huge.from >= it.from);
            if impossible || !look.unmapped.as_ref().is_none_or(in_order) {
                return wrong(place, "has values that no look can have");
            }
            if let Some(UnmappedRule { method, parameters, .. }) = &look.unmapped {
                check_method(machine, place, look.operation, method, *parameters)?;
            }
        }
        if let Some(AliasingRule { from, below, method, parameters, .. }) = &self.aliasing {
            if !(1..*below).contains(from) {
                return wrong("the rule for page aliasing", format!("is for {from} to {below} bytes"));
            }
            check_method(
                machine,
                "the rule for page aliasing".to_owned(),
                Operation::Copy,
                method,
                *parameters,
            )?;
        }
        for (at, &Saturation { operation, from, threads }) in self.threads.iter().enumerate() {
            let place = format!("number of threads {} ({operation})", at + 1);
            if !(1..=MOST_THREADS).contains(&threads) {
                return wrong(place, format!("is {threads}, not 1 to {MOST_THREADS}"));
            }
            let before = self.threads[..at].iter().rfind(|other| other.operation == operation);
            if let Some(before) = before.filter(|before| from <= before.from) {
                return wrong(place, format!("starts at {from}, not after {}", before.from));
            }
        }
        for (at, figure) in self.figures.iter().enumerate() {
            let place = format!("figure {}", at + 1);
            check_times(&place, figure.median_ns, figure.quartiles_ns)?;
            if figure.disturbance_ns.is_some_and(|time| !time.is_finite()) {
                return wrong(place, "has an impossible disturbance");
            }
            if !(1..=MOST_THREADS).contains(&figure.condition.threads) {
                return wrong(place, format!("was measured with {} threads", figure.condition.threads));
            }
            if figure.method != LIBPMEM {
                check_method(machine, place, figure.operation, &figure.method, figure.parameters)?;
            }
        }
        for (at, figure) in self.module.iter().enumerate() {
            let place = format!("module figure {}", at + 1);
            check_times(&place, figure.median_ns, figure.quartiles_ns)?;
            let &ModuleFigure { extent, chunk, .. } = figure;
            if figure.clear_time().is_none() {
                return Err(ProfileError::Method(place));
            }
            if !(1..=extent).contains(&chunk) {
                return wrong(place, format!("has {extent} bytes in chunks of {chunk}"));
            }
        }
        Ok(())
    }

    /// Returns the policy of this profile, with its reasons. Operations and intents without rules get the defaults.
    ///
    /// # Errors
    /// As [`Profile::check`].
    pub fn policy(&self, machine: &Machine) -> Result<Policy, ProfileError> {
        self.check(machine)?;
        let policy = Policy::from_file_bytes(self.policy_text().as_bytes(), machine);
        let policy = policy.or_else(|error| wrong("the policy file", format!("cannot be used: {error}")))?;
        Ok(self.explain(policy))
    }

    /// Returns a policy that was read from this profile's policy file, with the reasons of its rules.
    #[must_use]
    pub fn explain(&self, policy: Policy) -> Policy {
        let reason = |rule: &Rule| {
            let intent = Intent::ALL.into_iter().find(|it| Situation::from(*it) == rule.situation)?;
            Some((rule.operation, intent, usize::try_from(rule.from).ok()?, rule.reason.clone()))
        };
        policy.with_reasons(self.rules.iter().filter_map(reason))
    }

    /// Returns the text of the policy file: the part of the profile that programs need.
    pub fn policy_text(&self) -> String {
        let cpu = &self.provenance.cpu;
        let mut text = format!(
            "{POLICY_FORMAT} {POLICY_VERSION}\n\
             # Written by `bulkmem calibrate`; the measurements are in the file of the same name that ends in .json.\n\
             cpu {} {} {} {}\n",
            cpu.family, cpu.model, cpu.stepping, cpu.vendor
        );
        if let Some(emulator) = &self.provenance.emulator {
            // The name is that of a file, which may have any characters; the line must not be too long.
            let name: String = emulator.escape_debug().take(100).collect();
            _ = writeln!(text, "emulator {name}");
        }
        if let Some(durability) = self.durability {
            _ = writeln!(text, "durability {}", durability.name());
        }
        for operation in Operation::ALL {
            for situation in Situation::ALL {
                for Rule { from, method, parameters, .. } in self.rules_of(operation, situation) {
                    _ = writeln!(text, "rule {operation} {situation} {from} {method}{parameters}");
                }
            }
            for look in self.looks.iter().filter(|it| it.operation == operation) {
                let LookRule { from, cached_below, unmapped, .. } = look;
                _ = write!(text, "look {operation} {from} {cached_below}");
                if let Some(UnmappedRule { from, method, parameters, huge }) = unmapped {
                    _ = write!(text, " {from} {method}{parameters}");
                    if let Some(NewHugeRule { from, length }) = huge {
                        _ = write!(text, " {from} {length}");
                    }
                }
                text.push('\n');
            }
            let aliasing = self.aliasing.iter().filter(|_| operation == Operation::Copy);
            for AliasingRule { from, below, method, parameters, .. } in aliasing {
                _ = writeln!(text, "aliasing copy {from} {below} {method}{parameters}");
            }
            let threads = self.threads.iter().filter(|it| it.operation == operation);
            for Saturation { from, threads, .. } in threads {
                _ = writeln!(text, "threads {operation} {from} {threads}");
            }
        }
        text + "end\n"
    }
}

fn wrong<T>(place: impl Into<String>, what: impl Into<String>) -> Result<T, ProfileError> {
    Err(ProfileError::Value(place.into(), what.into()))
}

fn check_times(place: &str, median: f64, [low, high]: [f64; 2]) -> Result<(), ProfileError> {
    let times = [low, median, high];
    if times.iter().any(|time| !time.is_finite() || *time < 0.0) || low > high {
        return wrong(place, format!("has the impossible times {times:?}"));
    }
    Ok(())
}

fn check_format(format: &str, found: u64) -> Result<(), ProfileError> {
    match found {
        _ if format != FORMAT => Err(ProfileError::Format),
        _ if found == u64::from(VERSION) => Ok(()),
        _ => Err(ProfileError::Version { found }),
    }
}

/// Reports only the position: the parser's own message quotes the file.
fn damaged(error: serde_json::Error) -> ProfileError {
    ProfileError::Damaged { line: error.line(), column: error.column() }
}

/// Checks a method and its parameters for a machine, if one is given.
fn check_method(
    machine: Option<&Machine>,
    place: String,
    operation: Operation,
    name: &str,
    parameters: Parameters,
) -> Result<(), ProfileError> {
    let Some(machine) = machine else { return Ok(()) };
    let method = method::by_name(name).filter(|method| machine.features.contains(method.requires));
    let Some((method, tunables)) = method.and_then(|it| Some((it, it.tunables(operation)?))) else {
        return Err(ProfileError::Method(place));
    };
    if parameters.is_valid_for(tunables) {
        return Ok(());
    }
    let range = |it: &Tunable| {
        format!("{} from {} to {} in steps of {}", it.name, it.range.0, it.range.1, it.step.max(1))
    };
    let ranges: Vec<String> = tunables.iter().map(range).collect();
    let takes = if ranges.is_empty() { "no parameters".to_owned() } else { ranges.join(", ") };
    wrong(place, format!("says {}, but {name} takes {takes}", Choice { method, parameters }))
}
