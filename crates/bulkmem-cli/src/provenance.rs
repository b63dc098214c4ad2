//! Provenance as names and values, for people.

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem::policy::{Basis, CpuIdentity, Policy};
use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::{Coverage, Load};

use crate::output::{exact_size, size};
use crate::results::word;

type Facts = Vec<(&'static str, String)>;

pub(crate) fn machine(provenance: &Provenance) -> Facts {
    let Provenance { memory, nodes, .. } = *provenance;
    let yes_or_no = |it: bool| if it { "yes" } else { "no" }.to_owned();
    let mut processors = provenance.processors.to_string();
    processors.extend(provenance.processor_list.iter().map(|list| format!(" (only {list})")));
    let facts = [
        ("processor", Some(cpu(&provenance.cpu))),
        ("emulator", provenance.emulator.as_ref().map(|name| emulated(name))),
        ("microcode", Some(known(&provenance.microcode))),
        ("caches", Some(caches(provenance.caches))),
        ("processors used", Some(processors)),
        ("kernel", Some(known(&provenance.kernel))),
        ("page size", Some(exact_size(provenance.page_size as u64))),
        ("hypervisor", provenance.hypervisor.clone()),
        ("memory", (memory > 0).then(|| size(memory))),
        ("NUMA nodes", (nodes > 0).then(|| nodes.to_string())),
        ("NUMA nodes of the memory", provenance.memory_nodes.clone()),
        ("transparent huge pages", provenance.transparent_huge_pages.clone()),
        ("clock governor", provenance.governor.clone()),
        ("turbo", provenance.turbo.map(yes_or_no)),
        ("simultaneous multithreading", provenance.smt.map(yes_or_no)),
        ("clock source", provenance.clock_source.clone()),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Describes an emulator, and says what that means for times.
pub(crate) fn emulated(name: &str) -> String {
    format!("{name}: times say nothing about a processor")
}

pub(crate) fn run(provenance: &Provenance) -> Facts {
    let mut rows = vec![
        ("memory measured in", format!("pages of {}", exact_size(provenance.backing_page_size as u64))),
        ("date", provenance.date.clone()),
        ("took", format!("{:.1} s, {} samples", provenance.seconds, provenance.samples)),
        ("bulkmem", format!("{} ({})", provenance.bulkmem, provenance.commit)),
    ];
    if !provenance.libraries.is_empty() {
        rows.push(("libraries", provenance.libraries.join(", ")));
    }
    if provenance.load.iter().any(Option::is_some) {
        let load = |load: Option<f64>| load.map_or_else(|| "unknown".to_owned(), |it| format!("{it:.1}"));
        rows.push(("load before and after", provenance.load.map(load).join(", ")));
    }
    rows
}

pub(crate) fn coverage(coverage: &Coverage) -> Facts {
    let mut rows = vec![("mode", word(&coverage.mode)), ("complete", complete(coverage))];
    // Operations may come from several calibrations.
    let measured = coverage.operations.iter().map(|it| {
        format!("{} ({}, {})", it.operation, it.date.split('T').next().unwrap_or_default(), word(&it.mode))
    });
    let measured: Vec<String> = measured.collect();
    if !measured.is_empty() {
        rows.push(("measured", measured.join(", ")));
    }
    let loads = coverage.operations.iter().filter_map(|it| Some((it.operation, it.load.as_ref()?)));
    if let Some((operation, most)) = loads.max_by(|a, b| a.1.others.total_cmp(&b.1.others)) {
        let text = format!("used at most {}, while {operation} was measured", load(most));
        rows.push(("other processes", text));
    }
    rows
}

/// Says whether every operation was measured; if not, which are missing.
fn complete(coverage: &Coverage) -> String {
    if coverage.complete {
        return "yes".to_owned();
    }
    let measured = |operation: &Operation| coverage.operations.iter().any(|it| it.operation == *operation);
    let missing: Vec<&str> = Operation::ALL.iter().filter(|it| !measured(it)).map(|it| it.name()).collect();
    if missing.len() == Operation::ALL.len() {
        return "no: calibration was interrupted".to_owned();
    }
    format!("no: not measured to the end: {}", missing.join(", "))
}

/// Returns how much of the processors other processes used.
pub(crate) fn load(load: &Load) -> String {
    let mut text = format!("{:.2} of {} processors", load.others, load.processors);
    if let Some(most) = load.busiest.first() {
        // The name comes from a file: it may contain anything.
        text += &format!(" (most: `{}`, pid {})", most.name.escape_debug(), most.pid);
    }
    for (share, who) in [(load.stolen, "the hypervisor took"), (load.throttled, "a limit (cpu.max) took")] {
        if share >= 0.01 {
            text += &format!(", {who} {:.0} % of the time", share * 100.0);
        }
    }
    text
}

/// Returns a processor's name without the words that every name has.
pub(crate) fn short(cpu: &CpuIdentity) -> String {
    let words = cpu.name.split_whitespace().filter(|word| !matches!(*word, "CPU" | "Processor"));
    let name = words.collect::<Vec<_>>().join(" ").replace("(R)", "").replace("(TM)", "").replace("(tm)", "");
    match name.split(" @ ").next().unwrap_or_default().trim() {
        "" => format!("{} {}:{}:{}", cpu.vendor, cpu.family, cpu.model, cpu.stepping),
        name => name.to_owned(),
    }
}

/// Returns the microarchitecture of a processor; if it is not a known one, with the processor's identity.
pub(crate) fn microarchitecture(cpu: &CpuIdentity) -> String {
    let machine = Machine { cpu: cpu.clone(), ..Machine::current().clone() };
    match &Policy::defaults(&machine).origin().basis {
        Basis::Defaults { microarchitecture, .. } => microarchitecture.clone(),
        _ => "unknown".to_owned(),
    }
}

pub(crate) fn cpu(cpu: &CpuIdentity) -> String {
    let CpuIdentity { vendor, family, model, stepping, name } = cpu;
    format!("{} ({vendor} {family}:{model}:{stepping})", known(name))
}

pub(crate) fn caches(levels: [u64; 3]) -> String {
    let [l1, l2, l3] = levels.map(|bytes| if bytes == 0 { "unknown".to_owned() } else { size(bytes) });
    format!("L1d {l1}, L2 {l2}, L3 {l3}")
}

/// Returns a text, or `unknown` if it is empty.
pub(crate) fn known(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}
