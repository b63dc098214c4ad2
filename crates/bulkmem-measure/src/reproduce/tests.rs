use bulkmem::Operation;
use bulkmem::policy::CpuIdentity;

use super::*;
use crate::engine::{Config, CopySide, Direction, Measurement, Metric, Row, testing};
use crate::{Kind, Provenance};

fn row(measurement: Measurement, name: &str, config: Config, median: f64) -> Row {
    testing::row(measurement, (Kind::Method, name), config, (Metric::Bandwidth, &[median]), &[])
}

fn results(rows: Vec<Row>) -> Results {
    Results {
        format: Results::FORMAT.into(),
        version: Results::VERSION,
        provenance: Provenance::collect(4096, 1.0, 1),
        command: Vec::new(),
        rows,
        findings: Vec::new(),
        notes: Vec::new(),
        complete: true,
    }
}

/// The published machine's own figures, as if they had been measured here.
fn as_published(uarch: &str) -> Results {
    let facts = published::published();
    let mut rows = Vec::new();
    for machine in facts.memset_by_size.machines.iter().filter(|machine| machine.uarch == uarch) {
        for (name, series) in &machine.methods {
            for (mib, mean) in facts.memset_by_size.lengths.iter().zip(series) {
                let config = Config { size: Some(mib << 20), ..Config::default() };
                rows.push(row(Measurement::Clear, name, config, *mean));
            }
        }
    }
    for machine in facts.clear_by_chunk.machines.iter().filter(|machine| machine.uarch == uarch) {
        for (name, speeds) in &machine.methods {
            for (chunk, speed) in facts.clear_by_chunk.lengths.iter().zip(speeds) {
                let config = Config { chunk: Some(*chunk), ..Config::default() };
                rows.push(row(Measurement::Chunks, name, config, speed / 1e3));
            }
        }
    }
    let mut results = results(rows);
    let mut machines = facts.memset_by_size.machines.iter().chain(&facts.clear_by_chunk.machines);
    results.provenance.cpu = machines.rfind(|machine| machine.uarch == uarch).unwrap().cpu.clone();
    results
}

#[test]
fn a_published_machine_recognizes_itself() {
    for uarch in ["Broadwell-X", "Rome", "Skylake-X", "Ice Lake-X", "Milan"] {
        let mut results = as_published(uarch);
        // This machine may be one of the published models, which would come first.
        results.provenance.cpu = CpuIdentity::default();
        let found = Reproduction::of(&results);
        assert_eq!(found.alike[0].machine, uarch, "{:?}", found.alike);
        assert!(found.alike[0].distance.unwrap() < 1e-9);
        let own: Vec<_> = found
            .figures
            .iter()
            .filter(|figure| figure.machine == uarch && figure.table.starts_with("clearing"))
            .collect();
        assert!(!own.is_empty());
        for figure in own {
            assert!((figure.here.unwrap() / figure.published - 1.0).abs() < 1e-9, "{figure:?}");
            assert_eq!(figure.here_ratio.is_some(), figure.published_ratio.is_some());
        }
    }
}

#[test]
fn the_same_model_comes_first_whatever_it_measured() {
    let mut results = as_published("Broadwell-X");
    results.provenance.cpu =
        CpuIdentity { vendor: "GenuineIntel".into(), family: 6, model: 85, stepping: 7, name: String::new() };
    let found = Reproduction::of(&results);
    assert_eq!(found.alike[0].machine, "Skylake-X");
    assert!(
        found.alike[0].same_model && found.alike[0].reasons[0].contains("stepping"),
        "{:?}",
        found.alike[0]
    );
    assert!(found.alike[0].distance.unwrap() > 0.1);
}

#[test]
fn conclusions_hold_on_the_machines_they_come_from() {
    let verdicts = |uarch: &str| -> Vec<(String, Verdict)> {
        let found = Reproduction::of(&as_published(uarch));
        found.conclusions.into_iter().map(|it| (it.claim, it.verdict)).collect()
    };
    let of = |uarch: &str, start: &str| {
        verdicts(uarch).into_iter().find(|(claim, _)| claim.starts_with(start)).expect(start).1
    };
    for (uarch, claim, verdict) in [
        ("Broadwell-X", "Within the last-level cache", Verdict::Holds),
        ("Broadwell-X", "Beyond the last-level cache", Verdict::Holds),
        ("Rome", "Beyond the last-level cache", Verdict::Holds),
        ("Skylake-X", "Beyond the last-level cache", Verdict::Fails),
        ("Skylake-X", "On Skylake-X, MOVNTI gains nothing", Verdict::Holds),
        ("Broadwell-X", "On Skylake-X, MOVNTI gains nothing", Verdict::NotApplicable),
        ("Ice Lake-X", "Large extents in 2 MB steps are cleared fastest by MOVNTI", Verdict::Holds),
        ("Milan", "Large extents in 2 MB steps are cleared fastest by MOVNTI", Verdict::NotApplicable),
        ("Rome", "The string instruction loses", Verdict::Holds),
        ("Ice Lake-X", "Larger extents alone", Verdict::Holds),
        ("Milan", "Larger extents alone", Verdict::Holds),
        ("Milan", "From chunks as large as the cache", Verdict::Holds),
        ("Ice Lake-X", "From chunks as large as the cache", Verdict::Fails),
        ("Ice Lake-X", "The chunk makes no difference to MOVNTI", Verdict::Holds),
        ("Milan", "Large extents in 2 MB steps are cleared fastest by CLZERO", Verdict::Holds),
        ("Ice Lake-X", "Large extents in 2 MB steps are cleared fastest by CLZERO", Verdict::NotApplicable),
        ("Milan", "The chunk makes little difference to CLZERO", Verdict::Holds),
    ] {
        assert_eq!(of(uarch, claim), verdict, "{uarch}: {claim}");
    }
}

#[test]
fn the_table_by_attribute_is_judged_by_the_modules_memory() {
    let rows = |scale: f64| {
        let mut rows = Vec::new();
        for (attribute, name, read, write) in [
            ("wb", "c_library", 3.6e6, 2.5e6),
            ("uc", "c_library", 37e3 * scale, 21e3 * scale),
            ("wc", "c_library", 764e3, 3.7e6),
            ("wc", "movnti", 3.2e6, 2.1e6),
            ("wc", "movntdqa_store_avx512", 3.5e6, 2.1e6),
        ] {
            for (direction, iops) in [(Direction::Read, read), (Direction::Write, write)] {
                let config = Config {
                    target: Some(bulkmem_kmod::PATH.to_owned()),
                    attribute: Some(attribute.to_owned()),
                    chunk: Some(4096),
                    threads: Some(1),
                    direction: Some(direction),
                    ..Config::default()
                };
                rows.push(row(Measurement::Iops, name, config, iops));
            }
        }
        Reproduction::of(&results(rows))
    };
    let of = |found: &Reproduction, start: &str| {
        found.conclusions.iter().find(|it| it.claim.starts_with(start)).expect(start).verdict
    };
    let found = rows(1.0);
    for claim in [
        "Uncached mappings",
        "Write-combining memory is read",
        "Write-combining memory is written faster",
        "A copy by non-temporal stores",
        "Write-combining memory is written more slowly",
        "MOVNTDQA might help reads of write-combining",
    ] {
        assert_eq!(of(&found, claim), Verdict::Holds, "{claim}");
    }
    assert_eq!(of(&rows(10.0), "Uncached mappings"), Verdict::Fails);
    let figures: Vec<_> = found.figures.iter().filter(|figure| figure.table == "random 4 KiB").collect();
    let measured = figures.iter().filter(|figure| figure.here == Some(figure.published)).count();
    assert_eq!((figures.len(), measured), (10, 8), "all but movnti in write-back memory");
}

/// A row of seven samples.
fn sampled(measurement: Measurement, name: &str, config: Config, median: f64) -> Row {
    let samples: Vec<f64> = (-3..=3).map(|step| median * (1.0 + f64::from(step) * 1e-3)).collect();
    testing::row(measurement, (Kind::Method, name), config, (Metric::Seconds, &samples), &[])
}

#[test]
fn virtual_machines_and_programs_beside_clearing_are_judged() {
    let vm = |name: &str, seconds: f64| {
        let config = Config { size: Some(1 << 30), threads: Some(1), ..Config::default() };
        sampled(Measurement::Vm, name, config, seconds)
    };
    let corun = |name: &str, seconds: f64| {
        sampled(Measurement::Corun, name, Config { rate: Some(1.0), ..Config::default() }, seconds)
    };
    let of = |rows: Vec<Row>, start: &str| {
        let found = Reproduction::of(&results(rows));
        found.conclusions.into_iter().find(|it| it.claim.starts_with(start)).expect(start)
    };
    let creation = "Clearing huge pages past the cache";
    assert_eq!(of(vec![vm("prefault", 1.0), vm("prefault, hinted", 0.42)], creation).verdict, Verdict::Holds);
    assert_eq!(of(vec![vm("prefault", 1.0), vm("prefault, hinted", 0.8)], creation).verdict, Verdict::Fails);
    assert_eq!(of(vec![vm("prefault", 1.0)], creation).verdict, Verdict::NotMeasured);
    let beside = "A program runs faster beside clearing";
    let found = of(vec![corun("rep_stosb", 1.0), corun("movnti", 0.98)], beside);
    assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
    assert!(found.here.starts_with("-2.0 % (-2."), "{found:?}");
    let found = of(vec![corun("rep_stosb", 1.0), corun("movnti", 0.9995)], beside);
    assert_eq!(found.verdict, Verdict::Fails, "no gain of 2 %: {found:?}");
    let mut noisy = corun("movnti", 0.99);
    noisy.samples.iter_mut().zip([0.8, 0.9, 1.0, 1.1, 1.2, 1.0, 0.9]).for_each(|(it, noise)| *it *= noise);
    assert_eq!(of(vec![corun("rep_stosb", 1.0), noisy], beside).verdict, Verdict::NotMeasured);
    let build = |kernel: f64, words: &[&str]| {
        let mut copying = corun("movnti", 9.0);
        copying.config.operation = Some(Operation::Copy);
        let mut results = results(vec![copying, corun("movnti", 0.98), corun("4K pages", kernel)]);
        results.command = words.iter().map(ToString::to_string).collect();
        let found = Reproduction::of(&results).conclusions;
        found.into_iter().find(|it| it.claim.starts_with("A kernel build takes less time")).unwrap()
    };
    let make = ["bench", "corun", "--", "sh", "-c", "make clean && make -j2"];
    let found = build(1.0, &make);
    assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
    assert!(found.here.ends_with("of time with MOVNTI instead of the kernel's own clearing"), "{found:?}");
    assert_eq!(build(0.98, &make).verdict, Verdict::Fails);
    assert_eq!(build(1.0, &["make", "--", "sort"]).verdict, Verdict::NotMeasured, "another program");
    let figures = Reproduction::of(&results(vec![vm("prefault", 1.0), vm("prefault, hinted", 0.5)])).figures;
    let figures = figures.into_iter().filter(|it| it.table.starts_with("memory of a virtual machine"));
    let here: Vec<Option<f64>> = figures.map(|it| it.here.map(|speed| (speed * 10.0).round())).collect();
    assert_eq!(here, [[Some(11.0), None, Some(21.0)]; 2].concat(), "the kernel's own, none, the module's");
}

#[test]
fn copies_with_prefetches_and_past_the_cache_are_judged() {
    let copy = |name: &str, read_distance: u32, speed: f64| {
        let config = Config { size: Some(64 << 20), ..Config::default() };
        let mut row = row(Measurement::Copy, name, config, speed);
        row.candidate.parameters.read_distance = read_distance;
        row
    };
    let verdicts = |prefetching: f64, nontemporal: f64| {
        let rows = vec![
            copy("rep_movsq", 0, 10.0),
            copy("store_sse2", 0, 10.0),
            copy("store_sse2", 512, prefetching),
            copy("nontemporal_sse2", 0, nontemporal),
        ];
        let found = Reproduction::of(&results(rows)).conclusions;
        let of = |start| found.iter().find(|it| it.claim.starts_with(start)).unwrap().verdict;
        [of("Prefetching the source"), of("Non-temporal stores make copies")]
    };
    assert_eq!(verdicts(10.8, 16.0), [Verdict::Holds; 2]);
    assert_eq!(verdicts(10.1, 13.0), [Verdict::Fails; 2]);
}

#[test]
fn the_sides_of_a_copy_are_judged_separately() {
    let verdict = |source: f64, destination: f64| {
        let row = |side, after: f64| {
            let config = Config {
                operation: Some(Operation::CopyPersist),
                list: Some(16384),
                side,
                ..Config::default()
            };
            let mut row = sampled(Measurement::Pollution, "movnti", config, after - 100.0);
            row.also = [("before_ns".to_owned(), 100.0), ("after_ns".to_owned(), after)].into();
            row
        };
        let sides = [CopySide::Source, CopySide::Destination].map(Some);
        let rows = vec![row(None, 500.0), row(sides[0], source), row(sides[1], destination)];
        let found = Reproduction::of(&results(rows)).conclusions;
        found.into_iter().find(|it| it.claim.starts_with("A copy past the cache evicts")).unwrap()
    };
    let found = verdict(260.0, 103.0);
    assert_eq!(found.verdict, Verdict::Holds);
    assert!(found.here.contains("2.60 times as long after reading the source"), "{found:?}");
    assert_eq!(verdict(103.0, 260.0).verdict, Verdict::Fails);
    assert_eq!(verdict(103.0, 100.0).verdict, Verdict::Fails, "within the noise");
}

#[test]
fn nothing_measured_is_said_everywhere() {
    let found = Reproduction::of(&results(Vec::new()));
    let [holds, fails, open, elsewhere] = found.tally();
    assert_eq!((holds, fails, open + elsewhere), (0, 0, found.conclusions.len()));
    let unmeasured = found.conclusions.iter().filter(|it| it.here.starts_with("not measured here: "));
    assert_eq!(unmeasured.count(), open);
    assert!(found.figures.iter().all(|figure| figure.here.is_none() && figure.published.is_finite()));
    assert!(found.alike.iter().all(|it| it.distance.is_none()));
    let json = serde_json::to_string(&found).unwrap();
    let back: Reproduction = serde_json::from_str(&json).unwrap();
    assert!(back.conclusions == found.conclusions && back.alike == found.alike);
}

#[test]
fn every_published_conclusion_is_judged_once() {
    let results = results(Vec::new());
    let judged: Vec<&str> = conclusions::judge_by_id(&Ours(&results)).iter().map(|(id, _)| *id).collect();
    let published: Vec<&str> = published::published().conclusions.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(judged, published);
}
