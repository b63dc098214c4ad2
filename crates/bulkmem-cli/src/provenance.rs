//! Where a profile comes from, as rows of names and values.

use bulkmem::policy::{CpuIdentity, Mode, Provenance};

use crate::output::{exact_size, size};

/// A profile's provenance, for people.
pub(crate) fn rows(provenance: &Provenance) -> Vec<(&'static str, String)> {
    let Provenance { caches: [l1, l2, l3], .. } = *provenance;
    vec![
        ("processor", cpu(&provenance.cpu)),
        ("microcode", known(&provenance.microcode)),
        ("caches", caches([l1, l2, l3])),
        ("processors used", provenance.processors.to_string()),
        ("kernel", known(&provenance.kernel)),
        ("page size", exact_size(provenance.page_size as u64)),
        ("memory measured in", format!("pages of {}", exact_size(provenance.backing_page_size as u64))),
        ("date", provenance.date.clone()),
        ("bulkmem", format!("{} ({})", provenance.bulkmem, provenance.commit)),
        ("mode", mode(provenance.mode).to_owned()),
        ("took", format!("{:.1} s", provenance.seconds)),
        ("samples", provenance.samples.to_string()),
        ("complete", if provenance.complete { "yes" } else { "no: calibration was interrupted" }.to_owned()),
    ]
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
