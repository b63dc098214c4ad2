//! What can be asked for, with sensible defaults, checked before anything runs.

use std::time::Duration;

use crate::calibration::Mode;
use bulkmem::{Durability, Intent, Operation};
use serde::{Deserialize, Serialize};

use crate::{MeasureError, OptionName};

/// Largest length that may be asked for, bytes.
const LONGEST: u64 = 1 << 40;
/// More threads than this are refused as a slip of the pen.
const MOST_THREADS: usize = 4096;

/// How to calibrate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrateOptions {
    /// How much is asked for; goes into the profile, and decides how densely lengths and parameters are searched.
    pub mode: Mode,
    /// How long it may take, wall clock.
    pub budget: Duration,
    /// The operations to measure, each once.
    pub operations: Vec<Operation>,
    /// The largest length, bytes. If memory does not suffice a smaller one is measured, and `Progress::note` says
    /// so.
    pub max_length: u64,
    /// The most threads to try; 0: as many as there are processors.
    pub threads: usize,
    /// What survives a power failure, which no measurement can find out. `None` keeps what an earlier profile says.
    #[serde(default)]
    pub durability: Option<Durability>,
}

impl CalibrateOptions {
    /// The options of a mode: its time, every operation, lengths up to 1 GiB (thorough: 4 GiB).
    pub fn new(mode: Mode) -> CalibrateOptions {
        let (seconds, max_length) = match mode {
            Mode::Quick => (9, 1 << 30),
            Mode::Default => (55, 1 << 30),
            Mode::Thorough => (600, 4 << 30),
        };
        CalibrateOptions {
            mode,
            budget: Duration::from_secs(seconds),
            operations: Operation::ALL.to_vec(),
            max_length,
            threads: 0,
            durability: None,
        }
    }

    /// Whether calibration can start with these options.
    ///
    /// # Errors
    /// [`MeasureError::Option`] names the first option that cannot be used.
    pub fn validate(&self) -> Result<(), MeasureError> {
        check_budget(self.budget)?;
        check_length(OptionName::MaxSize, self.max_length)?;
        check_threads(self.threads)?;
        if self.operations.is_empty() {
            return Err(bad(OptionName::Operations, "none is given; name at least one"));
        }
        for (index, operation) in self.operations.iter().enumerate() {
            if self.operations[..index].contains(operation) {
                return Err(bad(OptionName::Operations, format!("{operation} is given twice")));
            }
        }
        Ok(())
    }
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        CalibrateOptions::new(Mode::Default)
    }
}

/// How far a measurement has come.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// The share that is done, 0 to 1.
    pub done: f64,
    /// Time since the start.
    pub elapsed: Duration,
    /// Time until the end, as far as can be told.
    pub left: Duration,
    /// What is being measured.
    pub what: String,
    /// Something that results cannot be read rightly without, such as memory that does not suffice; said once.
    pub note: Option<String>,
}

/// Where ranges start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Alignment {
    /// On a cache line.
    Aligned,
    /// 1 to 63 bytes past a line, source and destination differently.
    Unaligned,
    /// Both, one after the other.
    #[default]
    Both,
}

/// What was in the cache before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Temperature {
    /// The same ranges again and again.
    Warm,
    /// Random places in memory far larger than the caches.
    Cold,
    /// Both, one after the other.
    #[default]
    Both,
}

/// Which methods take part beside the policy's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Methods {
    /// All that this machine has.
    #[default]
    All,
    /// These, by name.
    Named(Vec<String>),
}

/// What to compare.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchOptions {
    /// The operation.
    pub operation: Operation,
    /// Lengths, bytes.
    pub lengths: Vec<u64>,
    /// Intents; each is judged by its own cost.
    pub intents: Vec<Intent>,
    /// Numbers of threads, each at least 1.
    pub threads: Vec<usize>,
    /// Where ranges start.
    pub alignment: Alignment,
    /// What was in the cache before.
    pub temperature: Temperature,
    /// The methods beside the policy's choice.
    pub methods: Methods,
    /// Whether the C library, libpmem and reading the same memory take part.
    pub peers: bool,
    /// How long it may take, wall clock.
    pub budget: Duration,
}

impl BenchOptions {
    /// A bench of one operation over 4 KiB to 256 MiB, one thread, intent throughput, all methods and peers, 30 s.
    pub fn new(operation: Operation) -> BenchOptions {
        BenchOptions {
            operation,
            lengths: vec![4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20],
            intents: vec![Intent::Throughput],
            threads: vec![1],
            alignment: Alignment::Aligned,
            temperature: Temperature::Cold,
            methods: Methods::All,
            peers: true,
            budget: Duration::from_secs(30),
        }
    }

    /// Whether the bench can start with these options.
    ///
    /// # Errors
    /// [`MeasureError::Option`] or [`MeasureError::Method`] names the first thing that cannot be used.
    pub fn validate(&self) -> Result<(), MeasureError> {
        check_budget(self.budget)?;
        for &length in &self.lengths {
            check_length(OptionName::Sizes, length)?;
        }
        for &threads in &self.threads {
            check_threads(threads)?;
            if threads == 0 {
                return Err(bad(OptionName::Threads, "0 threads do nothing; give 1 or more"));
            }
        }
        for (option, empty) in [
            (OptionName::Sizes, self.lengths.is_empty()),
            (OptionName::Intents, self.intents.is_empty()),
            (OptionName::Threads, self.threads.is_empty()),
        ] {
            if empty {
                return Err(bad(option, "none is given; name at least one"));
            }
        }
        if !bulkmem::method::all().any(|method| method.does(self.operation) && method.available()) {
            return Err(bad(
                OptionName::Operations,
                format!("no method on this architecture can {}", self.operation),
            ));
        }
        if let Methods::Named(names) = &self.methods {
            for name in names {
                check_method(name, self.operation)?;
            }
        }
        Ok(())
    }
}

fn check_method(name: &str, operation: Operation) -> Result<(), MeasureError> {
    let refuse = |reason: String| Err(MeasureError::Method { name: name.to_owned(), reason });
    match bulkmem::method::by_name(name) {
        None => refuse("there is no such method".to_owned()),
        Some(method) if !method.does(operation) => refuse(format!("it cannot {operation}")),
        Some(method) if !method.available() => {
            refuse(format!("this machine lacks an instruction it needs ({:?})", method.requires))
        }
        Some(_) => Ok(()),
    }
}

fn check_budget(budget: Duration) -> Result<(), MeasureError> {
    match budget.as_secs_f64() {
        s if s < 0.1 => Err(bad(OptionName::Budget, "less than 0.1 s measures nothing; give more time")),
        s if s > 86_400.0 => Err(bad(OptionName::Budget, "more than a day; give at most 86400 s")),
        _ => Ok(()),
    }
}

fn check_length(option: OptionName, length: u64) -> Result<(), MeasureError> {
    if (1..=LONGEST).contains(&length) {
        return Ok(());
    }
    Err(bad(option, format!("{length} bytes is outside 1 to {LONGEST} bytes")))
}

fn check_threads(threads: usize) -> Result<(), MeasureError> {
    if threads <= MOST_THREADS {
        return Ok(());
    }
    Err(bad(OptionName::Threads, format!("{threads} is more than {MOST_THREADS}")))
}

fn bad(option: OptionName, reason: impl Into<String>) -> MeasureError {
    MeasureError::Option { option, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_accepted() {
        for mode in [Mode::Quick, Mode::Default, Mode::Thorough] {
            CalibrateOptions::new(mode).validate().unwrap();
        }
        for operation in Operation::ALL {
            BenchOptions::new(operation).validate().unwrap();
        }
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        let refused = |change: fn(&mut CalibrateOptions)| {
            let mut options = CalibrateOptions::default();
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert!(refused(|o| o.budget = Duration::ZERO).starts_with("--budget: "));
        assert!(refused(|o| o.max_length = 0).starts_with("--max-size: "));
        assert!(refused(|o| o.threads = 1_000_000).starts_with("--threads: "));
        assert!(refused(|o| o.operations.clear()).starts_with("--op: "));
        assert!(refused(|o| o.operations.push(Operation::Clear)).contains("clear is given twice"));

        let refused = |change: fn(&mut BenchOptions)| {
            let mut options = BenchOptions::new(Operation::Clear);
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert!(refused(|o| o.lengths.clear()).starts_with("--size: "));
        assert!(refused(|o| o.lengths.push(u64::MAX)).starts_with("--size: "));
        assert!(refused(|o| o.intents.clear()).starts_with("--intent: "));
        assert!(refused(|o| o.threads = vec![0]).starts_with("--threads: "));
        assert!(
            refused(|o| o.methods = Methods::Named(vec!["nosuch".into()]))
                .starts_with("nosuch: there is no such")
        );
        let mut options = BenchOptions::new(Operation::Persist);
        options.methods = Methods::Named(vec!["c_library".into()]);
        assert!(options.validate().unwrap_err().to_string().starts_with("c_library: it cannot flush"));
    }
}
