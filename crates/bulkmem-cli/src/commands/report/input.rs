//! The files that a report is made from, and the machines that they are about.

use std::path::Path;

use bulkmem::policy::CpuIdentity;
use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::{Finding, Measurement, Results, Row};

use crate::failure::{Failure, chain};
use crate::{plain, results};

/// A file.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) document: Document,
}

/// What a file holds.
#[derive(Debug)]
pub(super) enum Document {
    Results(Box<Results>),
    Profile(Box<Profile>),
}

/// What is known of one machine, from all files about it.
#[derive(Debug)]
pub(super) struct Machine<'i> {
    /// Its name in titles and legends: no other machine of the report has it.
    pub(super) label: String,
    pub(super) caches: [u64; 3],
    /// Of several rows that differ only in what was measured, the one of the last file.
    pub(super) rows: Vec<&'i Row>,
    pub(super) findings: Vec<&'i Finding>,
    pub(super) profile: Option<&'i Profile>,
    pub(super) inputs: Vec<&'i Input>,
    cpu: &'i CpuIdentity,
    kernel: &'i str,
}

impl Input {
    /// Reads a file: results, or a profile.
    ///
    /// # Errors
    /// Where it cannot be read, is damaged, too new, neither of the two, or holds nothing.
    pub(super) fn load(path: &Path) -> Result<Input, Failure> {
        let name = path.display().to_string();
        let bytes = results::read(path, results::TO_REPORT)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let document = if is_profile(&text) {
            let profile = Profile::parse(text.as_bytes()).map_err(|error| {
                Failure::new(format!("cannot use the profile {name}: {}", chain(&error)))
                    .help("run `bulkmem calibrate` to write it anew, or leave the file out")
            })?;
            Document::Profile(Box::new(plain::profile(&profile)))
        } else {
            let found = results::understand(path, &bytes)?;
            if found.rows.is_empty() {
                return Err(Failure::new(format!("{name} holds no rows: nothing was measured"))
                    .help("measure again, and let one group of rows finish; or leave the file out"));
            }
            Document::Results(Box::new(plain::results(&found)))
        };
        Ok(Input { name: plain::plain(&name), text, document })
    }

    /// Whether it holds a profile.
    pub(super) fn is_profile(&self) -> bool {
        matches!(self.document, Document::Profile(_))
    }

    /// Whether both are about one machine, with one kernel.
    pub(super) fn same_machine(&self, other: &Input) -> bool {
        self.machine() == other.machine()
    }

    fn machine(&self) -> (&CpuIdentity, &str, [u64; 3]) {
        match &self.document {
            Document::Results(found) => {
                let provenance = &found.provenance;
                (&provenance.cpu, &provenance.kernel, provenance.caches)
            }
            Document::Profile(profile) => {
                let provenance = &profile.provenance;
                (&provenance.cpu, &provenance.kernel, provenance.caches)
            }
        }
    }
}

fn is_profile(text: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
    }
    serde_json::from_str::<Head>(text).is_ok_and(|head| head.format == bulkmem_measure::calibration::FORMAT)
}

/// The machines that files are about, in the order in which they turn up.
pub(super) fn machines(inputs: &[Input]) -> Vec<Machine<'_>> {
    let mut machines: Vec<Machine<'_>> = Vec::new();
    for input in inputs {
        let (cpu, kernel, caches) = input.machine();
        let known = machines.iter().position(|machine| machine.cpu == cpu && machine.kernel == kernel);
        let at = known.unwrap_or_else(|| {
            machines.push(Machine {
                label: String::new(),
                caches,
                rows: Vec::new(),
                findings: Vec::new(),
                profile: None,
                inputs: Vec::new(),
                cpu,
                kernel,
            });
            machines.len() - 1
        });
        machines[at].add(input);
    }
    let labels: Vec<String> = machines.iter().map(|machine| label(machine, &machines)).collect();
    for (machine, label) in machines.iter_mut().zip(labels) {
        machine.label = label;
    }
    machines
}

impl<'i> Machine<'i> {
    fn add(&mut self, input: &'i Input) {
        self.inputs.push(input);
        match &input.document {
            Document::Profile(profile) => self.profile = Some(profile),
            Document::Results(found) => {
                for row in &found.rows {
                    match self.rows.iter_mut().find(|old| same_place(old, row)) {
                        Some(old) => *old = row,
                        None => self.rows.push(row),
                    }
                }
                // What an earlier run of the same measurement concluded is superseded.
                let again = found.measurements();
                self.findings.retain(|finding| !again.contains(&finding.measurement));
                self.findings.extend(&found.findings);
            }
        }
    }

    /// All that is known, as if it came from one file; `None` where there is only a profile.
    pub(super) fn results(&self) -> Option<Results> {
        let last = self.inputs.iter().rev().find_map(|input| match &input.document {
            Document::Results(found) => Some(found),
            Document::Profile(_) => None,
        })?;
        Some(Results { rows: self.rows.iter().map(|row| (*row).clone()).collect(), ..(**last).clone() })
    }

    /// The rows of a measurement.
    pub(super) fn of(&self, measurement: Measurement) -> Vec<&'i Row> {
        self.rows.iter().copied().filter(|row| row.measurement == measurement).collect()
    }
}

/// Whether two rows differ only in what was measured.
fn same_place(a: &Row, b: &Row) -> bool {
    (a.measurement, a.metric) == (b.measurement, b.metric)
        && a.candidate == b.candidate
        && a.config == b.config
}

/// The processor's name; where several machines have it, with what tells them apart.
fn label(machine: &Machine<'_>, all: &[Machine<'_>]) -> String {
    let name = short(machine.cpu);
    let alike: Vec<&Machine<'_>> = all.iter().filter(|other| short(other.cpu) == name).collect();
    if alike.len() < 2 {
        return name;
    }
    let same_kernel = alike.iter().filter(|other| other.kernel == machine.kernel).count();
    if same_kernel < 2 && !machine.kernel.is_empty() {
        return format!("{name}, Linux {}", machine.kernel);
    }
    let number = alike.iter().position(|other| std::ptr::eq(*other, machine)).unwrap_or_default() + 1;
    format!("{name}, machine {number}")
}

/// A processor's name without what all names have.
fn short(cpu: &CpuIdentity) -> String {
    let words = cpu.name.split_whitespace().filter(|word| !matches!(*word, "CPU" | "Processor"));
    let name = words.collect::<Vec<_>>().join(" ").replace("(R)", "").replace("(TM)", "").replace("(tm)", "");
    let name = name.split(" @ ").next().unwrap_or_default().trim();
    if name.is_empty() {
        format!("{} {}:{}:{}", cpu.vendor, cpu.family, cpu.model, cpu.stepping)
    } else {
        name.to_owned()
    }
}
