//! `bulkmem compare`, on planted files.

use std::fs;

use bulkmem_measure::engine::{Candidate, Config, Measurement, Metric, QualityFlag, Results, Row};
use bulkmem_measure::stats::Stats;
use bulkmem_measure::{Kind, Provenance};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

fn row(kind: Kind, name: &str, size: u64, center: f64) -> Row {
    let samples: Vec<f64> = [1.0, 1.01, 0.99, 1.005, 0.995].map(|share| share * center).to_vec();
    Row {
        measurement: Measurement::Clear,
        candidate: Candidate::named(kind, name),
        config: Config { size: Some(size), page_size: Some("4K".parse().unwrap()), ..Config::default() },
        metric: Metric::Bandwidth,
        stats: Stats::of(&samples).unwrap(),
        samples,
        chosen: None,
        also: Default::default(),
        counters: None,
        flags: Vec::new(),
    }
}

/// Policy, a method with a long name and reading at two sizes.
fn results() -> Results {
    let mut rows = Vec::new();
    for (size, speed) in [(16 << 20, 12.0), (1 << 30, 10.0)] {
        rows.push(row(Kind::Policy, "policy", size, speed));
        let mut long = row(Kind::Method, "write_prefetch_avx512", size, speed * 0.9);
        long.candidate.parameters.write_distance = 4096;
        long.candidate.parameters.streams = 4;
        rows.push(long);
        rows.push(row(Kind::Read, "read", size, speed * 1.2));
    }
    Results {
        format: Results::FORMAT.to_owned(),
        version: Results::VERSION,
        provenance: Provenance { page_size: 4096, backing_page_size: 4096, ..Provenance::default() },
        command: Vec::new(),
        rows,
        findings: Vec::new(),
        notes: Vec::new(),
        complete: true,
    }
}

/// The same, with one row's figures times `factor`.
fn changed(at: usize, factor: f64) -> Results {
    let mut results = results();
    let row = &mut results.rows[at];
    row.samples.iter_mut().for_each(|sample| *sample *= factor);
    row.stats = Stats::of(&row.samples).unwrap();
    results
}

fn home(new: &Results) -> Home {
    let home = Home::new();
    for (name, results) in [("old.json", &results()), ("new.json", new)] {
        fs::write(home.path().join(name), serde_json::to_string_pretty(results).unwrap()).unwrap();
    }
    home
}

const COMPARE: [&str; 3] = ["compare", "old.json", "new.json"];

#[test]
fn nothing_changed_exits_with_0_and_something_worse_with_3() {
    let same = home(&results());
    let assert = same.bulkmem().args(COMPARE).assert().code(0);
    assert.stdout(contains("6 rows compared: 0 better, 0 worse, 6 the same").and(contains("worse\n").not()));
    let better = home(&changed(0, 1.3));
    better.bulkmem().args(COMPARE).assert().code(0).stdout(contains("1 better, 0 worse"));
    let worse = home(&changed(3, 0.8));
    let assert = worse.bulkmem().args(COMPARE).assert().code(3);
    assert.stdout(contains("0 better, 1 worse").and(contains("0.80")));
    // The threshold, and what is left out, decide.
    for (arguments, code) in [
        (&["--threshold", "25%"][..], 0),
        (&["--threshold", "10"], 3),
        (&["--only", "read"], 0),
        (&["--only", "policy,read"], 3),
        (&["--only", "clear"], 3),
        (&["--json"], 3),
        (&["--csv", "-"], 3),
    ] {
        worse.bulkmem().args(COMPARE).args(arguments).assert().code(code);
    }
}

#[test]
fn the_table_fits_and_marks_quality_flags() {
    let mut new = changed(4, 0.9);
    new.rows[1].flags.push(QualityFlag::Noise);
    let home = home(&new);
    for columns in [80, 160] {
        let output = home.bulkmem().args(COMPARE).env("COLUMNS", columns.to_string()).assert().code(3);
        let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
        assert_fits(&text, columns);
        for part in
            ["clear: GB/s, medians", "the policy's choice", "(reading)", "16 MiB", "1 GiB", "10.8~", "worse"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(text.contains("write_distance=4096"), "{text}");
        assert!(!text.contains("4K"), "values that all rows share are not shown\n{text}");
    }
}

#[test]
fn rows_of_one_file_alone_are_counted_or_listed() {
    let mut new = results();
    new.rows.remove(1);
    new.rows.push(row(Kind::Method, "clzero", 4096, 50.0));
    new.complete = false;
    let home = home(&new);
    let assert = home.bulkmem().args(COMPARE).assert().code(0);
    assert.stdout(
        contains("Only in OLD: 1 row (--all lists them)")
            .and(contains("Only in NEW: 1 row"))
            .and(contains("clzero").not())
            .and(contains("NEW was interrupted")),
    );
    let assert = home.bulkmem().args(COMPARE).arg("--all").assert().code(0);
    assert.stdout(contains("clear: clzero, size 4 KiB").and(contains("write_prefetch_avx512[")));
    // Nothing in common.
    new.rows.retain(|row| row.candidate.name == "clzero");
    fs::write(home.path().join("new.json"), serde_json::to_string(&new).unwrap()).unwrap();
    let assert = home.bulkmem().args(COMPARE).assert().code(1).stdout("");
    assert.stderr(contains("no row is in both files").and(contains("help: ")));
}

#[test]
fn too_few_samples_are_reported_once_with_a_remedy() {
    let mut few = results();
    for row in &mut few.rows {
        row.samples.truncate(3);
        row.stats = Stats::of(&row.samples).unwrap();
    }
    let both = home(&few);
    fs::copy(both.path().join("new.json"), both.path().join("old.json")).unwrap();
    let output = both.bulkmem().args(COMPARE).assert().code(0).get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    assert_fits(&text, 80);
    assert!(text.starts_with("No row has a verdict (–): a verdict needs 5 samples on both sides."), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words.matches("--runs 5").count(), 1, "{text}");
    assert!(text.contains("1.00") && !text.contains("too few"), "{text}");
    // Some rows: the others have their verdicts.
    let mut some = changed(3, 0.8);
    some.rows[0].samples.truncate(4);
    let output = home(&some).bulkmem().args(COMPARE).assert().code(3).get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.starts_with("1 of 6 rows have no verdict"), "{text}");
    assert!(text.contains("0 better, 1 worse, 4 the same") && text.contains("1 without a verdict"), "{text}");
}

#[test]
fn different_machines_are_compared_only_on_request() {
    let mut new = results();
    new.provenance.cpu.model = 17;
    new.provenance.backing_page_size = 2 << 20;
    let home = home(&new);
    let assert = home.bulkmem().args(COMPARE).assert().code(1).stdout("");
    assert.stderr(
        contains("different machines: processor")
            .and(contains("pages behind the memory: 4 KiB before, 2048 KiB now"))
            .and(contains("--different-machines")),
    );
    let assert = home.bulkmem().args(COMPARE).arg("--different-machines").assert().code(0);
    assert.stdout(contains("These are runs of different machines"));
    // Another kernel is the same machine, and is reported.
    let mut updated = results();
    updated.provenance.kernel = "6.19.0".to_owned();
    fs::write(home.path().join("new.json"), serde_json::to_string(&updated).unwrap()).unwrap();
    home.bulkmem()
        .args(COMPARE)
        .assert()
        .code(0)
        .stdout(contains("Differences that may explain changes: kernel:"));
}

#[test]
fn a_change_of_reading_is_reported_as_a_change_of_the_machine() {
    let mut new = changed(2, 0.8);
    new.rows[5] = changed(5, 0.8).rows.remove(5);
    home(&new).bulkmem().args(COMPARE).assert().code(3).stdout(contains("is 0.80 times as fast"));
}

#[test]
fn json_and_comma_separated_values_have_every_row() {
    let home = home(&changed(0, 0.5));
    let output = home.bulkmem().args(COMPARE).arg("--json").assert().code(3).get_output().stdout.clone();
    let found: serde_json::Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(found["rows"].as_array().unwrap().len(), 6);
    let first = &found["rows"][0];
    assert_eq!((&first["verdict"], &first["candidate"]["name"]), (&"worse".into(), &"policy".into()));
    assert!((first["times"].as_f64().unwrap() - 0.5).abs() < 1e-9);
    assert!(first["interval"][0].as_f64().unwrap() <= 0.5 && first["probability"].as_f64().unwrap() < 0.05);
    assert_eq!(found["old"]["path"], "old.json");
    home.bulkmem().args(COMPARE).args(["--csv", "rows.csv"]).assert().code(3);
    let csv = fs::read_to_string(home.path().join("rows.csv")).unwrap();
    assert_eq!(csv.lines().count(), 7);
    assert!(csv.starts_with("measurement,kind,name,parameters,size,page_size,metric,old_median"), "{csv}");
    assert!(csv.lines().nth(1).unwrap().ends_with(",worse"), "{csv}");
}

#[test]
fn unusable_files_are_refused_by_name() {
    let home = home(&results());
    let whole = fs::read_to_string(home.path().join("old.json")).unwrap();
    let plant = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
    plant("half.json", &whole[..whole.len() / 2]);
    plant("newer.json", &whole.replace("\"version\": 2", "\"version\": 99"));
    plant("profile.json", r#"{"format": "bulkmem-profile", "version": 1}"#);
    plant("odd.json", &whole.replacen("\"bandwidth\"", "\"horsepower\"", 1));
    for (file, reason) in [
        ("missing.json", "cannot read missing.json: No such file"),
        (".", "cannot read .: Is a directory"),
        ("half.json", "half.json is damaged: EOF while parsing"),
        ("newer.json", "newer.json was written by a newer bulkmem: version 99"),
        ("profile.json", "profile.json is a profile, not results"),
        ("odd.json", "odd.json is damaged: unknown variant `horsepower`"),
    ] {
        let assert = home.bulkmem().args(["compare", "old.json", file]).assert().code(1).stdout("");
        assert.stderr(contains(reason).and(contains("help: ")));
    }
    for (arguments, reason) in [
        (&["compare", "old.json"][..], "<NEW>"),
        (&["compare", "old.json", "new.json", "--threshold", "100%"], "from 0 to below 100"),
        (&["compare", "old.json", "new.json", "--only", "nosuch"], "they have clear, policy, read"),
    ] {
        home.bulkmem().args(arguments).assert().code(2).stdout("").stderr(contains(reason));
    }
}
