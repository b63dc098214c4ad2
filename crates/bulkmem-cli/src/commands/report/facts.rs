//! Where figures come from: machines and files, as names and values.

use bulkmem_measure::Provenance;
use bulkmem_measure::engine::Results;

use super::input::{Document, Input, Machine};
use super::model::{About, Source};
use crate::output::{exact_size, size};
use crate::provenance::{self, caches, cpu, known};

/// What is known of a machine, as its last file says.
pub(super) fn machine(machine: &Machine<'_>) -> About {
    let rows = machine.inputs.last().map(|input| match &input.document {
        Document::Results(found) => of_machine(&found.provenance),
        Document::Profile(profile) => {
            let rows = provenance::rows(profile);
            rows.into_iter().filter(|(name, _)| OF_MACHINE.contains(name)).collect()
        }
    });
    About { label: machine.label.clone(), facts: rows.unwrap_or_default() }
}

/// Of a profile's facts, those about its machine.
const OF_MACHINE: [&str; 6] = ["processor", "microcode", "caches", "processors used", "kernel", "page size"];

fn of_machine(provenance: &Provenance) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("processor", cpu(&provenance.cpu)),
        ("microcode", known(&provenance.microcode)),
        ("caches", caches(provenance.caches)),
        ("processors used", provenance.processors.to_string()),
        ("kernel", known(&provenance.kernel)),
        ("page size", exact_size(provenance.page_size as u64)),
    ];
    let yes = |it: bool| if it { "yes" } else { "no" }.to_owned();
    let count = |it: usize| (it > 0).then(|| it.to_string());
    let optional = [
        ("hypervisor", provenance.hypervisor.clone()),
        ("memory", (provenance.memory > 0).then(|| size(provenance.memory))),
        ("NUMA nodes", count(provenance.nodes)),
        ("transparent huge pages", provenance.transparent_huge_pages.clone()),
        ("governor", provenance.governor.clone()),
        ("turbo", provenance.turbo.map(yes)),
        ("threads share cores", provenance.smt.map(yes)),
        ("clock", provenance.clock_source.clone()),
    ];
    rows.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    rows
}

/// A file, with what it says of itself.
pub(super) fn source(input: &Input) -> Source {
    let (facts, notes) = match &input.document {
        Document::Results(found) => (of_results(found), found.notes.clone()),
        Document::Profile(profile) => {
            let rows = provenance::rows(profile).into_iter();
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
    let provenance = &found.provenance;
    vec![
        ("holds", format!("{} rows of {}", found.rows.len(), names.join(", "))),
        ("processor", cpu(&provenance.cpu)),
        ("kernel", known(&provenance.kernel)),
        ("memory measured in", format!("pages of {}", exact_size(provenance.backing_page_size as u64))),
        ("command", format!("bulkmem {}", found.command.join(" "))),
        ("date", provenance.date.clone()),
        ("took", format!("{:.1} s, {} samples", provenance.seconds, provenance.samples)),
        (
            "load before and after",
            provenance
                .load
                .map(|load| load.map_or_else(|| "unknown".to_owned(), |it| format!("{it:.1}")))
                .join(", "),
        ),
        ("bulkmem", format!("{} ({})", provenance.bulkmem, provenance.commit)),
        (
            "complete",
            if found.complete { "yes" } else { "no: the run was interrupted, or goes on" }.to_owned(),
        ),
    ]
}
