//! Judges the conclusions of the sources by this machine's figures.

use bulkmem::Operation;

use super::ours::{Ours, Place, beside_clearing, is_build};
use super::published::published;
use super::{Conclusion, Verdict};
use crate::engine::Direction::{Read, Write};
use crate::engine::units::bytes;
use crate::engine::{Contrast, CopySide, Measurement, Results, Row};
use crate::measurements::{
    BYPASSING_COPIES, BYPASSING_PAGES, CACHED_PAGES, Crossover, HALVES, KERNEL_4K, WHOLE, compared,
    crossovers, describe, located, longer,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Smaller differences count as none.
const SAME: f64 = 0.05;
/// The same, percent.
const PERCENT: f64 = 100.0 * SAME;
/// A ratio above this is closer to two orders of magnitude than to one.
const TWO_ORDERS: f64 = 31.6;

/// Non-temporal stores, from narrow to wide.
pub(super) const NONTEMPORAL: [&str; 5] =
    ["movnti_4", "movnti", "nontemporal_sse2", "nontemporal_avx", "nontemporal_avx512"];

/// The published gain of a program beside clearing, percent.
const GAIN_BESIDE: f64 = 2.0;

/// The methods whose copies are judged with and without prefetches of the source.
pub(super) const LOOPS: [&str; 2] = ["store_sse2", "nontemporal_sse2"];

/// Thresholds are judged if they were located to within this factor.
const LOCATED: f64 = 1.1;

/// True if a conclusion holds, `None` inside if the figures do not decide it, and the figures in words; `None` if they were not
/// measured.
type Here = Option<(Option<bool>, String)>;
/// The same for conclusions that medians decide.
type Decided = Option<(bool, String)>;
/// The same, by the conclusion's `id` in the published facts, and in their order.
type Judged = Vec<(&'static str, Here)>;

pub(super) fn judge(ours: &Ours<'_>) -> Vec<Conclusion> {
    let facts = published();
    let conclusions = facts.conclusions.iter().zip(judge_by_id(ours)).map(|(it, (id, found))| {
        debug_assert_eq!(it.id, id);
        // The crossover in ordinary memory says nothing about persistent memory; it is shown next to the published one.
        let aside = || match id {
            "pmem_crossover" => describe(&compared(&ours.blocks(Place::Ram))),
            _ => None,
        };
        let elsewhere = it.processors.as_ref().filter(|only| !only.include(&ours.all.provenance.cpu));
        let (verdict, here) = match (elsewhere, found) {
            (Some(only), _) => (Verdict::NotApplicable, format!("about {} only", only.name)),
            (None, Some((Some(true), here))) => (Verdict::Holds, here),
            (None, Some((Some(false), here))) => (Verdict::Fails, here),
            (None, Some((None, here))) => {
                (Verdict::NotMeasured, format!("measured, but not decided: {here}"))
            }
            (None, None) => {
                let aside = aside().map(|text| format!("; in ordinary memory, {text}")).unwrap_or_default();
                (Verdict::NotMeasured, format!("not measured here: {}{aside}", it.needs))
            }
        };
        let (claim, published) = (it.claim.clone(), it.published.clone());
        Conclusion { claim, source: facts.sources[&it.source].clone(), published, here, verdict }
    });
    conclusions.collect()
}

pub(super) fn judge_by_id(ours: &Ours<'_>) -> Judged {
    [clear_by_size(ours), clear_by_chunk(ours), vm(ours), persist(ours), pages(ours), random_access(ours)]
        .concat()
}

fn decided<const N: usize>(found: [(&'static str, Decided); N]) -> Judged {
    found.map(|(id, found)| (id, found.map(|(holds, here)| (Some(holds), here)))).into()
}

/// Judges a difference in percent by its interval; undecided if that contains the bound, or there are too few samples.
fn by_interval(contrast: &Contrast, bound: f64, above: bool) -> Option<bool> {
    let [low, high] = contrast.interval;
    let decided = contrast.enough && (low > bound || high <= bound);
    decided.then_some((low > bound) == above)
}

/// Combines two verdicts, both of which a conclusion needs.
fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        _ => Some(one? && other?),
    }
}

/// A difference with its interval: `+8.0 % (+7.1 to +8.9)`.
fn spread(contrast: &Contrast) -> String {
    let [low, high] = contrast.interval;
    let few = if contrast.enough { "" } else { "too few samples, " };
    format!("{:+.1} % ({few}{low:+.1} to {high:+.1})", contrast.by)
}

/// A ratio as the sources write it: `+117.3 %`.
fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn more(ratio: f64) -> bool {
    ratio > 1.0 + SAME
}

fn same(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= SAME
}

/// Judges how many times as much the largest speed is as the smallest, if enough of them were measured.
fn flat(speeds: impl Iterator<Item = Option<f64>>, at_most: f64, of_what: &str) -> Decided {
    let speeds: Vec<f64> = speeds.flatten().collect();
    let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = speeds.iter().copied().fold(0.0, f64::max);
    (speeds.len() > 2).then(|| (most / least <= at_most, format!("{least:.1} to {most:.1} GB/s{of_what}")))
}

fn clear_by_size(ours: &Ours<'_>) -> Judged {
    let gain = |mib: u64| Some(ours.clear("movnti", mib * MIB)? / ours.clear("rep_stosb", mib * MIB)?);
    let text = |ratio, size| format!("{} at {size}", percent(ratio));
    let beyond = gain(1024).map(|one| {
        let four = gain(4096);
        let also = four.map(|four| format!(", {}", text(four, "4 GiB"))).unwrap_or_default();
        (more(one.min(four.unwrap_or(one))), text(one, "1 GiB") + &also)
    });
    // How many times as fast within the cache as beyond it.
    let loss = |name: &str| {
        let (small, large) = (ours.clear(name, 16 * MIB)?, ours.clear(name, GIB)?);
        Some((small / large, format!("{small:.1} GB/s at 16 MiB, {large:.1} at 1 GiB")))
    };
    let string = loss("rep_stosb").map(|(ratio, text)| (ratio > 1.2, format!("{text}: {ratio:.1} times")));
    decided([
        ("movnti_within_cache", gain(16).map(|ratio| (ratio < 1.0, text(ratio, "16 MiB")))),
        ("movnti_beyond_cache", beyond),
        ("movnti_no_gain", gain(1024).map(|ratio| (same(ratio), text(ratio, "1 GiB")))),
        ("string_loss", string),
        ("movnti_flat_sizes", loss("movnti").map(|(ratio, text)| ((ratio - 1.0).abs() <= 0.15, text))),
    ])
}

fn clear_by_chunk(ours: &Ours<'_>) -> Judged {
    let chunks = || published().clear_by_chunk.lengths.iter();
    let flat = |name| flat(chunks().map(|chunk| ours.chunk(name, *chunk)), 1.25, " over the chunks");
    let string = |to: u64, from: u64| Some(ours.chunk("rep_stosb", to)? / ours.chunk("rep_stosb", from)?);
    let beats_string = |name: &str| -> Decided {
        let gain = ours.chunk(name, 2 * MIB)? / ours.chunk("rep_stosb", 2 * MIB)?;
        Some((more(gain), format!("{gain:.2} times REP STOSB by 2 MiB")))
    };
    let larger = |gain| (more(gain), format!("{} from 4 KiB to 2 MiB", percent(gain)));
    let scales = |gain| (gain > 1.5, format!("{gain:.2} times as fast by 1 GiB as by 2 MiB"));
    decided([
        ("larger_extents", string(2 * MIB, 4096).map(larger)),
        ("string_scales", string(GIB, 2 * MIB).map(scales)),
        ("movnti_flat_chunks", flat("movnti")),
        ("movnti_fastest_intel", beats_string("movnti")),
        ("clzero_fastest_amd", beats_string("clzero")),
        ("clzero_flat_chunks", flat("clzero")),
    ])
}

fn persist(ours: &Ours<'_>) -> Judged {
    let write_cache = |(contrast, group): (Contrast, u64)| {
        let text = format!("{} against MOVNTI, a commit for each {group}", spread(&contrast));
        (by_interval(&contrast, PERCENT, true), text)
    };
    let pollution = |place, holds: fn(f64, f64) -> bool| {
        let (bypassing, cached) = ours.growth(place, "movnti").zip(ours.growth(place, "store_8_clwb"))?;
        let text = format!(
            "the walk takes {bypassing:.2} times as long after MOVNTI, {cached:.2} times after stores and CLWB"
        );
        Some((Some(holds(bypassing - 1.0, cached - 1.0)), text))
    };
    // "As much": the smaller is at least three quarters of the larger. "Far less": at most half.
    let as_much = |bypassing: f64, cached: f64| bypassing.min(cached) >= 0.75 * bypassing.max(cached);
    let far_less = |bypassing: f64, cached: f64| bypassing <= 0.5 * cached;
    let compared = compared(&ours.blocks(Place::Persistent));
    let crossover = describe(&compared).map(|text| (pmem_crossover(&compared), text));
    let sides = [CopySide::Source, CopySide::Destination].map(|side| ours.growth_by_side("movnti", side));
    let [source, destination] = sides;
    let source = source.zip(destination).map(|(source, destination)| {
        let text = format!(
            "the walk takes {} of time after reading the source of MOVNTI's copy, {} after writing its destination",
            spread(&source),
            spread(&destination)
        );
        let source = by_interval(&source, PERCENT, true);
        (both(source, by_interval(&destination, PERCENT, false)), text)
    });
    let names = ["nontemporal_widths", "cached_stores_clwb", "wide_stores_clwb", "clflushopt_clwb"];
    let persistent = [
        "pmem_nontemporal_widths",
        "pmem_cached_stores_clwb",
        "pmem_wide_stores_clwb",
        "pmem_clflushopt_clwb",
    ];
    let mut all = by_width(ours, Place::Ram, names);
    all.push(("pollution", pollution(Place::Ram, as_much)));
    all.push(("pollution_by_source", source));
    all.push(("write_cache", ours.write_cache("store_8_clflushopt", "movnti").map(write_cache)));
    all.extend(by_width(ours, Place::Persistent, persistent));
    all.push(("pmem_pollution", pollution(Place::Persistent, far_less)));
    all.push(("pmem_crossover", crossover));
    all.push(("half_lines", half_lines(&ours.blocks(Place::Ram))));
    all.push(("glibc_threshold", glibc_threshold(ours)));
    all
}

/// Judges whether stores that are written back overtake MOVNTI at 512 to 1024 bytes. Undecided if a crossover's interval
/// contains these lengths and more than the next ones, or if there is no crossover, and no difference on one side of them.
fn pmem_crossover(compared: &[(u64, Contrast)]) -> Option<bool> {
    let at = |it: &Crossover| match it.interval {
        [low, high] if low >= 1024 || high <= 512 => Some(false),
        [low, high] if low >= 256 && high <= 2048 => Some((512.0..=1024.0).contains(&it.at)),
        _ => None,
    };
    let all: Vec<Option<bool>> = crossovers(compared).iter().filter(|it| !it.bypassing).map(at).collect();
    if all.contains(&Some(true)) {
        return Some(true);
    }
    let mut decided = compared.iter().filter(|(_, contrast)| contrast.distinguishable()).map(|it| it.0);
    let around = decided.clone().any(|it| it <= 512) && decided.any(|it| it >= 1024);
    ((around || !all.is_empty()) && !all.contains(&None)).then_some(false)
}

/// Judges persistent writes by width and kind of store.
fn by_width(ours: &Ours<'_>, place: Place, ids: [&'static str; 4]) -> Judged {
    let ratio = |name: &str, other: &str| Some(ours.persist(place, name)? / ours.persist(place, other)?);
    let cached = |gain| (more(gain), format!("{} against MOVNTI", percent(gain)));
    let wide = |gain| (gain < 0.8, format!("{gain:.2} times the 8-byte stores"));
    let alike = |gain| (same(gain), format!("{} against CLWB", percent(gain)));
    let found = [
        flat(NONTEMPORAL.iter().map(|name| ours.persist(place, name)), 1.1, ""),
        ratio("store_8_clwb", "movnti").map(cached),
        ratio("store_avx512_clwb", "store_8_clwb").map(wide),
        ratio("store_8_clflushopt", "store_8_clwb").map(alike),
    ];
    let mut found = found.into_iter();
    decided(ids.map(|id| (id, found.next().flatten())))
}

/// Judges blocks in which the first half of every line is written before the second half of any.
fn half_lines(rows: &[&Row]) -> Here {
    let block =
        rows.iter().filter(|row| row.candidate.name == HALVES).filter_map(|row| row.config.chunk).max()?;
    let contrast = longer(rows, block, [HALVES, WHOLE].map(str::to_owned))?;
    let text = format!("{} of time for blocks of {} written by half lines", spread(&contrast), bytes(block));
    Some((by_interval(&contrast, PERCENT, true), text))
}

/// Judges whether `memcpy` bypasses the cache from three quarters of the last-level cache on, as this process sees it.
fn glibc_threshold(ours: &Ours<'_>) -> Here {
    let copies =
        ours.all.of(Measurement::Threshold).filter(|row| row.config.operation == Some(Operation::Copy));
    let found = match located(&copies.collect::<Vec<_>>())? {
        Ok(found) => found,
        Err(why) => return Some((None, why)),
    };
    let cache = ours.all.provenance.caches.into_iter().max().filter(|bytes| *bytes > 0)?;
    let share = |length: u64| length as f64 / cache as f64;
    let here = format!("{}; the cache has {}", found.text(), bytes(cache));
    let (low, high) = (share(found.cached), found.uncached.map_or(f64::INFINITY, share));
    let possible = low <= 0.75 + SAME && high >= 0.75 - SAME;
    Some(((!possible || high <= low * LOCATED).then_some(possible), here))
}

/// What clearing by the kernel and in the background does to others.
fn vm(ours: &Ours<'_>) -> Judged {
    let creation = ours.declared().filter(|contrast| contrast.enough).map(|contrast| {
        let time = 1.0 + contrast.by / 100.0;
        (Some(time <= 0.5 + SAME), format!("{} of time if declared to the kernel module", percent(time)))
    });
    let beside = |files: &[&Results], cached, than: &str| -> Here {
        let contrast = match beside_clearing(files, cached, "movnti")? {
            Ok(contrast) => contrast,
            Err(why) => return Some((None, why)),
        };
        let text = format!("{} of time with MOVNTI{than}", spread(&contrast));
        let [low, high] = contrast.interval;
        // Too noisy to tell the published gain from none.
        let open = !contrast.enough || (low <= -GAIN_BESIDE && high >= 0.0);
        Some(((!open).then_some(high < 0.0), text))
    };
    let builds: Vec<&Results> = ours.files.iter().copied().filter(|file| is_build(file)).collect();
    let build = beside(&builds, KERNEL_4K, " instead of the kernel's own clearing");
    vec![("vm_creation", creation), ("corun", beside(ours.files, "rep_stosb", "")), ("corun_build", build)]
}

fn pages(ours: &Ours<'_>) -> Judged {
    let gains = |name: &str| Contrast::of(ours.copies(name, true)?, ours.copies(name, false)?);
    let prefetch = gains(LOOPS[0]).map(|cached| {
        let past = gains(LOOPS[1]).map(|past| format!(", {} with non-temporal stores", spread(&past)));
        let here = spread(&cached) + " with cached stores" + &past.unwrap_or_default();
        (by_interval(&cached, PERCENT, true), here)
    });
    let ratio = |name: &str, other: &str| Some(ours.copy(name)? / ours.copy(other)?);
    let alike = |gain: f64| (Some(same(gain)), percent(gain));
    let against_string = |row: Option<&Row>, bound| -> Here {
        let gain = Contrast::of(row?, ours.copies("rep_movsd", false)?)?;
        Some((by_interval(&gain, bound, true), spread(&gain)))
    };
    let fastest = NONTEMPORAL.iter().filter_map(|name| ours.copies(name, false));
    let fastest = fastest.max_by(|a, b| a.stats.median.total_cmp(&b.stats.median));
    let bypassing = |size: u64, longer: bool| {
        let ratio = ours.read_back(size)?;
        Some((Some((ratio > 1.0) == longer), format!("bypassing takes {ratio:.2} times as long as caching")))
    };
    // Times of two pairs of methods at the smallest and the largest buffer of the source.
    let pairs = |name: &str, other: &str, bound: f64, above: bool| -> Here {
        let times = |size| Contrast::of(ours.pages(name, size)?, ours.pages(other, size)?);
        let (small, large) = (times(4 << 10)?, times(256 << 10)?);
        let [at_small, at_large] = [&small, &large].map(|times| by_interval(times, bound, above));
        let (small, large) = (spread(&small), spread(&large));
        let here = format!("{small} of time with 4 KiB, {large} with 256 KiB, within a process");
        Some((both(at_small, at_large), here))
    };
    vec![
        ("loops_string", against_string(ours.copies(LOOPS[0], false), PERCENT)),
        ("loop_alignment", ratio("loop_aligned_sse2", "loop_unaligned_sse2").map(alike)),
        ("prefetch_gain", prefetch),
        ("nontemporal_gain", against_string(fastest, 50.0 - PERCENT)),
        ("read_back_32k", bypassing(32 << 10, true)),
        ("read_back_320k", bypassing(320 << 10, false)),
        // A program cannot choose how the kernel copies pages.
        ("fork_copy", None),
        ("fork_pages", pairs(BYPASSING_PAGES, CACHED_PAGES, -PERCENT, false)),
        ("fork_cached_clears", pairs(BYPASSING_COPIES, BYPASSING_PAGES, -PERCENT, true)),
    ]
}

fn random_access(ours: &Ours<'_>) -> Judged {
    let against_memcpy = |best: Option<f64>, direction, verb: &str, holds: fn(f64) -> bool| -> Decided {
        let (best, plain) = (best? / 1e6, ours.iops("c_library", direction)? / 1e6);
        let ratio = best / plain;
        Some((holds(ratio), format!("{best:.2} M against {plain:.2} M {verb} a second: {}", percent(ratio))))
    };
    // The best of the methods that load with MOVNTDQA and store ordinarily or around the cache.
    let streaming = |figure: &dyn Fn(&str) -> Option<f64>| {
        let names = ours.all.of(Measurement::Iops).map(|row| row.candidate.name.as_str());
        names.filter(|name| name.starts_with("movntdqa_")).filter_map(figure).max_by(f64::total_cmp)
    };
    let plain = |attribute: &str, direction| ours.iops_in(attribute, "c_library", direction);
    let movnti = |direction| ours.iops_in("wc", "movnti", direction);
    let slowdown = |direction| Some(plain("wb", direction)? / plain("uc", direction)?);
    let uncached = slowdown(Read).zip(slowdown(Write)).map(|(reads, writes)| {
        let text = format!(
            "{reads:.0} times fewer reads and {writes:.0} times fewer writes than in write-back memory"
        );
        (reads.min(writes) > TWO_ORDERS, text)
    });
    let compare = |here: Option<f64>, other: Option<f64>, holds: fn(f64) -> bool| -> Decided {
        let (here, other) = (here?, other?);
        Some((holds(here / other), format!("{here:.0} a second against {other:.0}")))
    };
    let (reads, writes) = (plain("wc", Read), plain("wc", Write));
    let loads = streaming(&|name| ours.iops(name, Read));
    let not_less = |ratio| ratio >= 1.0 - SAME;
    decided([
        ("random_writes", against_memcpy(ours.iops("movnti", Write), Write, "writes", not_less)),
        ("random_streaming_loads", against_memcpy(loads, Read, "reads", more)),
        ("uncached_slow", uncached),
        ("wc_reads_slow", compare(reads, plain("wb", Read), |ratio| ratio < 0.5)),
        ("wc_writes_fast", compare(writes, plain("wb", Write), more)),
        ("wc_reads_movnti", compare(movnti(Read), reads, |ratio| ratio > 2.0)),
        ("wc_writes_movnti", compare(movnti(Write), writes, |ratio| ratio < 1.0 - SAME)),
        ("wc_streaming_loads", compare(streaming(&|name| ours.iops_in("wc", name, Read)), reads, more)),
    ])
}
