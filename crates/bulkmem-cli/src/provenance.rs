//! Where a profile comes from, as rows of names and values.

use bulkmem::Operation;
use bulkmem::policy::CpuIdentity;
use bulkmem_measure::calibration::{Coverage, Load, Mode, Profile};

use crate::output::{exact_size, size};

/// A profile's provenance, for people.
pub(crate) fn rows(profile: &Profile) -> Vec<(&'static str, String)> {
    let Profile { provenance, coverage, .. } = profile;
    let mut rows = vec![
        ("processor", cpu(&provenance.cpu)),
        ("microcode", known(&provenance.microcode)),
        ("caches", caches(provenance.caches)),
        ("processors used", provenance.processors.to_string()),
        ("kernel", known(&provenance.kernel)),
        ("page size", exact_size(provenance.page_size as u64)),
        ("memory measured in", format!("pages of {}", exact_size(provenance.backing_page_size as u64))),
        ("date", provenance.date.clone()),
        ("bulkmem", format!("{} ({})", provenance.bulkmem, provenance.commit)),
        ("mode", mode(coverage.mode).to_owned()),
        ("took", format!("{:.1} s", provenance.seconds)),
        ("samples", provenance.samples.to_string()),
        ("complete", complete(coverage)),
    ];
    // A date and a mode each: they may come from several calibrations.
    let measured: Vec<String> = coverage
        .operations
        .iter()
        .map(|it| {
            format!("{} ({}, {})", it.operation, it.date.split('T').next().unwrap_or_default(), mode(it.mode))
        })
        .collect();
    if !measured.is_empty() {
        rows.push(("measured", measured.join(", ")));
    }
    let loads = coverage.operations.iter().filter_map(|it| Some((it.operation, it.load.as_ref()?)));
    if let Some((operation, most)) = loads.max_by(|a, b| a.1.others.total_cmp(&b.1.others)) {
        rows.push((
            "other processes",
            format!("used at most {}, while {operation} was measured", load(most)),
        ));
    }
    rows
}

/// Whether every operation was measured; if not, which were not.
fn complete(coverage: &Coverage) -> String {
    if coverage.complete {
        return "yes".to_owned();
    }
    let measured = |operation: &Operation| coverage.operations.iter().any(|it| it.operation == *operation);
    if !Operation::ALL.iter().any(measured) {
        return "no: calibration was interrupted".to_owned();
    }
    let missing: Vec<&str> = Operation::ALL.iter().filter(|it| !measured(it)).map(|it| it.name()).collect();
    format!("no: not measured to the end: {}", missing.join(", "))
}

/// What others did with the processors.
pub(crate) fn load(load: &Load) -> String {
    let mut text = format!("{:.2} of {} processors", load.others, load.processors);
    if let Some(most) = load.busiest.first() {
        // The name comes from a file: it may hold anything.
        text += &format!(" (most: `{}`, pid {})", most.name.escape_debug(), most.pid);
    }
    for (share, who) in [(load.stolen, "the hypervisor took"), (load.throttled, "a limit (cpu.max) took")] {
        if share >= 0.01 {
            text += &format!(", {who} {:.0} % of the time", share * 100.0);
        }
    }
    text
}

/// A processor's name and numbers.
pub(crate) fn cpu(cpu: &CpuIdentity) -> String {
    let CpuIdentity { vendor, family, model, stepping, name } = cpu;
    format!("{} ({vendor} {family}:{model}:{stepping})", known(name))
}

/// Cache sizes by level.
pub(crate) fn caches(levels: [u64; 3]) -> String {
    let level = |bytes: u64| if bytes == 0 { "unknown".to_owned() } else { size(bytes) };
    format!("L1d {}, L2 {}, L3 {}", level(levels[0]), level(levels[1]), level(levels[2]))
}

/// A text, or that it is unknown.
pub(crate) fn known(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Quick => "quick",
        Mode::Default => "default",
        Mode::Thorough => "thorough",
    }
}
