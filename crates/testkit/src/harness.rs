//! A test harness with one test per method and operation. Tests that cannot run on this machine are reported as
//! ignored, with the reason, and are listed again at the end.

use std::process::ExitCode;

use bulkmem::Operation;
use bulkmem::machine::Features;
use bulkmem::method::Method;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::table;

/// The tests of one file.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    trials: Vec<Trial>,
    /// A group of tests that cannot run here, the reason, and the tests of the group.
    skipped: Vec<(String, String, Vec<String>)>,
    serial: bool,
}

impl Suite {
    /// Creates a suite without tests. `name` is the name of the test file, which the list of skipped tests shows.
    pub fn new(name: &'static str) -> Suite {
        Suite { name, trials: Vec::new(), skipped: Vec::new(), serial: false }
    }

    /// Runs the tests one after the other on the main thread, for tests that change state that all of them share.
    pub fn serial(&mut self) {
        self.serial = true;
    }

    /// Adds a test.
    pub fn test(&mut self, name: &str, run: impl FnOnce() -> Result<(), Failed> + Send + 'static) {
        self.trials.push(Trial::test(name, run));
    }

    /// Adds a test that cannot run here. If it is run nevertheless (`--ignored`), it fails with the reason `why`.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.skip_one_of(name, name, why);
    }

    /// Adds a test that cannot run here to the group `all`, which is listed as one line.
    fn skip_one_of(&mut self, all: &str, name: &str, why: &str) {
        let reason = why.to_owned();
        let trial = Trial::test(name, move || Err(Failed::from(reason)));
        self.trials.push(trial.with_ignored_flag(true).with_kind(format!("skipped: {why}")));
        match self.skipped.iter_mut().find(|(what, known, _)| what == all && known == why) {
            Some((_, _, names)) => names.push(name.to_owned()),
            None => self.skipped.push((all.to_owned(), why.to_owned(), vec![name.to_owned()])),
        }
    }

    /// Adds the test `PREFIX::OPERATION::METHOD`. It is skipped if this machine can neither run nor emulate the
    /// method, and fails if the tests do not know a feature that the method requires ([`table::check_features`]).
    pub fn entry(
        &mut self,
        prefix: &str,
        entry: (&'static Method, Operation),
        run: impl FnOnce(&'static Method, Operation) -> Result<(), Failed> + Send + 'static,
    ) {
        self.entry_needing(table::missing(entry.0), prefix, entry, run);
    }

    /// Adds the test `PREFIX::OPERATION::METHOD`, which is skipped if `missing` is not empty.
    pub fn entry_needing(
        &mut self,
        missing: Features,
        prefix: &str,
        (method, operation): (&'static Method, Operation),
        run: impl FnOnce(&'static Method, Operation) -> Result<(), Failed> + Send + 'static,
    ) {
        let name = format!("{prefix}::{operation}::{}", method.name);
        if let Err(problem) = table::check_features(method) {
            self.test(&name, move || Err(problem.into()));
        } else if missing.is_empty() {
            self.test(&name, move || run(method, operation));
        } else {
            let names: Vec<&str> = missing.iter_names().map(|(name, _)| name).collect();
            self.skip_one_of(method.name, &name, &format!("needs {}", names.join(" and ")));
        }
    }

    /// Removes all tests whose names contain none of `words`. The command line can select by one word only.
    pub fn only(&mut self, words: &[&str]) {
        let wanted = |name: &str| words.iter().any(|word| name.contains(word));
        self.trials.retain(|trial| wanted(trial.name()));
        for (_, _, names) in &mut self.skipped {
            names.retain(|name| wanted(name));
        }
        self.skipped.retain(|(_, _, names)| !names.is_empty());
    }

    /// Runs the tests that the command line selects, and lists those that were skipped.
    pub fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        if self.serial {
            arguments.test_threads = Some(1);
        }
        let listing = arguments.list;
        assert!(!self.trials.is_empty(), "a test file without a test");
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        if !listing {
            let selected =
                |name: &String| arguments.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
            for (what, why, _) in self.skipped.iter().filter(|(_, _, names)| names.iter().any(selected)) {
                println!("skipped: {} tests of {what}: {why}", self.name);
            }
        }
        conclusion.exit_code()
    }
}
