//! Ranks the published machines by similarity to this one.

use super::Alike;
use super::ours::Ours;
use super::published::{Measured, published};

const MIB: u64 = 1 << 20;
const STRINGS: [&str; 2] = ["rep_stosb", "rep_stosq"];

/// Returns the published machines: the same model first, then by distance.
pub(super) fn rank(ours: &Ours<'_>) -> Vec<Alike> {
    let by_size = &published().memset_by_size;
    let by_chunk = &published().clear_by_chunk;
    let mut all: Vec<Alike> = by_size
        .machines
        .iter()
        .map(|machine| {
            let curve = |name: &str| machine.methods.get(name).map(|it| it.mean.clone());
            let here = |at: usize, name: &str| {
                let size = by_size.sizes_mib[at] * MIB;
                if STRINGS.contains(&name) { ours.string(size) } else { ours.clear(name, size) }
            };
            judge(ours, machine, curve, by_size.sizes_mib.len(), here)
        })
        .collect();
    all.extend(by_chunk.machines.iter().map(|machine| {
        let curve = |name: &str| machine.methods.get(name).cloned();
        judge(ours, machine, curve, by_chunk.chunks.len(), |at, name| ours.chunk(name, by_chunk.chunks[at]))
    }));
    let key = |it: &Alike| (!it.same_model, it.distance.unwrap_or(f64::INFINITY));
    all.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    all
}

fn judge<T>(
    ours: &Ours<'_>,
    machine: &Measured<T>,
    curve: impl Fn(&str) -> Option<Vec<f64>>,
    configs: usize,
    here: impl Fn(usize, &str) -> Option<f64>,
) -> Alike {
    let provenance = &ours.0.provenance;
    let cpu = &machine.cpu;
    let same_model = cpu.same_model(&provenance.cpu);
    let mut reasons = Vec::new();
    reasons.push(if same_model && cpu.stepping == provenance.cpu.stepping {
        format!("the same family, model and stepping ({}:{}:{})", cpu.family, cpu.model, cpu.stepping)
    } else if same_model {
        format!("the same family and model ({}:{})", cpu.family, cpu.model)
    } else if cpu.vendor == provenance.cpu.vendor && cpu.family == provenance.cpu.family {
        format!("the same vendor and family ({}), another model", cpu.family)
    } else if cpu.vendor == provenance.cpu.vendor {
        "the same vendor, another family".to_owned()
    } else {
        "another vendor".to_owned()
    });
    let own = provenance.caches[2] >> 20;
    if own > 0 {
        reasons.push(format!("last-level cache {} MiB there, {own} MiB here", machine.llc_mib));
    }
    let base = STRINGS.into_iter().find(|name| curve(name).is_some());
    let mut differences = Vec::new();
    for name in ["movnti", "clzero"] {
        let (Some(base), Some(theirs)) = (base, curve(name)) else { continue };
        let Some(reference) = curve(base) else { continue };
        let before = differences.len();
        for at in 0..configs {
            if let (Some(own), Some(own_base)) = (here(at, name), here(at, base)) {
                differences.push((own / own_base).ln() - (theirs[at] / reference[at]).ln());
            }
        }
        // The largest size shows how the machine treats memory, as opposed to caches.
        if let (true, Some(own), Some(own_base)) =
            (differences.len() > before, here(configs - 1, name), here(configs - 1, base))
        {
            reasons.push(format!(
                "{name} against the string instruction at the largest: {:.2} times there, {:.2} times here",
                theirs[configs - 1] / reference[configs - 1],
                own / own_base
            ));
        }
    }
    let squares: f64 = differences.iter().map(|difference| difference * difference).sum();
    Alike {
        machine: machine.uarch.clone(),
        distance: (!differences.is_empty()).then(|| (squares / differences.len() as f64).sqrt()),
        same_model,
        reasons,
    }
}
