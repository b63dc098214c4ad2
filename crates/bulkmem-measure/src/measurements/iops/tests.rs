//! Rows and rejected options.

use super::*;
use crate::engine::MeasureError;
use crate::engine::{Peers, Results, testing};
use crate::measurements::participants::tests::named;

fn run(options: &IopsOptions) -> Result<Results, MeasureError> {
    testing::run(options, false).0
}

fn small() -> IopsOptions {
    let target =
        TargetOptions { size: Some(1 << 20), page_size: "4K".parse().unwrap(), ..TargetOptions::ram() };
    IopsOptions {
        target,
        threads: vec![1, 2],
        time: Duration::from_millis(2),
        candidates: Candidates { runs: 2, ..Candidates::default() },
        ..IopsOptions::default()
    }
}

#[test]
fn each_direction_and_number_of_threads_has_a_row_of_everybody() {
    let results = run(&small()).unwrap();
    for direction in [Direction::Read, Direction::Write, Direction::Mixed] {
        for threads in [1, 2] {
            let rows: Vec<&Row> = results
                .rows
                .iter()
                .filter(|row| row.config.direction == Some(direction) && row.config.threads == Some(threads))
                .collect();
            let names: Vec<&str> = rows.iter().map(|row| row.candidate.name.as_str()).collect();
            assert!(names.contains(&"policy") && names.contains(&"c_library"), "{names:?}");
            assert_eq!(rows.iter().any(|row| row.candidate.kind == Kind::Read), direction == Direction::Read);
            if cfg!(target_arch = "x86_64") {
                assert!(names.contains(&"movnti") && names.contains(&"rep_movsb"), "{names:?}");
            }
            for row in rows {
                assert_eq!((row.config.chunk, row.config.size), (Some(4096), Some(1 << 20)));
                let chosen = row.candidate.kind == Kind::Policy && direction != Direction::Mixed;
                assert_eq!(row.chosen.is_some(), chosen);
                assert_eq!(row.config.mix, (direction == Direction::Mixed).then_some(70));
                assert!(row.stats.median > 0.0 && row.also["p50_ns"] <= row.also["p9999_ns"], "{row:?}");
            }
        }
    }
    assert_eq!(results.findings.len(), 6);
    assert!(
        results.findings[0].text.starts_with("read of 4 KiB, 1 thread: "),
        "{}",
        results.findings[0].text
    );
    assert!(results.notes.iter().any(|note| note.contains("ns for reading the clock")));
}

/// A file that is only read keeps its content, and is read without leave to overwrite.
#[test]
fn reading_needs_no_leave_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("there");
    let content: Vec<u8> = (0..1u32 << 18).map(|index| (index % 253) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let target = TargetOptions { target: path.clone(), ..TargetOptions::ram() };
    let reading = IopsOptions { target, directions: vec![Direction::Read], ..small() };
    assert!(run(&reading).unwrap().rows.iter().all(|row| row.config.size == Some(1 << 18)));
    assert_eq!(std::fs::read(&path).unwrap(), content);
    let mixed = IopsOptions { directions: vec![Direction::Mixed], ..reading };
    assert!(matches!(run(&mixed), Err(MeasureError::Target { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), content);
}

#[test]
fn blocks_of_several_sizes() {
    let options = IopsOptions {
        blocks: vec![64, 512, 64 << 10],
        directions: vec![Direction::Write],
        threads: vec![1],
        candidates: named(&["portable", "c_library"], Peers::None, 2),
        ..small()
    };
    let rows = run(&options).unwrap().rows;
    let seen: Vec<_> =
        rows.iter().map(|row| (row.config.chunk.unwrap(), row.candidate.name.as_str())).collect();
    let expected =
        [64, 512, 64 << 10].map(|block| ["policy", "portable", "c_library"].map(|name| (block, name)));
    assert_eq!(seen, expected.concat());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn who_only_persists_does_not_read() {
    let candidates = named(&["store_sse2_clflush"], Peers::All, 2);
    let options = IopsOptions { candidates, directions: vec![Direction::Read], ..small() };
    let error = options.validate().unwrap_err().to_string();
    assert_eq!(error, "--method: none of the given methods can read");
    IopsOptions { directions: vec![Direction::Write, Direction::Mixed], ..options }.validate().unwrap();
}

#[test]
fn nonsense_is_refused_before() {
    for (options, message) in [
        (IopsOptions { blocks: vec![100], ..small() }, "--block: 100 bytes are not whole cache lines"),
        (IopsOptions { threads: vec![0], ..small() }, "--threads: 0 is not from 1 to"),
        (IopsOptions { mix: 101, ..small() }, "--mix: 101 % is more than all"),
        (IopsOptions { time: Duration::from_secs(60), ..small() }, "give 1ms to 2s, and more --runs"),
        (IopsOptions { blocks: vec![1 << 20], ..small() }, "1048576 bytes are too small: 2097152 are needed"),
        (IopsOptions { candidates: named(&["nosuch"], Peers::All, 2), ..small() }, "nosuch"),
    ] {
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn attributes_are_measured_side_by_side_or_the_error_says_how_to_get_the_module() {
    let options = IopsOptions {
        attributes: Attributes::All,
        directions: vec![Direction::Read, Direction::Write],
        threads: vec![1],
        candidates: named(&["c_library", "portable"], Peers::None, 2),
        ..small()
    };
    match run(&options) {
        Ok(results) => {
            for attribute in ["wb", "wc", "uc"] {
                let of = results.rows.iter().filter(|row| row.config.attribute.as_deref() == Some(attribute));
                assert_eq!(of.count(), 6, "two directions, the policy and two methods: {attribute}");
            }
            assert!(
                results
                    .rows
                    .iter()
                    .all(|row| row.config.target.as_deref() == Some(bulkmem_kmod::MEMORY_PATH))
            );
        }
        Err(error) => {
            println!("skipped: blocks in memory of other attributes: {error}");
            assert!(matches!(error, MeasureError::Kernel(_)), "{error}");
        }
    }
}
