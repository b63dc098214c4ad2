//! One test a row and operation, and no silent skip: a row that cannot run here shows as ignored, with the reason,
//! and is listed again at the end.

use std::process::ExitCode;

use bulkmem::Operation;
use bulkmem::machine::Features;
use bulkmem::method::Method;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::walk;

/// The tests of one file.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    trials: Vec<Trial>,
    /// What cannot run here, why (each once), and the tests that this is about.
    skipped: Vec<(String, String, Vec<String>)>,
    in_turn: bool,
}

impl Suite {
    /// No tests yet; the name, the file's, stands before what is skipped.
    pub fn new(name: &'static str) -> Suite {
        Suite { name, trials: Vec::new(), skipped: Vec::new(), in_turn: false }
    }

    /// One test after the other, on the main thread: for tests that change what all of them share.
    pub fn in_turn(&mut self) {
        self.in_turn = true;
    }

    /// Adds a test.
    pub fn test(&mut self, name: &str, run: impl FnOnce() -> Result<(), Failed> + Send + 'static) {
        self.trials.push(Trial::test(name, run));
    }

    /// Adds a test that cannot run here, and says why; run all the same (`--ignored`), it fails for that reason.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.skip_one_of(name, name, why);
    }

    /// The same, of several tests that are listed as one.
    fn skip_one_of(&mut self, all: &str, name: &str, why: &str) {
        let reason = why.to_owned();
        let trial = Trial::test(name, move || Err(Failed::from(reason)));
        self.trials.push(trial.with_ignored_flag(true).with_kind(format!("skipped: {why}")));
        match self.skipped.iter_mut().find(|(what, known, _)| what == all && known == why) {
            Some((_, _, names)) => names.push(name.to_owned()),
            None => self.skipped.push((all.to_owned(), why.to_owned(), vec![name.to_owned()])),
        }
    }

    /// Adds `PREFIX::OPERATION::METHOD`, skipped where this machine can neither run nor emulate the method.
    pub fn row(
        &mut self,
        prefix: &str,
        row: (&'static Method, Operation),
        run: impl FnOnce(&'static Method, Operation) -> Result<(), Failed> + Send + 'static,
    ) {
        self.row_needing(walk::missing(row.0), prefix, row, run);
    }

    /// The same, skipped where `missing` is not empty.
    pub fn row_needing(
        &mut self,
        missing: Features,
        prefix: &str,
        (method, operation): (&'static Method, Operation),
        run: impl FnOnce(&'static Method, Operation) -> Result<(), Failed> + Send + 'static,
    ) {
        let name = format!("{prefix}::{operation}::{}", method.name);
        if missing.is_empty() {
            self.test(&name, move || run(method, operation));
        } else {
            let names: Vec<&str> = missing.iter_names().map(|(name, _)| name).collect();
            self.skip_one_of(method.name, &name, &format!("needs {}", names.join(" and ")));
        }
    }

    /// Runs what the command line asks for (as `cargo test` passes it on) and lists what was skipped.
    pub fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        if self.in_turn {
            arguments.test_threads = Some(1);
        }
        let listing = arguments.list;
        assert!(!self.trials.is_empty(), "a test file without a test");
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        if !listing {
            // Of what was asked for.
            let wanted =
                |name: &String| arguments.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
            for (what, why, _) in self.skipped.iter().filter(|(_, _, names)| names.iter().any(wanted)) {
                println!("skipped: {} tests of {what}: {why}", self.name);
            }
        }
        conclusion.exit_code()
    }
}
