//! The files that a report is made from, and the machines that they describe.

use std::path::Path;

use bulkmem::policy::CpuIdentity;
use bulkmem_measure::calibration::{FORMAT, Profile};
use bulkmem_measure::engine::{Finding, Head, Measurement, Results, Row, distinct};
use bulkmem_measure::{Provenance, memory_left};

use super::model::{Card, Chart, Facts, slug};
use crate::failure::{Failure, chain};
use crate::plain;
use crate::provenance::{self, cpu, microarchitecture, short};
use crate::results::{self, group};

/// A file: results or a profile.
#[derive(Debug)]
pub(super) struct Input {
    name: String,
    text: String,
    provenance: Provenance,
    results: Option<Results>,
    pub(super) profile: Option<Profile>,
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
    /// The C library and others, with their versions.
    pub(super) libraries: Vec<String>,
    /// The results of each file.
    pub(super) files: Vec<&'i Results>,
    /// True if it is the only machine of the report.
    only: bool,
}

impl Input {
    /// Reads a results file or a profile. Fails also if it contains no rows.
    pub(super) fn load(path: &Path) -> Result<Input, Failure> {
        let name = path.display().to_string();
        let bytes = results::read(path, results::TO_REPORT, &memory_left())?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (mut results, mut profile) = (None, None);
        let provenance = if serde_json::from_str::<Head>(&text).is_ok_and(|head| head.format == FORMAT) {
            let parsed = Profile::parse(text.as_bytes()).map_err(|error| {
                Failure::new(format!("cannot use the profile {name}: {}", chain(&error)))
                    .help("run `bulkmem calibrate` to write a new one, or leave the file out")
            })?;
            profile.insert(plain::profile(parsed)).provenance.clone()
        } else {
            let found = results::understand(path, &bytes)?;
            if found.rows.is_empty() {
                return Err(Failure::new(format!("{name} contains no rows: nothing was measured")).help(
                    "measure again until at least one group of rows is finished, or leave the file out",
                ));
            }
            results.insert(plain::results(found)).provenance.clone()
        };
        Ok(Input { name: plain::plain(&name), text, provenance, results, profile })
    }

    /// Returns what identifies a machine with a kernel.
    pub(super) fn machine(&self) -> (&CpuIdentity, &str) {
        (&self.provenance.cpu, &self.provenance.kernel)
    }

    /// Returns what the report says about the file, and its content.
    pub(super) fn source(&self) -> (Card, &str) {
        let mut facts: Facts = vec![("processor", cpu(&self.provenance.cpu))];
        facts.extend(provenance::run(&self.provenance));
        if let Some(profile) = &self.profile {
            facts.insert(0, ("contains", "a profile: the rules that calibration derived".to_owned()));
            facts.extend(provenance::coverage(&profile.coverage));
        }
        if let Some(found) = &self.results {
            let names: Vec<&str> = found.measurements().into_iter().map(Measurement::name).collect();
            facts.insert(0, ("contains", format!("{} rows of {}", found.rows.len(), names.join(", "))));
            facts.push(("command", format!("bulkmem {}", found.command.join(" "))));
            let complete = if found.complete { "yes" } else { "no: the run was interrupted, or continues" };
            facts.push(("complete", complete.to_owned()));
        }
        let sentences = self.results.iter().flat_map(|found| found.notes.clone()).collect();
        (Card { heading: self.name.clone(), facts, sentences }, &self.text)
    }
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
        let (mut rows, mut findings): (Vec<&Row>, Vec<&Finding>) = (Vec::new(), Vec::new());
        let files = || inputs.iter().filter_map(|input| input.results.as_ref());
        for found in files() {
            for row in &found.rows {
                let identity = |row: &'i Row| (row.measurement, row.metric, &row.candidate, &row.config);
                match rows.iter_mut().find(|old| identity(old) == identity(row)) {
                    Some(old) => *old = row,
                    None => rows.push(row),
                }
            }
            // A later run of a measurement replaces the findings of an earlier one.
            let again = found.measurements();
            findings.retain(|finding| !again.contains(&finding.measurement));
            findings.extend(&found.findings);
        }
        let profile = inputs.iter().rev().find_map(|input| input.profile.as_ref());
        let provenance = &inputs[inputs.len() - 1].provenance;
        let libraries = inputs.iter().flat_map(|input| &input.provenance.libraries);
        let libraries = distinct(libraries.cloned());
        let files = files().collect();
        Machine { label, rows, findings, profile, provenance, libraries, files, only }
    }

    /// Returns its name with the microarchitecture, if that is known: `AMD EPYC, Zen 5`.
    pub(super) fn name(&self) -> String {
        match microarchitecture(&self.provenance.cpu) {
            core if core.starts_with("another") || core.starts_with("unknown") => self.label.clone(),
            core => format!("{}, {core}", self.label),
        }
    }

    /// Returns all rows as if they came from one file; `None` if there is only a profile.
    pub(super) fn results(&self) -> Option<Results> {
        let rows = self.rows.iter().map(|row| (*row).clone()).collect();
        Some(Results { rows, ..(*self.files.last()?).clone() })
    }

    pub(super) fn of(&self, measurement: Measurement) -> Vec<&'i Row> {
        self.rows.iter().copied().filter(|row| row.measurement == measurement).collect()
    }

    /// Returns a title; if the report has several machines, with the label of this one.
    pub(super) fn titled(&self, title: &str) -> String {
        if self.only { title.to_owned() } else { format!("{title}, {}", self.label) }
    }

    /// Returns a chart without its content. Charts of several machines with the same name are one group.
    pub(super) fn chart(&self, name: &str, title: &str) -> Chart {
        Chart {
            name: slug(&self.titled(name)),
            title: self.titled(title),
            group: name.to_owned(),
            ..Chart::default()
        }
    }
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
