//! What the sources conclude, and whether it holds here.

use bulkmem::Operation;

use super::attributes::by_attribute;
use super::ours::Ours;
use super::published::published;
use super::{Conclusion, Verdict};
use crate::engine::Direction;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Differences below this share count as none.
pub(super) const SAME: f64 = 0.05;

/// Methods that load by MOVNTDQA: those that leave what was read in the cache, and those that do not.
pub(super) const STREAMING_LOADS: [&str; 6] = [
    "movntdqa_store_sse41",
    "movntdqa_store_avx2",
    "movntdqa_store_avx512",
    "movntdqa_sse41",
    "movntdqa_avx2",
    "movntdqa_avx512",
];

/// The sources by their authors.
const ARORA_2020: &str = "arora_2020";
const ARORA_2022: &str = "arora_2022";
const PATOCKA_2020: &str = "patocka_2020";
const VLASENKO_2004: &str = "vlasenko_2004";
pub(super) const ELLIOTT_2015: &str = "elliott_2015";

/// Judges every conclusion.
pub(super) fn judge(ours: &Ours<'_>) -> Vec<Conclusion> {
    let mut all = by_size(ours);
    all.extend(by_chunk(ours));
    all.extend(persisting(ours));
    all.extend(polluting(ours));
    all.extend(reading_back(ours));
    all.extend(random(ours));
    all.extend(by_attribute(ours));
    all
}

/// A conclusion with what was measured here: whether it holds, and the figures in words; or why there are none.
pub(super) fn conclusion(
    source: &str,
    claim: &str,
    published_figures: &str,
    here: Result<(bool, String), String>,
) -> Conclusion {
    let (verdict, here) = match here {
        Ok((true, here)) => (Verdict::Holds, here),
        Ok((false, here)) => (Verdict::Fails, here),
        Err(why) => (Verdict::NotMeasured, why),
    };
    Conclusion {
        claim: claim.to_owned(),
        source: published().sources[source].clone(),
        published: published_figures.to_owned(),
        here,
        verdict,
    }
}

/// A ratio as the sources write it: `+117.3 %`.
fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

pub(super) fn missing(what: &str) -> String {
    format!("not measured here: {what}")
}

fn by_size(ours: &Ours<'_>) -> Vec<Conclusion> {
    let gain = |mib: u64| {
        let movnti = ours.clear("movnti", mib * MIB).ok_or_else(|| missing("MOVNTI at this size"))?;
        let string = ours.string(mib * MIB).ok_or_else(|| missing("REP STOS at this size"))?;
        Ok::<f64, String>(movnti / string)
    };
    let cached = gain(16).map(|ratio| (ratio < 1.0, format!("{} at 16 MiB", percent(ratio))));
    let beyond = gain(1024).map(|one| {
        let (least, text) = match gain(4096) {
            Ok(four) => (one.min(four), format!("{} at 1 GiB, {} at 4 GiB", percent(one), percent(four))),
            Err(_) => (one, format!("{} at 1 GiB", percent(one))),
        };
        (least > 1.0 + SAME, text)
    });
    let nothing =
        gain(1024).map(|ratio| ((ratio - 1.0).abs() <= SAME, format!("{} at 1 GiB", percent(ratio))));
    let collapse = ours.string(16 * MIB).zip(ours.string(GIB)).map(|(small, large)| {
        (
            small / large > 1.2,
            format!("{small:.1} GB/s at 16 MiB, {large:.1} at 1 GiB: {:.1} times", small / large),
        )
    });
    let flat = ours.clear("movnti", 16 * MIB).zip(ours.clear("movnti", GIB)).map(|(small, large)| {
        ((small / large - 1.0).abs() <= 0.15, format!("{small:.1} GB/s at 16 MiB, {large:.1} at 1 GiB"))
    });
    vec![
        conclusion(
            ARORA_2020,
            "Within the last-level cache, MOVNTI is slower than the string instruction",
            "at 16 MB -31.8 % on Broadwell-X, -5.4 % on Rome, -69.3 % on Skylake-X",
            cached,
        ),
        conclusion(
            ARORA_2020,
            "Beyond the last-level cache, MOVNTI is faster",
            "from 128 MB on +117 % on Broadwell-X, +31 to +39 % on Rome",
            beyond,
        ),
        conclusion(
            ARORA_2020,
            "On Skylake-X, MOVNTI gains nothing beyond the cache either",
            "-3.2 to -3.7 % from 128 MB on",
            nothing,
        ),
        conclusion(
            ARORA_2020,
            "The string instruction loses most of its speed beyond the cache",
            "3.2 times on Broadwell-X, 1.3 times on Rome, 3.1 times on Skylake-X",
            collapse.ok_or_else(|| missing("REP STOS at 16 MiB and 1 GiB")),
        ),
        conclusion(
            ARORA_2020,
            "MOVNTI runs at the same speed within and beyond the cache",
            "11.7 to 11.8 GB/s on Broadwell-X, 6.2 to 6.3 on Skylake-X, 14.5 to 16.5 on Rome",
            flat.ok_or_else(|| missing("MOVNTI at 16 MiB and 1 GiB")),
        ),
    ]
}

fn by_chunk(ours: &Ours<'_>) -> Vec<Conclusion> {
    let chunks = &published().clear_by_chunk.chunks;
    let speeds = |name: &str| -> Option<Vec<f64>> {
        let speeds: Vec<f64> = chunks.iter().filter_map(|chunk| ours.chunk(name, *chunk)).collect();
        (speeds.len() > 2).then_some(speeds)
    };
    let least = |speeds: &[f64]| speeds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |speeds: &[f64]| speeds.iter().copied().fold(0.0, f64::max);
    let range = |speeds: &[f64]| format!("{:.1} to {:.1} GB/s over the chunks", least(speeds), most(speeds));
    let flat = |name: &str| {
        let speeds = speeds(name).ok_or_else(|| missing(&format!("{name} by chunk")))?;
        Ok((most(&speeds) / least(&speeds) <= 1.25, range(&speeds)))
    };
    let ratio = |name: &str, of: u64, to: u64| Some(ours.chunk(name, of)? / ours.chunk(name, to)?);
    let extents = ratio("rep_stosb", 2 * MIB, 4096)
        .map(|gain| (gain > 1.0 + SAME, format!("{} from 4 KiB to 2 MiB", percent(gain))));
    let scales = ratio("rep_stosb", GIB, 2 * MIB)
        .map(|gain| (gain > 1.5, format!("{gain:.2} times as fast by 1 GiB as by 2 MiB")));
    let best_at = |name: &str, chunk: u64| Some(ours.chunk(name, chunk)? / ours.chunk("rep_stosb", chunk)?);
    let clzero = best_at("clzero", 2 * MIB)
        .map(|gain| (gain > 1.0 + SAME, format!("{gain:.2} times REP STOSB by 2 MiB")));
    let movnti = best_at("movnti", 2 * MIB)
        .map(|gain| (gain > 1.0 + SAME, format!("{gain:.2} times REP STOSB by 2 MiB")));
    vec![
        conclusion(
            ARORA_2022,
            "Larger extents alone make the string instruction faster (clear_pages instead of clear_page)",
            "+31 % on Ice Lake-X and +14 % on Milan from 4 KB to 2 MB; virtual machines created 26 to 28 % sooner",
            extents.ok_or_else(|| missing("REP STOSB by 4 KiB and 2 MiB")),
        ),
        conclusion(
            ARORA_2022,
            "From chunks as large as the cache on, the string instruction elides the cache by itself and scales",
            "on Milan 2.4 times as fast by 1 GB as by 2 MB; on Ice Lake-X not at all",
            scales.ok_or_else(|| missing("REP STOSB by 2 MiB and 1 GiB")),
        ),
        conclusion(
            ARORA_2022,
            "The chunk makes no difference to MOVNTI, its fence included",
            "24.5 to 24.6 GB/s on Ice Lake-X, 17.8 to 18.6 on Milan",
            flat("movnti"),
        ),
        conclusion(
            ARORA_2022,
            "Large extents in 2 MB steps are cleared fastest by MOVNTI on Intel",
            "2.0 times REP STOSB on Ice Lake-X; virtual machines created 43 % sooner",
            movnti.ok_or_else(|| missing("MOVNTI and REP STOSB by 2 MiB")),
        ),
        conclusion(
            ARORA_2022,
            "Large extents in 2 MB steps are cleared fastest by CLZERO on AMD",
            "2.6 times REP STOSB on Milan; virtual machines created 58 % sooner",
            clzero.ok_or_else(|| missing("CLZERO, which only AMD processors have, by 2 MiB")),
        ),
        conclusion(
            ARORA_2022,
            "The chunk makes little difference to CLZERO",
            "38.9 to 46.0 GB/s on Milan",
            flat("clzero"),
        ),
    ]
}

fn persisting(ours: &Ours<'_>) -> Vec<Conclusion> {
    const NONTEMPORAL: [&str; 5] =
        ["movnti_4", "movnti", "nontemporal_sse2", "nontemporal_avx", "nontemporal_avx512"];
    let speeds: Vec<f64> = NONTEMPORAL.iter().filter_map(|name| ours.persist(name)).collect();
    let width = if speeds.len() < 3 {
        Err(missing("non-temporal stores of three widths"))
    } else {
        let (least, most) = (
            speeds.iter().copied().fold(f64::INFINITY, f64::min),
            speeds.iter().copied().fold(0.0, f64::max),
        );
        Ok((most / least <= 1.1, format!("{least:.1} to {most:.1} GB/s")))
    };
    let versus = |name: &str, other: &str| Some(ours.persist(name)? / ours.persist(other)?);
    let cached = versus("store_8_clwb", "movnti")
        .map(|gain| (gain > 1.0 + SAME, format!("{} against MOVNTI", percent(gain))));
    let wide = versus("store_avx512_clwb", "store_8_clwb")
        .map(|gain| (gain < 0.8, format!("{gain:.2} times the 8-byte stores")));
    let alike = versus("store_8_clflushopt", "store_8_clwb")
        .map(|gain| ((gain - 1.0).abs() <= SAME, format!("{} against CLWB", percent(gain))));
    vec![
        conclusion(
            PATOCKA_2020,
            "The width of non-temporal stores makes no difference",
            "4.1 to 4.2 GB/s from 4 to 64 bytes",
            width,
        ),
        conclusion(
            PATOCKA_2020,
            "Cached stores of 8 or 16 bytes, each line written back by CLWB, beat non-temporal stores",
            "5.1 against 4.1 GB/s, and 1.6 against 1.3 on NVDIMM",
            cached.ok_or_else(|| missing("8-byte stores with CLWB, and MOVNTI")),
        ),
        conclusion(
            PATOCKA_2020,
            "With CLWB, 64-byte stores are far slower than narrow ones",
            "1.7 GB/s against 5.1",
            wide.ok_or_else(|| missing("64-byte stores with CLWB")),
        ),
        conclusion(
            PATOCKA_2020,
            "CLFLUSHOPT and CLWB are equally fast",
            "5.92 and 5.82 GB/s",
            alike.ok_or_else(|| missing("CLFLUSHOPT and CLWB")),
        ),
    ]
}

fn polluting(ours: &Ours<'_>) -> Vec<Conclusion> {
    let growth = ours.growth("movnti").zip(ours.growth("store_8_clwb"));
    let here = growth.map(|(bypassing, cached)| {
        let text = format!("the walk takes {bypassing:.2} times as long after MOVNTI, {cached:.2} times after stores and CLWB");
        // Of what each adds, the smaller is at least three quarters of the larger.
        let added = (bypassing - 1.0, cached - 1.0);
        (added.0.min(added.1) >= 0.75 * added.0.max(added.1), text)
    });
    vec![conclusion(
        PATOCKA_2020,
        "On ordinary memory, non-temporal stores empty the first-level cache as much as stores with CLWB do",
        "the walk takes 2.47 times as long after MOVNTI, 2.69 times after stores and CLWB",
        here.ok_or_else(|| missing("a walk after persisting by MOVNTI and by 8-byte stores with CLWB")),
    )]
}

fn reading_back(ours: &Ours<'_>) -> Vec<Conclusion> {
    let ratio = |size: u64| {
        let (cached, bypassing) = ours.read_back(Operation::Clear, size);
        Some(bypassing? / cached?)
    };
    let judged = |size: u64, slower: bool| {
        let ratio = ratio(size).ok_or_else(|| missing("clearing and reading all of it back at this size"))?;
        Ok(((ratio > 1.0) == slower, format!("bypassing takes {ratio:.2} times as long as caching")))
    };
    vec![
        conclusion(
            VLASENKO_2004,
            "Clearing 32 KB that are read next: bypassing the cache loses",
            "bypassing takes 1.63 times as long",
            judged(32 << 10, true),
        ),
        conclusion(
            VLASENKO_2004,
            "Clearing 320 KB that are read next: bypassing the cache wins",
            "bypassing takes 0.64 times as long (a cache of 128 KB)",
            judged(320 << 10, false),
        ),
        conclusion(
            VLASENKO_2004,
            "Copying pages past the cache makes fork faster",
            "22 % less time at 256 KB",
            Err(missing("a stock kernel has one way to copy pages; another needs a patched one")),
        ),
    ]
}

fn random(ours: &Ours<'_>) -> Vec<Conclusion> {
    let write = ours.iops("movnti", Direction::Write).zip(ours.iops("c_library", Direction::Write));
    let write = write.map(|(bypassing, cached)| {
        let ratio = bypassing / cached;
        (
            ratio >= 1.0 - SAME,
            format!(
                "{:.2} M against {:.2} M writes a second: {}",
                bypassing / 1e6,
                cached / 1e6,
                percent(ratio)
            ),
        )
    });
    let best =
        STREAMING_LOADS.iter().filter_map(|name| ours.iops(name, Direction::Read)).max_by(f64::total_cmp);
    let read = best.zip(ours.iops("c_library", Direction::Read)).map(|(streaming, plain)| {
        let ratio = streaming / plain;
        (
            ratio > 1.0 + SAME,
            format!(
                "{:.2} M against {:.2} M reads a second: {}",
                streaming / 1e6,
                plain / 1e6,
                percent(ratio)
            ),
        )
    });
    vec![
        conclusion(
            ELLIOTT_2015,
            "On write-back memory, random 4 KiB writes by non-temporal stores are as fast as by ordinary ones",
            "2.6 M against 2.5 M a second",
            write.ok_or_else(|| missing("random writes by MOVNTI and by memcpy")),
        ),
        conclusion(
            ELLIOTT_2015,
            "MOVNTDQA might help reads of write-back memory (nobody had tried)",
            "no figure: a question",
            read.ok_or_else(|| missing("random reads by MOVNTDQA and by memcpy")),
        ),
    ]
}
