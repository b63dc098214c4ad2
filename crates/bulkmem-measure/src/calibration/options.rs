//! Options of a calibration.

use std::time::Duration;

use bulkmem::{Durability, Operation};
use serde::{Deserialize, Serialize};

use crate::calibration::Mode;
use crate::engine::options::{bad, check_budget, check_length, check_threads};
use crate::{MeasureError, OptionName};

/// Options for calibrating.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrateOptions {
    /// How thoroughly to calibrate; decides how densely lengths and parameters are searched.
    pub mode: Mode,
    /// Wall-clock time limit.
    pub budget: Duration,
    /// The operations to measure, each once.
    pub operations: Vec<Operation>,
    /// The largest length, bytes. If memory does not suffice, calibration measures a smaller one and reports it in
    /// `Progress::note`.
    pub max_length: u64,
    /// The most threads to try; 0 for the number of processors.
    pub threads: usize,
    /// Storage that survives a power failure, which no measurement shows. `None` keeps what an earlier profile says.
    #[serde(default)]
    pub durability: Option<Durability>,
}

impl CalibrateOptions {
    /// Returns the options of a mode: its time limit, every operation, lengths up to 1 GiB (thorough: 4 GiB).
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

    /// Checks the options.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_accepted_and_bad_values_are_refused_by_flag() {
        for mode in [Mode::Quick, Mode::Default, Mode::Thorough] {
            CalibrateOptions::new(mode).validate().unwrap();
        }
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
    }
}
