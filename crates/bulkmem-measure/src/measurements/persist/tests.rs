//! Rows, written content, and rejected options.

use super::*;
use crate::engine::MeasureError;
use crate::engine::testing;
use crate::engine::{Peers, Results};
use crate::measurements::participants::tests::named;

fn run(options: &PersistOptions) -> Result<Results, MeasureError> {
    testing::run(options, false).0
}

fn small() -> PersistOptions {
    let target =
        TargetOptions { size: Some(64 << 10), page_size: "4K".parse().unwrap(), ..TargetOptions::ram() };
    let candidates = Candidates { runs: 2, ..Candidates::default() };
    PersistOptions { targets: vec![target], candidates, ..PersistOptions::default() }
}

#[test]
fn every_persisting_method_has_a_width_and_a_way() {
    let methods: Vec<&Method> = method::all().filter(|method| method.does(Operation::CopyPersist)).collect();
    for method in &methods {
        let width = width(method).unwrap_or_else(|| panic!("{} has no width", method.name));
        assert!(
            method.summary.contains(&format!("{width} byte")) || method.name == "movdir64b",
            "{}",
            method.summary
        );
        assert_eq!(method.effect == CacheEffect::Evicts, method.name.contains("_cl"), "{}", method.name);
    }
    if cfg!(target_arch = "x86_64") {
        for wanted in PersistOptions::WIDTHS {
            assert!(methods.iter().any(|method| width(method) == Some(wanted)), "{wanted}");
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn each_order_has_a_row_of_everybody_with_its_latency() {
    let options = PersistOptions { candidates: Candidates::default(), ..small() };
    let results = run(&options).unwrap();
    for (pattern, chunk) in [(Pattern::Sequential, None), (Pattern::Random, Some(64))] {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.config.pattern == Some(pattern)).collect();
        let named = |name: &str| rows.iter().find(|row| row.candidate.name == name);
        for method in method::all().filter(|method| method.does(Operation::CopyPersist) && method.available())
        {
            let row = named(method.name).unwrap_or_else(|| panic!("{} is missing", method.name));
            assert_eq!((row.config.width, row.config.chunk), (width(method), chunk));
        }
        assert!(named("policy").is_some());
        for row in rows {
            assert_eq!(row.config.target.as_deref(), Some("ram"));
            assert_eq!(row.chosen.is_some(), row.candidate.kind == Kind::Policy);
            assert!(row.stats.median > 0.0 && row.also["per_8_bytes_ns"] > 0.0, "{row:?}");
            assert_eq!(row.also.contains_key("per_block_ns"), chunk.is_some());
        }
    }
    let findings: Vec<&str> = results.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(findings.len(), 2);
    assert!(
        findings[0]
            .starts_with("sequential: compared with storing and writing back, bypassing the cache is ")
            && findings[0].contains("Published")
    );
    assert!(findings[1].starts_with("random, a fence for each 64 B: ") && !findings[1].contains("Published"));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn noise_is_no_difference_and_one_width_is_not_every_width() {
    let row = |name: &str, middle: f64, noise: f64| {
        let width = width(method::by_name(name).unwrap());
        let config = Config { width, pattern: Some(Pattern::Random), ..Config::default() };
        let samples = [-1.0, -0.5, 0.0, 0.5, 1.0].map(|it| middle + it * noise);
        let kind = (Kind::Method, name);
        testing::row(Measurement::Persist, kind, config, (Metric::Bandwidth, &samples), &[])
    };
    let of = |rows: &[Row]| summary(&rows.iter().collect::<Vec<_>>(), "random");
    let noisy = [row("movnti", 17.42, 7.0), row("store_8_clflush", 17.22, 7.0)];
    let text = of(&noisy).unwrap();
    assert!(text.contains("bypassing the cache is as fast within the noise. The best of each: "), "{text}");
    assert!(text.contains("movnti 17.42 GB/s, store_8_clflush 17.22 GB/s; a ratio of 1.01 (0."), "{text}");
    let others = [row("nontemporal_sse2", 9.0, 0.1), row("store_sse2_clflush", 3.0, 0.1)];
    let text = of(&[&noisy[..], &others].concat()).unwrap();
    assert!(text.contains("is as fast within the noise at 8 bytes; faster at 16 bytes."), "{text}");
    let slower = [row("movnti", 3.0, 0.1), row("store_8_clflush", 9.0, 0.1)];
    assert!(of(&slower).unwrap().contains("bypassing the cache is slower. The best"));
    let same = [&others[..], &[row("movnti", 9.0, 0.1), row("store_8_clflush", 3.0, 0.1)]].concat();
    assert!(of(&same).unwrap().contains("is faster at every width."));
    let few: Vec<Row> = slower.clone().map(|row| Row { samples: row.samples[..2].to_vec(), ..row }).into();
    assert_eq!((of(&few), of(&slower[..1])), (None, None));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn widths_and_blocks_are_those_asked_for() {
    let options = PersistOptions {
        widths: vec![4, 16],
        blocks: vec![64, 4096],
        patterns: vec![Pattern::Random],
        candidates: Candidates { peers: Peers::None, ..small().candidates },
        ..small()
    };
    let results = run(&options).unwrap();
    let mut seen: Vec<(Option<u64>, Option<u64>)> =
        results.rows.iter().map(|row| (row.config.chunk, row.config.width)).collect();
    seen.sort_unstable();
    seen.dedup();
    let expected = [64, 4096].map(|block| [None, Some(4), Some(16)].map(|width| (Some(block), width)));
    assert_eq!(seen, expected.concat());
    let named = PersistOptions { candidates: named(&["movnti"], Peers::None, 2), ..small() };
    assert_eq!(run(&named).unwrap().rows.len(), 4, "the policy and the method, in two orders");
}

/// Right after a write by each method, and by each peer, the bytes are there; also in a file behind the mapping.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_is_written_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("target");
    let mut names: Vec<String> = Vec::new();
    for method in method::all().filter(|method| method.does(Operation::CopyPersist) && method.available()) {
        std::fs::write(&path, vec![0; 16 << 10]).unwrap();
        let target = TargetOptions { target: path.clone(), overwrite: true, ..TargetOptions::ram() };
        let candidates = named(&[method.name], Peers::None, 1);
        let options = PersistOptions { targets: vec![target], candidates, ..small() };
        let results = run(&options).unwrap();
        names.extend(results.rows.iter().map(|row| row.candidate.name.clone()));
        let mut source = vec![0; block_writer::SOURCE];
        crate::engine::arena::write_something(&mut source);
        // Sequential writes put the source in each page; random ones its first line in each line.
        let content = std::fs::read(&path).unwrap();
        assert!(content.chunks(64).all(|line| *line == source[..64]), "{}", method.name);
        assert!(results.notes.iter().any(|note| note.contains("MAP_SYNC")), "{:?}", results.notes);
    }
    assert!(names.iter().any(|name| name == "movnti_4"));
}

#[test]
fn nonsense_is_refused_before() {
    for (options, message) in [
        (PersistOptions { blocks: vec![100], ..small() }, "--block: 100 bytes are not whole cache lines"),
        (PersistOptions { blocks: vec![0], ..small() }, "multiple of 64"),
        (PersistOptions { widths: vec![5], ..small() }, "--width: no store writes 5 bytes"),
        (
            PersistOptions { blocks: vec![1 << 20], ..small() },
            "65536 bytes are too small: 1048576 are needed",
        ),
        (PersistOptions { candidates: named(&["rep_movsb"], Peers::All, 2), ..small() }, "rep_movsb"),
    ] {
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
}

/// Ordinary memory and a file are measured together, with the same candidates and findings of their own.
#[cfg(target_arch = "x86_64")]
#[test]
fn several_targets_have_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let ram = small().targets.remove(0);
    let file = TargetOptions { target: folder.path().join("made"), ..ram.clone() };
    let candidates = named(&["movnti", "store_8_clflush"], Peers::None, 5);
    let options = PersistOptions { targets: vec![ram.clone(), file.clone()], candidates, ..small() };
    let results = run(&options).unwrap();
    let of = |target: &std::path::Path| -> Vec<(&str, Option<Pattern>)> {
        let rows = results.rows.iter().filter(|row| row.config.target.as_deref() == target.to_str());
        rows.map(|row| (row.candidate.name.as_str(), row.config.pattern)).collect()
    };
    assert_eq!(of(&ram.target).len(), 6);
    assert_eq!(of(&ram.target), of(&file.target));
    let texts: Vec<&str> = results.findings.iter().map(|finding| finding.text.as_str()).collect();
    let path = file.target.to_str().unwrap();
    assert!(
        texts.len() == 4 && texts[0].starts_with("ram, sequential") && texts[1].starts_with(path),
        "{texts:?}"
    );
    let twice = PersistOptions { targets: vec![ram.clone(), ram], ..small() };
    assert!(twice.validate().unwrap_err().to_string().contains("ram: is named twice"));
}
