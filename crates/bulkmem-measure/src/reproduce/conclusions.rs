//! Judges the conclusions of the sources by this machine's figures.

use bulkmem::Operation;

use super::ours::Ours;
use super::published::published;
use super::{Conclusion, Verdict};
use crate::engine::Direction::{self, Read, Write};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Smaller differences count as none.
const SAME: f64 = 0.05;
/// A ratio above this is closer to two orders of magnitude than to one.
const TWO_ORDERS: f64 = 31.6;

/// Methods that load with MOVNTDQA and store ordinarily, then those that also store around the cache.
const STREAMING_LOADS: [&str; 6] = [
    "movntdqa_store_sse41",
    "movntdqa_store_avx2",
    "movntdqa_store_avx512",
    "movntdqa_sse41",
    "movntdqa_avx2",
    "movntdqa_avx512",
];

/// Non-temporal stores, from narrow to wide.
const NONTEMPORAL: [&str; 5] =
    ["movnti_4", "movnti", "nontemporal_sse2", "nontemporal_avx", "nontemporal_avx512"];

/// True if a conclusion holds, with this machine's figures in words; `None` if they were not measured.
type Here = Option<(bool, String)>;
/// The same, by the conclusion's `id` in the published facts.
type Judged = Vec<(&'static str, Here)>;

/// Judges every conclusion, in the order of the published facts.
pub(super) fn judge(ours: &Ours<'_>) -> Vec<Conclusion> {
    let facts = published();
    let mut judged = judge_by_id(ours);
    let conclusions = facts.conclusions.iter().map(|it| {
        let found = judged.iter_mut().find(|(id, _)| *id == it.id).and_then(|(_, here)| here.take());
        let (verdict, here) = match found {
            Some((true, here)) => (Verdict::Holds, here),
            Some((false, here)) => (Verdict::Fails, here),
            None => (Verdict::NotMeasured, format!("not measured here: {}", it.needs)),
        };
        Conclusion {
            claim: it.claim.clone(),
            source: facts.sources[&it.source].clone(),
            published: it.published.clone(),
            here,
            verdict,
        }
    });
    conclusions.collect()
}

pub(super) fn judge_by_id(ours: &Ours<'_>) -> Judged {
    [clear_by_size, clear_by_chunk, persist, read_back, random_access, cache_attributes]
        .into_iter()
        .flat_map(|judge| judge(ours))
        .collect()
}

/// A ratio as the sources write it: `+117.3 %`.
fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn least_and_most(speeds: &[f64]) -> (f64, f64) {
    speeds.iter().fold((f64::INFINITY, 0.0), |(least, most), speed| (speed.min(least), speed.max(most)))
}

fn clear_by_size(ours: &Ours<'_>) -> Judged {
    let gain = |mib: u64| Some(ours.clear("movnti", mib * MIB)? / ours.string(mib * MIB)?);
    let text = |ratio, size| format!("{} at {size}", percent(ratio));
    let beyond = gain(1024).map(|one| {
        let (least, more) = match gain(4096) {
            Some(four) => (one.min(four), format!(", {}", text(four, "4 GiB"))),
            None => (one, String::new()),
        };
        (least > 1.0 + SAME, text(one, "1 GiB") + &more)
    });
    // How many times as fast within the cache as beyond it.
    let loss = |speed: &dyn Fn(u64) -> Option<f64>| {
        let (small, large) = (speed(16 * MIB)?, speed(GIB)?);
        Some((small / large, format!("{small:.1} GB/s at 16 MiB, {large:.1} at 1 GiB")))
    };
    let string = loss(&|size| ours.string(size));
    let movnti = loss(&|size| ours.clear("movnti", size));
    vec![
        ("movnti_within_cache", gain(16).map(|ratio| (ratio < 1.0, text(ratio, "16 MiB")))),
        ("movnti_beyond_cache", beyond),
        ("movnti_no_gain", gain(1024).map(|ratio| ((ratio - 1.0).abs() <= SAME, text(ratio, "1 GiB")))),
        ("string_loss", string.map(|(ratio, text)| (ratio > 1.2, format!("{text}: {ratio:.1} times")))),
        ("movnti_flat_sizes", movnti.map(|(ratio, text)| ((ratio - 1.0).abs() <= 0.15, text))),
    ]
}

fn clear_by_chunk(ours: &Ours<'_>) -> Judged {
    let flat = |name: &str| -> Here {
        let chunks = &published().clear_by_chunk.chunks;
        let speeds: Vec<f64> = chunks.iter().filter_map(|chunk| ours.chunk(name, *chunk)).collect();
        let (least, most) = least_and_most(&speeds);
        let text = format!("{least:.1} to {most:.1} GB/s over the chunks");
        (speeds.len() > 2).then_some((most / least <= 1.25, text))
    };
    let string = |to: u64, from: u64| Some(ours.chunk("rep_stosb", to)? / ours.chunk("rep_stosb", from)?);
    let beats_string = |name: &str| -> Here {
        let gain = ours.chunk(name, 2 * MIB)? / ours.chunk("rep_stosb", 2 * MIB)?;
        Some((gain > 1.0 + SAME, format!("{gain:.2} times REP STOSB by 2 MiB")))
    };
    let larger = |gain| (gain > 1.0 + SAME, format!("{} from 4 KiB to 2 MiB", percent(gain)));
    let scales = |gain| (gain > 1.5, format!("{gain:.2} times as fast by 1 GiB as by 2 MiB"));
    vec![
        ("larger_extents", string(2 * MIB, 4096).map(larger)),
        ("string_scales", string(GIB, 2 * MIB).map(scales)),
        ("movnti_flat_chunks", flat("movnti")),
        ("movnti_fastest_intel", beats_string("movnti")),
        ("clzero_fastest_amd", beats_string("clzero")),
        ("clzero_flat_chunks", flat("clzero")),
    ]
}

fn persist(ours: &Ours<'_>) -> Judged {
    let speeds: Vec<f64> = NONTEMPORAL.iter().filter_map(|name| ours.persist(name)).collect();
    let (least, most) = least_and_most(&speeds);
    let widths = (most / least <= 1.1, format!("{least:.1} to {most:.1} GB/s"));
    let ratio = |name: &str, other: &str| Some(ours.persist(name)? / ours.persist(other)?);
    let cached = |gain| (gain > 1.0 + SAME, format!("{} against MOVNTI", percent(gain)));
    let wide = |gain| (gain < 0.8, format!("{gain:.2} times the 8-byte stores"));
    let alike = |gain: f64| ((gain - 1.0).abs() <= SAME, format!("{} against CLWB", percent(gain)));
    let pollution = ours.growth("movnti").zip(ours.growth("store_8_clwb")).map(|(bypassing, cached)| {
        let text = format!(
            "the walk takes {bypassing:.2} times as long after MOVNTI, {cached:.2} times after stores and CLWB"
        );
        let added = (bypassing - 1.0, cached - 1.0);
        // "As much": the smaller is at least three quarters of the larger.
        (added.0.min(added.1) >= 0.75 * added.0.max(added.1), text)
    });
    vec![
        ("nontemporal_widths", (speeds.len() >= 3).then_some(widths)),
        ("cached_stores_clwb", ratio("store_8_clwb", "movnti").map(cached)),
        ("wide_stores_clwb", ratio("store_avx512_clwb", "store_8_clwb").map(wide)),
        ("clflushopt_clwb", ratio("store_8_clflushopt", "store_8_clwb").map(alike)),
        ("pollution", pollution),
    ]
}

fn read_back(ours: &Ours<'_>) -> Judged {
    let bypassing = |size: u64, holds: fn(f64) -> bool| -> Here {
        let (cached, bypassing) = ours.read_back(Operation::Clear, size);
        let ratio = bypassing? / cached?;
        Some((holds(ratio), format!("bypassing takes {ratio:.2} times as long as caching")))
    };
    vec![
        ("read_back_32k", bypassing(32 << 10, |ratio| ratio > 1.0)),
        ("read_back_320k", bypassing(320 << 10, |ratio| ratio <= 1.0)),
        // A program cannot choose how the kernel copies pages.
        ("fork_copy", None),
    ]
}

fn random_access(ours: &Ours<'_>) -> Judged {
    let against_memcpy = |best: Option<f64>, direction, holds: fn(f64) -> bool| -> Here {
        let (best, plain) = (best? / 1e6, ours.iops("c_library", direction)? / 1e6);
        let verb = if direction == Read { "reads" } else { "writes" };
        let ratio = best / plain;
        Some((holds(ratio), format!("{best:.2} M against {plain:.2} M {verb} a second: {}", percent(ratio))))
    };
    let streaming = best_streaming(|name| ours.iops(name, Read));
    vec![
        ("random_writes", against_memcpy(ours.iops("movnti", Write), Write, |ratio| ratio >= 1.0 - SAME)),
        ("random_streaming_loads", against_memcpy(streaming, Read, |ratio| ratio > 1.0 + SAME)),
    ]
}

/// The best figure of the methods that load with MOVNTDQA.
fn best_streaming(figure: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    STREAMING_LOADS.iter().filter_map(|name| figure(name)).max_by(f64::total_cmp)
}

fn cache_attributes(ours: &Ours<'_>) -> Judged {
    let plain = |attribute: &str, direction| ours.iops_in(attribute, "c_library", direction);
    let movnti = |direction| ours.iops_in("wc", "movnti", direction);
    let slowdown = |direction: Direction| Some(plain("wb", direction)? / plain("uc", direction)?);
    let uncached = slowdown(Read).zip(slowdown(Write)).map(|(reads, writes)| {
        let text = format!(
            "{reads:.0} times fewer reads and {writes:.0} times fewer writes than in write-back memory"
        );
        (reads.min(writes) > TWO_ORDERS, text)
    });
    let compare = |here: Option<f64>, other: Option<f64>, holds: fn(f64) -> bool| -> Here {
        let (here, other) = (here?, other?);
        Some((holds(here / other), format!("{here:.0} a second against {other:.0}")))
    };
    let streaming = best_streaming(|name| ours.iops_in("wc", name, Read));
    let (reads, writes) = (plain("wc", Read), plain("wc", Write));
    vec![
        ("uncached_slow", uncached),
        ("wc_reads_slow", compare(reads, plain("wb", Read), |ratio| ratio < 0.5)),
        ("wc_writes_fast", compare(writes, plain("wb", Write), |ratio| ratio > 1.0 + SAME)),
        ("wc_reads_movnti", compare(movnti(Read), reads, |ratio| ratio > 2.0)),
        ("wc_writes_movnti", compare(movnti(Write), writes, |ratio| ratio < 1.0 - SAME)),
        ("wc_streaming_loads", compare(streaming, reads, |ratio| ratio > 1.0 + SAME)),
    ]
}
