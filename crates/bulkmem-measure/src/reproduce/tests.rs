#[cfg(target_arch = "x86_64")]
use bulkmem::policy::CpuIdentity;
use bulkmem::{Operation, Pages};

use super::*;
use crate::engine::{Config, CopySide, Direction, Measurement, Metric, PageSize, Pattern, Row, testing};
use crate::{Kind, Provenance};

mod variants;

fn row(measurement: Measurement, name: &str, config: Config, median: f64) -> Row {
    testing::row(measurement, (Kind::Method, name), config, (Metric::Bandwidth, &[median]), &[])
}

/// Results of a machine with a third-level cache of 32 MiB, whatever this one has.
fn results(rows: Vec<Row>) -> Results {
    Results {
        format: Results::FORMAT.into(),
        version: Results::VERSION,
        provenance: Provenance { caches: [32 << 10, 1 << 20, 32 << 20], ..Provenance::collect(4096, 1.0, 1) },
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

/// `bench all` measures what the conclusions need that are about ordinary memory and a stock kernel.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_besides_all_measures_is_judged() {
    let all: Vec<Row> =
        besides_all(false).iter().flat_map(|it| testing::run(it.as_ref(), false).0.unwrap().rows).collect();
    let results = results(all);
    let judged = conclusions::judge_by_id(&Ours { all: &results, files: &[&results] });
    let copies = ["loops_string", "loop_alignment", "prefetch_gain", "nontemporal_gain"];
    for id in ["pollution_by_source", "read_back_320k"].into_iter().chain(copies) {
        assert!(judged.iter().any(|it| it.0 == id && it.1.is_some()), "{id}: {judged:?}");
    }
    let quick: Vec<Measurement> = besides_all(true).iter().map(|it| it.measurement()).collect();
    assert!(quick.contains(&Measurement::Clear) && quick.contains(&Measurement::Chunks), "{quick:?}");
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
                    target: Some(bulkmem_kmod::MEMORY_PATH.to_owned()),
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

/// Figures of ordinary memory, of persistent memory, and of a file in the page cache, which is neither.
#[test]
fn persistent_memory_is_judged_by_targets_that_are_durable() {
    let places = [("ram", None, 1.0), ("/pmem/file", Some(true), 0.3), ("/tmp/file", None, 100.0)];
    let mut rows = Vec::new();
    for (target, durable, scale) in places {
        let config = Config {
            operation: Some(bulkmem::Operation::CopyPersist),
            pattern: Some(Pattern::Sequential),
            target: Some(target.into()),
            durable,
            ..Config::default()
        };
        for (name, speed) in
            [("movnti_4", 4.1), ("movnti", 4.1), ("nontemporal_sse2", 4.1), ("store_8_clwb", 5.2)]
        {
            // Other figures of the same method, by block.
            for (chunk, scale) in [(Some(64), scale / 10.0), (None, scale)] {
                rows.push(row(Measurement::Persist, name, Config { chunk, ..config.clone() }, speed * scale));
            }
        }
        for (name, after) in
            [("movnti", if durable.is_some() { 137.0 } else { 250.0 }), ("store_8_clwb", 252.0)]
        {
            let also = [("before_ns", 100.0), ("after_ns", after * scale.max(1.0))];
            let config = Config { list: Some(16384), pattern: None, ..config.clone() };
            let candidate = (Kind::Method, name);
            rows.push(testing::row(
                Measurement::Pollution,
                candidate,
                config,
                (Metric::Growth, &[1.0]),
                &also,
            ));
        }
        for (block, [movnti, flushed]) in
            [(512, [496.0, 373.0]), (1024, [642.0, 688.0]), (4096, [744.0, 1200.0])]
        {
            let config = Config { chunk: Some(block), ..config.clone() };
            let flushed = if durable.is_some() { flushed } else { movnti / 2.0 };
            for (name, speed) in [
                ("movnti", movnti),
                ("store_8_clflushopt", flushed),
                ("whole lines", 1200.0),
                ("half lines", 800.0),
            ] {
                rows.push(sampled(Measurement::Blocks, name, config.clone(), speed / 1e3 * scale));
            }
        }
    }
    let judged = |rows: Vec<Row>| {
        let results = results(rows);
        let ours = Ours { all: &results, files: &[&results] };
        let all = conclusions::judge(&ours);
        let ids = published::published().conclusions.iter().map(|it| it.id.as_str());
        let all: std::collections::BTreeMap<_, _> = ids.zip(all).collect();
        (all, figures::compare(&ours))
    };
    let (all, figures) = judged(rows.clone());
    for id in ["pmem_nontemporal_widths", "pmem_cached_stores_clwb", "pmem_pollution", "pmem_crossover"] {
        assert_eq!(all[id].verdict, Verdict::Holds, "{:?}", all[id]);
    }
    for id in ["cached_stores_clwb", "pollution", "half_lines"] {
        assert_eq!(all[id].verdict, Verdict::Holds, "{:?}", all[id]);
    }
    assert!(all["pmem_crossover"].here.contains("(512 B to 1 KiB)"), "{:?}", all["pmem_crossover"]);
    let here = |table: &str, config: &str, candidate: &str| {
        let found =
            figures.iter().find(|it| it.table == table && it.config == config && it.candidate == candidate);
        found.unwrap_or_else(|| panic!("{table}, {config}, {candidate}")).here
    };
    let near = |figure: Option<f64>, expected: f64| (figure.unwrap() / expected - 1.0).abs() < 1e-9;
    assert!(near(here("persistent writes by width", "memory", "movnti"), 4.1));
    assert!(near(here("persistent writes by width", "persistent memory", "movnti"), 4.1 * 0.3));
    assert!(near(here("persistent writes", "persistent memory", "store_8_clwb"), 5.2 * 0.3));
    assert!(near(here("cache pollution", "L1 list, persistent memory", "movnti"), 1.37));
    assert!(near(here("persistent writes by block", "1 KiB, persistent memory", "movnti"), 0.642 * 0.3));
    // Undecided shorter blocks leave the crossover open, and so does an interval far wider than the published one.
    let noisy = |blocks: &[u64]| {
        let mut rows = rows.clone();
        for row in rows.iter_mut().filter(|row| blocks.contains(&row.config.chunk.unwrap_or_default())) {
            row.samples.iter_mut().zip(1..).for_each(|(it, at)| *it *= f64::from(at));
        }
        judged(rows).0.remove("pmem_crossover").unwrap()
    };
    let found = noisy(&[512, 1024]);
    assert_eq!(found.verdict, Verdict::NotMeasured, "{found:?}");
    assert!(
        found.here.starts_with("measured, but not decided: stores that are written back are faster at 4 KiB")
    );
    let found = noisy(&[1024]);
    assert_eq!(found.verdict, Verdict::NotMeasured, "{found:?}");
    assert!(found.here.contains("(512 B to 4 KiB); no distinguishable difference at 1 KiB"), "{found:?}");
    // Without persistent memory, none of it is judged, and what ordinary memory does is said apart.
    rows.retain(|row| row.config.durable.is_none());
    let (all, figures) = judged(rows);
    for (id, it) in all.iter().filter(|(id, _)| id.starts_with("pmem_")) {
        assert_eq!(it.verdict, Verdict::NotMeasured, "{id}");
        assert!(it.here.contains("no persistent memory was measured"), "{it:?}");
    }
    let aside =
        "; in ordinary memory, non-temporal stores are faster from 512 B to 4 KiB, 2.00 to 2.00 times";
    assert!(all["pmem_crossover"].here.ends_with(aside), "{:?}", all["pmem_crossover"]);
    let there = figures.iter().filter(|it| it.config.contains("persistent memory"));
    assert_eq!(there.filter(|it| it.here.is_none()).count(), 9 + 3 + 3 + 8);
}

/// A row of seven samples.
fn sampled(measurement: Measurement, name: &str, config: Config, median: f64) -> Row {
    let samples: Vec<f64> = (-3..=3).map(|step| median * (1.0 + f64::from(step) * 1e-3)).collect();
    testing::row(measurement, (Kind::Method, name), config, (Metric::Seconds, &samples), &[])
}

#[test]
fn a_write_cache_is_judged_in_its_largest_groups_of_writes_to_memory() {
    let rows = |flushing: f64, mix: u8, target: &str| -> Vec<Row> {
        let of = |name: &str, group, iops| {
            let target = Some(target.to_owned());
            let (chunk, group, mix) = (Some(4096), Some(group), Some(mix));
            let mut row = sampled(
                Measurement::WriteCache,
                name,
                Config { chunk, group, mix, target, ..Config::default() },
                iops,
            );
            row.metric = Metric::Iops;
            row
        };
        vec![
            of("movnti", 1, 2e6),
            of("store_8_clflushopt", 1, 1e6),
            of("movnti", 64, 1e6),
            of("store_8_clflushopt", 64, flushing),
        ]
    };
    let of = |rows: Vec<Row>| {
        let found = Reproduction::of(&results(rows));
        found.conclusions.into_iter().find(|it| it.claim.starts_with("A write cache")).unwrap()
    };
    let found = of(rows(1.2e6, 30, "ram"));
    assert_eq!(found.verdict, Verdict::Holds);
    assert!(
        found.here.starts_with("+20.0 % (+19.") && found.here.ends_with(" a commit for each 64"),
        "{found:?}"
    );
    assert_eq!(of(rows(1.04e6, 30, "ram")).verdict, Verdict::Fails);
    assert_eq!(of(rows(1.2e6, 30, "ram")[1..2].to_vec()).verdict, Verdict::NotMeasured);
    assert_eq!(of(rows(1.2e6, 100, "ram")).verdict, Verdict::NotMeasured, "reads only");
    assert_eq!(of(rows(1.2e6, 30, "/tmp/file")).verdict, Verdict::NotMeasured, "the page cache");
    let mut durable = rows(1.2e6, 30, "/pmem/file");
    durable.iter_mut().for_each(|row| row.config.durable = Some(true));
    assert_eq!(of(durable).verdict, Verdict::Holds);
    let mut noisy = rows(1.2e6, 30, "ram");
    noisy[3].samples = vec![0.8e6, 1e6, 1.2e6, 1.4e6, 1.6e6];
    assert_eq!(of(noisy).verdict, Verdict::NotMeasured);
    let mut single = rows(1.2e6, 30, "ram");
    single[3].samples = vec![1.2e6];
    let found = of(single);
    assert_eq!(found.verdict, Verdict::NotMeasured);
    assert!(found.here.contains("too few samples"), "{found:?}");
}

#[test]
fn virtual_machines_and_programs_beside_clearing_are_judged() {
    let vm = |name: &str, seconds: f64| {
        let page_size = Some(PageSize(Pages::Transparent));
        let config = Config { size: Some(1 << 30), threads: Some(1), page_size, ..Config::default() };
        sampled(Measurement::Vm, name, config, seconds)
    };
    let small = |mut row: Row| {
        row.config.page_size = Some(PageSize(Pages::Base));
        row
    };
    let corun = |name: &str, seconds: f64| {
        let config = Config { rate: Some(1.0), ..Config::default() };
        let mut row = sampled(Measurement::Corun, name, config, seconds);
        row.also.insert("rate".to_owned(), 1.0);
        row
    };
    let of = |rows: Vec<Row>, start: &str| {
        let found = Reproduction::of(&results(rows));
        found.conclusions.into_iter().find(|it| it.claim.starts_with(start)).expect(start)
    };
    let creation = "Clearing huge pages past the cache";
    assert_eq!(of(vec![vm("prefault", 1.0), vm("prefault, hinted", 0.42)], creation).verdict, Verdict::Holds);
    assert_eq!(of(vec![vm("prefault", 1.0), vm("prefault, hinted", 0.8)], creation).verdict, Verdict::Fails);
    let (plain, hinted) = (vm("prefault", 1.0), vm("prefault, hinted", 0.42));
    let incomparable =
        [vec![plain.clone()], vec![small(plain.clone()), small(hinted.clone())], vec![small(plain), hinted]];
    for rows in incomparable {
        assert_eq!(of(rows, creation).verdict, Verdict::NotMeasured);
    }
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
    // The build of one file, and a walk of another.
    let mut others = results(vec![corun("movnti", 0.9), corun("rep_stosb", 1.0)]);
    others.command = make.map(str::to_owned).to_vec();
    let walk = results(vec![corun("4K pages", 1.0), corun("movnti", 0.8)]);
    let mut all = results([others.rows.clone(), walk.rows.clone()].concat());
    all.command = others.command.clone();
    let verdict = |all: &Results, files: &[&Results]| {
        let found = Reproduction::of_files(all, files).conclusions.into_iter();
        found.into_iter().find(|it| it.claim.starts_with("A kernel build takes less time")).unwrap().verdict
    };
    assert_eq!(verdict(&all, &[&others, &walk]), Verdict::NotMeasured);
    others.rows.push(corun("4K pages", 0.9));
    assert_eq!(verdict(&walk, &[&walk, &others]), Verdict::Fails, "of the build, wherever its file is");
    let figures = Reproduction::of(&results(vec![vm("prefault", 1.0), vm("prefault, hinted", 0.5)])).figures;
    let figures = figures.into_iter().filter(|it| it.table.starts_with("memory of a virtual machine"));
    let here: Vec<Option<f64>> = figures.map(|it| it.here.map(|speed| (speed * 10.0).round())).collect();
    assert_eq!(here, [[Some(11.0), None, Some(21.0)]; 2].concat(), "the kernel's own, none, the module's");
}

#[test]
fn clearing_is_compared_at_a_rate_that_was_achieved() {
    let row = |name: &str, rate: Option<f64>, achieved: f64, seconds: f64| {
        let mut row = sampled(Measurement::Corun, name, Config { rate, ..Config::default() }, seconds);
        row.also.insert("rate".to_owned(), achieved);
        row
    };
    let of = |rows: Vec<Row>| {
        let found = Reproduction::of(&results(rows)).conclusions;
        found.into_iter().find(|it| it.claim.starts_with("A program runs faster beside clearing")).unwrap()
    };
    let unlimited = [row("rep_stosb", None, 9.0, 1.0), row("movnti", None, 12.0, 1.3)];
    let slow = [row("rep_stosb", Some(1.0), 0.58, 0.9), row("movnti", Some(1.0), 1.0, 1.0)];
    let full = [row("rep_stosb", Some(0.5), 0.5, 1.0), row("movnti", Some(0.5), 0.49, 0.95)];
    let found = of(unlimited.to_vec());
    assert_eq!(found.verdict, Verdict::NotMeasured);
    assert!(found.here.contains("an unlimited rate"), "{found:?}");
    let found = of(slow.to_vec());
    assert_eq!(found.verdict, Verdict::NotMeasured);
    assert!(found.here.ends_with("rep_stosb achieved 0.58 of 1 GB/s"), "{found:?}");
    assert_eq!(of([unlimited, slow, full].concat()).verdict, Verdict::Holds);
    // Clearing by the kernel names its own page size.
    let mut pages = [row("rep_stosb", Some(1.0), 1.0, 1.0), row("movnti", Some(1.0), 1.0, 0.9)];
    pages[0].config.page_size = Some(PageSize(Pages::Base));
    assert_eq!(of(pages.to_vec()).verdict, Verdict::Holds);
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
    let judged: Vec<&str> = conclusions::judge_by_id(&Ours { all: &results, files: &[&results] })
        .iter()
        .map(|(id, _)| *id)
        .collect();
    let published: Vec<&str> = published::published().conclusions.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(judged, published);
}
