//! The conclusions about variants of copies, the pages of a fork, and the sides of a copy.

use super::*;

/// The verdicts of conclusions that start so.
fn verdicts<const N: usize>(rows: Vec<Row>, starts: [&str; N]) -> [Verdict; N] {
    let found = Reproduction::of(&results(rows)).conclusions;
    starts.map(|start| found.iter().find(|it| it.claim.starts_with(start)).expect(start).verdict)
}

#[test]
fn copies_by_loops_with_prefetches_and_past_the_cache_are_judged() {
    let copy = |name: &str, read_distance: u32, speed: f64| {
        let mut row =
            sampled(Measurement::Copy, name, Config { size: Some(64 << 20), ..Config::default() }, speed);
        row.metric = Metric::Bandwidth;
        row.candidate.parameters.read_distance = read_distance;
        row
    };
    let rows = |cached: f64, prefetching: f64, nontemporal: f64, unaligned: f64| {
        vec![
            copy("rep_movsd", 0, 10.0),
            copy("store_sse2", 0, cached),
            copy("store_sse2", 512, cached * prefetching),
            copy("nontemporal_sse2", 0, nontemporal),
            copy("nontemporal_sse2", 512, nontemporal * 0.99),
            copy("loop_aligned_sse2", 0, 10.0),
            copy("loop_unaligned_sse2", 0, unaligned),
        ]
    };
    let of = |rows| {
        let starts = [
            "Loops of wide",
            "The alignment of",
            "Prefetching the source",
            "Non-temporal stores make copies",
        ];
        verdicts(rows, starts)
    };
    assert_eq!(of(rows(10.8, 1.08, 16.0, 9.9)), [Verdict::Holds; 4]);
    assert_eq!(of(rows(10.1, 1.01, 13.0, 9.0)), [Verdict::Fails; 4]);
    let found = Reproduction::of(&results(rows(10.0, 1.08, 16.0, 10.0))).conclusions;
    let here = &found.iter().find(|it| it.claim.starts_with("Prefetching")).unwrap().here;
    for part in ["+8.0 % (+7.", " with cached stores, -1.0 % (-1.", " with non-temporal stores"] {
        assert!(here.contains(part), "{part}: {here}");
    }
    let mut noisy = rows(10.0, 1.08, 16.0, 10.0);
    noisy[2].samples = vec![7.0, 13.0, 8.0, 10.8, 12.0];
    assert_eq!(of(noisy)[2], Verdict::NotMeasured, "not more than noise");
    let mut noisy = rows(10.8, 1.08, 16.0, 10.0);
    noisy[0].samples = vec![7.0, 8.0, 10.0, 12.0, 13.0];
    assert_eq!([of(noisy.clone())[0], of(noisy)[3]], [Verdict::NotMeasured; 2]);
    let mut chunks = copy("nontemporal_sse2", 0, 16.0);
    chunks.config.chunk = Some(64);
    assert_eq!(of(vec![copy("rep_movsd", 0, 10.0), chunks])[3], Verdict::NotMeasured, "not in one call");
}

#[test]
fn the_pages_of_a_fork_are_judged_by_pairs_of_methods() {
    use crate::measurements::{BYPASSING_COPIES, BYPASSING_PAGES, CACHED_PAGES};
    let rows = |bypassing: f64, copies: f64| -> Vec<Row> {
        let sizes = [4 << 10, 256 << 10].into_iter();
        let at = |size| {
            [(CACHED_PAGES, 1000.0), (BYPASSING_PAGES, bypassing), (BYPASSING_COPIES, copies)].map(
                |(name, ns)| {
                    sampled(Measurement::Fork, name, Config { size: Some(size), ..Config::default() }, ns)
                },
            )
        };
        sizes.flat_map(at).collect()
    };
    let of = |rows| verdicts(rows, ["The pages of a fork", "If copies bypass the cache"]);
    assert_eq!(of(rows(800.0, 820.0)), [Verdict::Holds; 2]);
    assert_eq!(of(rows(1300.0, 1000.0)), [Verdict::Fails; 2]);
    assert_eq!(of(rows(800.0, 820.0)[..3].to_vec()), [Verdict::NotMeasured; 2], "one size only");
    let mut noisy = rows(800.0, 820.0);
    noisy[4].samples = vec![500.0, 700.0, 800.0, 1100.0, 1300.0];
    assert_eq!(of(noisy), [Verdict::NotMeasured; 2]);
    let figures = Reproduction::of(&results(rows(800.0, 820.0))).figures;
    let here = figures.iter().filter(|it| it.table.starts_with("the pages of a fork") && it.here.is_some());
    assert_eq!(here.count(), 6);
}

#[test]
fn the_threshold_of_memcpy_is_judged_by_the_cache() {
    let rows = |threshold: u64| -> Vec<Row> {
        let row = |mib: u64| {
            let config =
                Config { operation: Some(Operation::Copy), size: Some(mib << 20), ..Config::default() };
            let mut row = row(Measurement::Threshold, "c_library", config, 10.0);
            row.also.insert("uncached_percent".to_owned(), if mib >= threshold { 97.0 } else { 3.0 });
            row
        };
        [1, 16, 23, 24, 32, 288, 300].map(row).into()
    };
    let of = |rows| {
        let mut results = results(rows);
        results.provenance.caches = [32 << 10, 1 << 20, 32 << 20];
        let found = Reproduction::of(&results).conclusions;
        found.into_iter().find(|it| it.claim.starts_with("glibc's memcpy")).unwrap()
    };
    let found = of(rows(24));
    assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
    assert!(found.here.contains("between 23 MiB and 24 MiB on; the cache has 32 MiB"), "{found:?}");
    assert_eq!(of(rows(288)).verdict, Verdict::Fails);
    assert_eq!(of(rows(1000)).verdict, Verdict::Fails, "no threshold in reach");
    assert_eq!(of(Vec::new()).verdict, Verdict::NotMeasured);
    let mut doubling = rows(32);
    doubling.retain(|row| ![23 << 20, 24 << 20].contains(&row.config.size.unwrap()));
    let found = of(doubling.clone());
    assert_eq!(found.verdict, Verdict::NotMeasured, "anywhere between 16 and 32 MiB");
    assert!(
        found.here.starts_with("measured, but not decided: memcpy bypasses the cache from between"),
        "{found:?}"
    );
    assert_eq!(of(doubling[..2].to_vec()).verdict, Verdict::NotMeasured, "up to half of the cache");
    doubling[0].also.insert("uncached_percent".to_owned(), 88.0);
    let found = of(doubling);
    assert!(found.verdict == Verdict::NotMeasured && found.here.contains("unclear"), "{found:?}");
}

#[test]
fn the_sides_of_a_copy_are_judged_separately() {
    let verdict = |source: f64, destination: f64, noise: f64| {
        let row = |kind, name: &str, side, growth: f64| {
            let config = Config {
                operation: Some(Operation::CopyPersist),
                list: Some(16384),
                side,
                ..Config::default()
            };
            let samples: Vec<f64> = (-3..=3).map(|step| growth + f64::from(step) * noise).collect();
            let also = [("before_ns", 100.0), ("control_ns", 100.0)];
            testing::row(Measurement::Pollution, (kind, name), config, (Metric::Growth, &samples), &also)
        };
        let sides =
            [(None, 400.0), (Some(CopySide::Source), source), (Some(CopySide::Destination), destination)];
        let rows = sides.into_iter().flat_map(|(side, growth)| {
            let control = row(Kind::Control, crate::measurements::SAME_TIME, side, 0.0);
            [row(Kind::Method, "movnti", side, growth), control]
        });
        let found = Reproduction::of(&results(rows.collect())).conclusions;
        found.into_iter().find(|it| it.claim.starts_with("A copy past the cache evicts")).unwrap()
    };
    let found = verdict(160.0, 3.0, 0.5);
    assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
    assert!(found.here.starts_with("the walk takes +160.0 % (+15"), "{found:?}");
    assert_eq!(verdict(3.0, 160.0, 0.5).verdict, Verdict::Fails);
    assert_eq!(verdict(3.0, 0.0, 0.5).verdict, Verdict::Fails, "too little to count");
    assert_eq!(verdict(150.0, 145.0, 0.5).verdict, Verdict::Fails, "by both sides");
    assert_eq!(verdict(160.0, 3.0, 20.0).verdict, Verdict::NotMeasured, "within the noise");
}
