//! Where figures come from: machines and files, as names and values.

use bulkmem_measure::Evidence;
use bulkmem_measure::engine::Results;

use super::input::{Document, Input, Machine};
use super::model::{About, Source};
use crate::output::{exact_size, size};
use crate::provenance::{self, caches, cpu, known};

/// What is known of a machine, as its last file says.
pub(super) fn machine(machine: &Machine<'_>) -> About {
    let rows = machine.inputs.last().map(|input| match &input.document {
        Document::Results(found) => of_machine(&found.evidence),
        Document::Profile(profile) => {
            let rows = provenance::rows(&profile.provenance);
            rows.into_iter().filter(|(name, _)| OF_MACHINE.contains(name)).collect()
        }
    });
    About { label: machine.label.clone(), facts: rows.unwrap_or_default() }
}

/// Of a profile's facts, those about its machine.
const OF_MACHINE: [&str; 6] = ["processor", "microcode", "caches", "processors used", "kernel", "page size"];

fn of_machine(evidence: &Evidence) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("processor", cpu(&evidence.cpu)),
        ("microcode", known(&evidence.microcode)),
        ("caches", caches(evidence.caches)),
        ("processors used", evidence.processors.to_string()),
        ("kernel", known(&evidence.kernel)),
        ("page size", exact_size(evidence.page_size as u64)),
    ];
    let yes = |it: bool| if it { "yes" } else { "no" }.to_owned();
    let count = |it: usize| (it > 0).then(|| it.to_string());
    let optional = [
        ("hypervisor", evidence.hypervisor.clone()),
        ("memory", (evidence.memory > 0).then(|| size(evidence.memory))),
        ("NUMA nodes", count(evidence.nodes)),
        ("transparent huge pages", evidence.transparent_huge_pages.clone()),
        ("governor", evidence.governor.clone()),
        ("turbo", evidence.turbo.map(yes)),
        ("threads share cores", evidence.smt.map(yes)),
        ("clock", evidence.clock_source.clone()),
    ];
    rows.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    rows
}

/// A file, with what it says of itself.
pub(super) fn source(input: &Input) -> Source {
    let (facts, notes) = match &input.document {
        Document::Results(found) => (of_results(found), found.notes.clone()),
        Document::Profile(profile) => {
            let rows = provenance::rows(&profile.provenance).into_iter();
            let own = rows.filter(|(name, _)| !OF_MACHINE.contains(name) || *name == "processor");
            (
                [("holds", "a profile: what calibration chose".to_owned())].into_iter().chain(own).collect(),
                Vec::new(),
            )
        }
    };
    Source { name: input.name.clone(), facts, notes, text: input.text.clone() }
}

fn of_results(found: &Results) -> Vec<(&'static str, String)> {
    let names: Vec<&str> = found.measurements().into_iter().map(|it| it.name()).collect();
    let evidence = &found.evidence;
    vec![
        ("holds", format!("{} rows of {}", found.rows.len(), names.join(", "))),
        ("processor", cpu(&evidence.cpu)),
        ("kernel", known(&evidence.kernel)),
        ("memory measured in", format!("pages of {}", exact_size(evidence.backing_page_size as u64))),
        ("command", format!("bulkmem {}", found.command.join(" "))),
        ("date", evidence.date.clone()),
        ("took", format!("{:.1} s, {} samples", evidence.seconds, evidence.samples)),
        (
            "load before and after",
            evidence
                .load
                .map(|load| load.map_or_else(|| "unknown".to_owned(), |it| format!("{it:.1}")))
                .join(", "),
        ),
        ("bulkmem", format!("{} ({})", evidence.bulkmem, evidence.commit)),
        (
            "complete",
            if found.complete { "yes" } else { "no: the run was interrupted, or goes on" }.to_owned(),
        ),
    ]
}
