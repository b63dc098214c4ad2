//! The files that a report is made from, and the machines that they describe.

use std::path::Path;

use bulkmem::policy::CpuIdentity;
use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::{Finding, Measurement, Results, Row};

use super::model::{Facts, SourceFile};
use crate::failure::{Failure, chain};
use crate::plain;
use crate::provenance::{self, cpu};
use crate::results::{self, group};

/// A file.
#[derive(Debug)]
pub(super) struct Input {
    name: String,
    text: String,
    document: Document,
}

/// The content of a file.
#[derive(Debug)]
enum Document {
    Results(Box<Results>),
    Profile(Box<Profile>),
}

/// One machine, with all that the files contain about it.
#[derive(Debug)]
pub(super) struct Machine<'i> {
    /// Its name in titles and legends, unique in the report.
    pub(super) label: String,
    /// If several rows differ only in their samples, the one of the last file.
    pub(super) rows: Vec<&'i Row>,
    pub(super) findings: Vec<&'i Finding>,
    pub(super) profile: Option<&'i Profile>,
    /// Of the last file.
    pub(super) provenance: &'i Provenance,
    last_results: Option<&'i Results>,
    /// True if it is the only machine of the report.
    only: bool,
}

impl Input {
    /// Reads a results file or a profile.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, has another version, is neither of the two, or is empty.
    pub(super) fn load(path: &Path) -> Result<Input, Failure> {
        let name = path.display().to_string();
        let bytes = results::read(path, results::TO_REPORT)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let document = if is_profile(&text) {
            let profile = Profile::parse(text.as_bytes()).map_err(|error| {
                Failure::new(format!("cannot use the profile {name}: {}", chain(&error)))
                    .help("run `bulkmem calibrate` to write a new one, or leave the file out")
            })?;
            Document::Profile(Box::new(plain::profile(&profile)))
        } else {
            let found = results::understand(path, &bytes)?;
            if found.rows.is_empty() {
                return Err(Failure::new(format!("{name} contains no rows: nothing was measured")).help(
                    "measure again until at least one group of rows is finished, or leave the file out",
                ));
            }
            Document::Results(Box::new(plain::results(&found)))
        };
        Ok(Input { name: plain::plain(&name), text, document })
    }

    /// Returns true if it is a profile.
    pub(super) fn is_profile(&self) -> bool {
        matches!(self.document, Document::Profile(_))
    }

    /// Returns true if both describe one machine with one kernel.
    pub(super) fn same_machine(&self, other: &Input) -> bool {
        self.machine() == other.machine()
    }

    fn machine(&self) -> (&CpuIdentity, &str) {
        let provenance = self.provenance();
        (&provenance.cpu, &provenance.kernel)
    }

    fn provenance(&self) -> &Provenance {
        match &self.document {
            Document::Results(found) => &found.provenance,
            Document::Profile(profile) => &profile.provenance,
        }
    }

    /// Returns what the report says about the file.
    pub(super) fn source(&self) -> SourceFile {
        let provenance = self.provenance();
        let mut facts: Facts = vec![("processor", cpu(&provenance.cpu))];
        facts.extend(provenance::run(provenance));
        let notes = match &self.document {
            Document::Results(found) => {
                let names: Vec<&str> = found.measurements().into_iter().map(Measurement::name).collect();
                facts.insert(0, ("contains", format!("{} rows of {}", found.rows.len(), names.join(", "))));
                facts.push(("command", format!("bulkmem {}", found.command.join(" "))));
                let complete =
                    if found.complete { "yes" } else { "no: the run was interrupted, or continues" };
                facts.push(("complete", complete.to_owned()));
                found.notes.clone()
            }
            Document::Profile(profile) => {
                facts.insert(0, ("contains", "a profile: the rules that calibration derived".to_owned()));
                facts.extend(provenance::coverage(&profile.coverage));
                Vec::new()
            }
        };
        SourceFile { name: self.name.clone(), facts, notes, text: self.text.clone() }
    }
}

fn is_profile(text: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
    }
    serde_json::from_str::<Head>(text).is_ok_and(|head| head.format == bulkmem_measure::calibration::FORMAT)
}

/// Returns the machines that files describe, in the order in which they first occur.
pub(super) fn machines(inputs: &[Input]) -> Vec<Machine<'_>> {
    let groups = group(inputs, |input| input.machine());
    let labels = labels(&groups.iter().map(|(machine, _)| *machine).collect::<Vec<_>>());
    let only = groups.len() == 1;
    groups.into_iter().zip(labels).map(|((_, inputs), label)| Machine::new(label, only, &inputs)).collect()
}

impl<'i> Machine<'i> {
    fn new(label: String, only: bool, inputs: &[&'i Input]) -> Machine<'i> {
        let mut machine = Machine {
            label,
            rows: Vec::new(),
            findings: Vec::new(),
            profile: None,
            provenance: inputs[inputs.len() - 1].provenance(),
            last_results: None,
            only,
        };
        for input in inputs {
            match &input.document {
                Document::Profile(profile) => machine.profile = Some(profile),
                Document::Results(found) => machine.add(found),
            }
        }
        machine
    }

    fn add(&mut self, found: &'i Results) {
        self.last_results = Some(found);
        for row in &found.rows {
            match self.rows.iter_mut().find(|old| same_identity(old, row)) {
                Some(old) => *old = row,
                None => self.rows.push(row),
            }
        }
        // A later run of a measurement replaces the findings of an earlier one.
        let again = found.measurements();
        self.findings.retain(|finding| !again.contains(&finding.measurement));
        self.findings.extend(&found.findings);
    }

    /// Returns all rows as if they came from one file; `None` if there is only a profile.
    pub(super) fn results(&self) -> Option<Results> {
        let rows = self.rows.iter().map(|row| (*row).clone()).collect();
        Some(Results { rows, ..self.last_results?.clone() })
    }

    /// Returns the rows of a measurement.
    pub(super) fn of(&self, measurement: Measurement) -> Vec<&'i Row> {
        self.rows.iter().copied().filter(|row| row.measurement == measurement).collect()
    }

    /// Returns a title; if the report has several machines, with the label of this one.
    pub(super) fn titled(&self, title: &str) -> String {
        if self.only { title.to_owned() } else { format!("{title}, {}", self.label) }
    }
}

/// Returns true if two rows differ only in their samples and what follows from them.
fn same_identity(a: &Row, b: &Row) -> bool {
    (a.measurement, a.metric) == (b.measurement, b.metric)
        && a.candidate == b.candidate
        && a.config == b.config
}

/// Returns the processors' names, and what distinguishes machines with the same processor.
fn labels(machines: &[(&CpuIdentity, &str)]) -> Vec<String> {
    let label = |(at, (cpu, kernel)): (usize, &(&CpuIdentity, &str))| {
        let name = short(cpu);
        let alike = |it: &&(&CpuIdentity, &str)| short(it.0) == name;
        if machines.iter().filter(alike).count() < 2 {
            return name;
        }
        if !kernel.is_empty() && machines.iter().filter(alike).filter(|it| it.1 == *kernel).count() < 2 {
            return format!("{name}, Linux {kernel}");
        }
        format!("{name}, machine {}", machines[..=at].iter().filter(alike).count())
    };
    machines.iter().enumerate().map(label).collect()
}

/// Returns a processor's name without the words that every name has.
fn short(cpu: &CpuIdentity) -> String {
    let words = cpu.name.split_whitespace().filter(|word| !matches!(*word, "CPU" | "Processor"));
    let name = words.collect::<Vec<_>>().join(" ").replace("(R)", "").replace("(TM)", "").replace("(tm)", "");
    match name.split(" @ ").next().unwrap_or_default().trim() {
        "" => format!("{} {}:{}:{}", cpu.vendor, cpu.family, cpu.model, cpu.stepping),
        name => name.to_owned(),
    }
}
