//! The conclusions of the sources, and whether they hold on this machine.

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

/// The verdict and this machine's figures in words; `None` if they were not measured.
type Here = Option<(bool, String)>;

/// A source, by the name that the published facts use.
#[derive(Clone, Copy)]
struct Source(&'static str);

impl Source {
    /// Returns one conclusion of this source. `needs` names what must be measured to judge it.
    fn concludes(self, claim: &str, published_figures: &str, needs: &str, here: Here) -> Conclusion {
        let (verdict, here) = match here {
            Some((true, here)) => (Verdict::Holds, here),
            Some((false, here)) => (Verdict::Fails, here),
            None => (Verdict::NotMeasured, format!("not measured here: {needs}")),
        };
        Conclusion {
            claim: claim.to_owned(),
            source: published().sources[self.0].clone(),
            published: published_figures.to_owned(),
            here,
            verdict,
        }
    }
}

/// Judges every conclusion, in the order of the sources.
pub(super) fn judge(ours: &Ours<'_>) -> Vec<Conclusion> {
    [clear_by_size, clear_by_chunk, persist, pollution, read_back, random_access, cache_attributes]
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

fn clear_by_size(ours: &Ours<'_>) -> Vec<Conclusion> {
    let source = Source("arora_2020");
    let gain = |mib: u64| Some(ours.clear("movnti", mib * MIB)? / ours.string(mib * MIB)?);
    let gain_text = |ratio, place| format!("{} at {place}", percent(ratio));
    let beyond = gain(1024).map(|one| {
        let (least, more) = match gain(4096) {
            Some(four) => (one.min(four), format!(", {}", gain_text(four, "4 GiB"))),
            None => (one, String::new()),
        };
        (least > 1.0 + SAME, gain_text(one, "1 GiB") + &more)
    });
    // How many times as fast within the cache as beyond it.
    let loss = |speed: &dyn Fn(u64) -> Option<f64>| {
        let (small, large) = (speed(16 * MIB)?, speed(GIB)?);
        Some((small / large, format!("{small:.1} GB/s at 16 MiB, {large:.1} at 1 GiB")))
    };
    vec![
        source.concludes(
            "Within the last-level cache, MOVNTI is slower than the string instruction",
            "at 16 MB -31.8 % on Broadwell-X, -5.4 % on Rome, -69.3 % on Skylake-X",
            "MOVNTI and REP STOS at 16 MiB",
            gain(16).map(|ratio| (ratio < 1.0, gain_text(ratio, "16 MiB"))),
        ),
        source.concludes(
            "Beyond the last-level cache, MOVNTI is faster",
            "from 128 MB on +117 % on Broadwell-X, +31 to +39 % on Rome",
            "MOVNTI and REP STOS at 1 GiB",
            beyond,
        ),
        source.concludes(
            "On Skylake-X, MOVNTI gains nothing beyond the cache either",
            "-3.2 to -3.7 % from 128 MB on",
            "MOVNTI and REP STOS at 1 GiB",
            gain(1024).map(|ratio| ((ratio - 1.0).abs() <= SAME, gain_text(ratio, "1 GiB"))),
        ),
        source.concludes(
            "The string instruction loses most of its speed beyond the cache",
            "3.2 times on Broadwell-X, 1.3 times on Rome, 3.1 times on Skylake-X",
            "REP STOS at 16 MiB and 1 GiB",
            loss(&|size| ours.string(size))
                .map(|(ratio, text)| (ratio > 1.2, format!("{text}: {ratio:.1} times"))),
        ),
        source.concludes(
            "MOVNTI runs at the same speed within and beyond the cache",
            "11.7 to 11.8 GB/s on Broadwell-X, 6.2 to 6.3 on Skylake-X, 14.5 to 16.5 on Rome",
            "MOVNTI at 16 MiB and 1 GiB",
            loss(&|size| ours.clear("movnti", size)).map(|(ratio, text)| ((ratio - 1.0).abs() <= 0.15, text)),
        ),
    ]
}

fn clear_by_chunk(ours: &Ours<'_>) -> Vec<Conclusion> {
    let source = Source("arora_2022");
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
    vec![
        source.concludes(
            "Larger extents alone make the string instruction faster (clear_pages instead of clear_page)",
            "+31 % on Ice Lake-X and +14 % on Milan from 4 KB to 2 MB; virtual machines created 26 to 28 % sooner",
            "REP STOSB by 4 KiB and 2 MiB",
            string(2 * MIB, 4096)
                .map(|gain| (gain > 1.0 + SAME, format!("{} from 4 KiB to 2 MiB", percent(gain)))),
        ),
        source.concludes(
            "From chunks as large as the cache on, the string instruction bypasses the cache on its own and scales",
            "on Milan 2.4 times as fast by 1 GB as by 2 MB; on Ice Lake-X not at all",
            "REP STOSB by 2 MiB and 1 GiB",
            string(GIB, 2 * MIB)
                .map(|gain| (gain > 1.5, format!("{gain:.2} times as fast by 1 GiB as by 2 MiB"))),
        ),
        source.concludes(
            "The chunk makes no difference to MOVNTI, its fence included",
            "24.5 to 24.6 GB/s on Ice Lake-X, 17.8 to 18.6 on Milan",
            "MOVNTI by chunk",
            flat("movnti"),
        ),
        source.concludes(
            "Large extents in 2 MB steps are cleared fastest by MOVNTI on Intel",
            "2.0 times REP STOSB on Ice Lake-X; virtual machines created 43 % sooner",
            "MOVNTI and REP STOSB by 2 MiB",
            beats_string("movnti"),
        ),
        source.concludes(
            "Large extents in 2 MB steps are cleared fastest by CLZERO on AMD",
            "2.6 times REP STOSB on Milan; virtual machines created 58 % sooner",
            "CLZERO, which only AMD processors have, by 2 MiB",
            beats_string("clzero"),
        ),
        source.concludes(
            "The chunk makes little difference to CLZERO",
            "38.9 to 46.0 GB/s on Milan",
            "CLZERO by chunk",
            flat("clzero"),
        ),
    ]
}

fn persist(ours: &Ours<'_>) -> Vec<Conclusion> {
    let source = Source("patocka_2020");
    let speeds: Vec<f64> = NONTEMPORAL.iter().filter_map(|name| ours.persist(name)).collect();
    let (least, most) = least_and_most(&speeds);
    let widths = format!("{least:.1} to {most:.1} GB/s");
    let ratio = |name: &str, other: &str| Some(ours.persist(name)? / ours.persist(other)?);
    vec![
        source.concludes(
            "The width of non-temporal stores makes no difference",
            "4.1 to 4.2 GB/s from 4 to 64 bytes",
            "non-temporal stores of three widths",
            (speeds.len() >= 3).then_some((most / least <= 1.1, widths)),
        ),
        source.concludes(
            "Cached stores of 8 or 16 bytes, each line written back by CLWB, beat non-temporal stores",
            "5.1 against 4.1 GB/s, and 1.6 against 1.3 on NVDIMM",
            "8-byte stores with CLWB, and MOVNTI",
            ratio("store_8_clwb", "movnti")
                .map(|gain| (gain > 1.0 + SAME, format!("{} against MOVNTI", percent(gain)))),
        ),
        source.concludes(
            "With CLWB, 64-byte stores are far slower than narrow ones",
            "1.7 GB/s against 5.1",
            "64-byte stores with CLWB",
            ratio("store_avx512_clwb", "store_8_clwb")
                .map(|gain| (gain < 0.8, format!("{gain:.2} times the 8-byte stores"))),
        ),
        source.concludes(
            "CLFLUSHOPT and CLWB are equally fast",
            "5.92 and 5.82 GB/s",
            "CLFLUSHOPT and CLWB",
            ratio("store_8_clflushopt", "store_8_clwb")
                .map(|gain| ((gain - 1.0).abs() <= SAME, format!("{} against CLWB", percent(gain)))),
        ),
    ]
}

fn pollution(ours: &Ours<'_>) -> Vec<Conclusion> {
    let growth = |bypassing: f64, cached: f64| {
        format!(
            "the walk takes {bypassing:.2} times as long after MOVNTI, {cached:.2} times after stores and CLWB"
        )
    };
    let here = ours.growth("movnti").zip(ours.growth("store_8_clwb")).map(|(bypassing, cached)| {
        let added = (bypassing - 1.0, cached - 1.0);
        // "As much": the smaller is at least three quarters of the larger.
        (added.0.min(added.1) >= 0.75 * added.0.max(added.1), growth(bypassing, cached))
    });
    vec![Source("patocka_2020").concludes(
        "On ordinary memory, non-temporal stores empty the first-level cache as much as stores with CLWB do",
        &growth(2.47, 2.69),
        "a walk after persisting by MOVNTI and by 8-byte stores with CLWB",
        here,
    )]
}

fn read_back(ours: &Ours<'_>) -> Vec<Conclusion> {
    let source = Source("vlasenko_2004");
    let bypassing = |size: u64, holds: fn(f64) -> bool| -> Here {
        let (cached, bypassing) = ours.read_back(Operation::Clear, size);
        let ratio = bypassing? / cached?;
        Some((holds(ratio), format!("bypassing takes {ratio:.2} times as long as caching")))
    };
    vec![
        source.concludes(
            "Clearing 32 KB that are read next: bypassing the cache loses",
            "bypassing takes 1.63 times as long",
            "clearing 32 KiB and reading all of it back",
            bypassing(32 << 10, |ratio| ratio > 1.0),
        ),
        source.concludes(
            "Clearing 320 KB that are read next: bypassing the cache wins",
            "bypassing takes 0.64 times as long (a cache of 128 KB)",
            "clearing 320 KiB and reading all of it back",
            bypassing(320 << 10, |ratio| ratio <= 1.0),
        ),
        source.concludes(
            "Copying pages past the cache makes fork faster",
            "22 % less time at 256 KB",
            "a stock kernel has one way to copy pages; another needs a patched one",
            None,
        ),
    ]
}

fn random_access(ours: &Ours<'_>) -> Vec<Conclusion> {
    let source = Source("elliott_2015");
    let against_memcpy = |best: Option<f64>, direction, holds: fn(f64) -> bool| -> Here {
        let (best, plain) = (best?, ours.iops("c_library", direction)?);
        let verb = if direction == Read { "reads" } else { "writes" };
        let (ratio, millions) = (best / plain, [best, plain].map(|iops| iops / 1e6));
        let [best, plain] = millions;
        Some((holds(ratio), format!("{best:.2} M against {plain:.2} M {verb} a second: {}", percent(ratio))))
    };
    vec![
        source.concludes(
            "On write-back memory, random 4 KiB writes by non-temporal stores are as fast as by ordinary ones",
            "2.6 M against 2.5 M a second",
            "random writes by MOVNTI and by memcpy",
            against_memcpy(ours.iops("movnti", Write), Write, |ratio| ratio >= 1.0 - SAME),
        ),
        source.concludes(
            "MOVNTDQA might help reads of write-back memory (nobody had tried)",
            "no figure: a question",
            "random reads by MOVNTDQA and by memcpy",
            against_memcpy(best_of(|name| ours.iops(name, Read)), Read, |ratio| ratio > 1.0 + SAME),
        ),
    ]
}

/// The best figure of the methods that load with MOVNTDQA.
fn best_of(figure: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    STREAMING_LOADS.iter().filter_map(|name| figure(name)).max_by(f64::total_cmp)
}

fn cache_attributes(ours: &Ours<'_>) -> Vec<Conclusion> {
    let concludes = |claim: &str, published_figures: &str, what: &str, here: Here| {
        let needs = format!(
            "{what} memory of /dev/bulkmem, which the kernel module provides (docs/kernel/README.md): \
             `bulkmem bench iops --attr wb,wc,uc`"
        );
        Source("elliott_2015").concludes(claim, published_figures, &needs, here)
    };
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
    vec![
        concludes(
            "Uncached mappings are two orders of magnitude slower than write-back ones",
            "37 K against 3.6 M reads, 21 K against 2.5 M writes a second",
            "random reads and writes in uncached and write-back",
            uncached,
        ),
        concludes(
            "Write-combining memory is read several times as slowly as write-back memory",
            "764 K against 3.6 M reads a second",
            "random reads in write-combining and write-back",
            compare(plain("wc", Read), plain("wb", Read), |ratio| ratio < 0.5),
        ),
        concludes(
            "Write-combining memory is written faster than write-back memory",
            "3.7 M against 2.5 M writes a second",
            "random writes in write-combining and write-back",
            compare(plain("wc", Write), plain("wb", Write), |ratio| ratio > 1.0 + SAME),
        ),
        concludes(
            "A copy by non-temporal stores reads write-combining memory several times as fast as memcpy",
            "3.2 M against 764 K reads a second",
            "random reads by MOVNTI and by memcpy in write-combining",
            compare(movnti(Read), plain("wc", Read), |ratio| ratio > 2.0),
        ),
        concludes(
            "Write-combining memory is written more slowly by non-temporal stores than by memcpy",
            "2.1 M against 3.7 M writes a second",
            "random writes by MOVNTI and by memcpy in write-combining",
            compare(movnti(Write), plain("wc", Write), |ratio| ratio < 1.0 - SAME),
        ),
        concludes(
            "MOVNTDQA might help reads of write-combining memory (nobody had tried)",
            "no figure: a question",
            "random reads by MOVNTDQA and by memcpy in write-combining",
            compare(best_of(|name| ours.iops_in("wc", name, Read)), plain("wc", Read), |ratio| {
                ratio > 1.0 + SAME
            }),
        ),
    ]
}
