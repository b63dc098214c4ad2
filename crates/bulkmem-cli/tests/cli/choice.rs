//! `bulkmem bench choice` and `bulkmem bench targets`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use predicates::prelude::*;
use predicates::str::contains;

use crate::home::{Home, assert_fits, keys};

const SHORT: [&str; 9] =
    ["bench", "choice", "clear", "--size", "4K,16K-32K", "--method", "portable", "--budget", "5s"];

#[test]
fn the_tables_fit_and_name_choice_methods_and_peers() {
    for columns in [80, 200] {
        let text = Home::new().text(&SHORT, columns);
        assert_fits(&text, columns as usize);
        let words = [
            "clear, intent throughput",
            "the policy's choice",
            "portable",
            "4 KiB",
            "16 KiB",
            "32 KiB",
            "regret",
        ];
        for word in words {
            assert!(text.contains(word), "{word} at {columns}\n{text}");
        }
        assert!(text.contains("Policy: "), "{text}");
    }
}

#[test]
fn json_has_the_documented_keys() {
    let found = Home::new().json(&[&SHORT[..], &["--json"]].concat());
    assert_eq!(found["format"], "bulkmem-results");
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["measurement"] == "choice"), "{rows:?}");
    let compared: Vec<_> = rows.iter().filter(|row| row["metric"] == "bandwidth").collect();
    for size in [4096, 16384, 32768] {
        let here: Vec<_> = compared.iter().filter(|row| row["config"]["size"] == size).collect();
        for key in ["operation", "threads", "alignment", "cache", "page_size", "intent"] {
            assert!(here.iter().all(|row| !row["config"][key].is_null()), "{key}: {here:?}");
        }
        let of = |kind: &str| here.iter().find(|row| row["candidate"]["kind"] == kind);
        assert!(of("method").is_some() && of("peer").is_some(), "{here:?}");
        let policy = of("policy").unwrap_or_else(|| panic!("{size}: {here:?}"));
        assert!(policy["chosen"].is_string(), "{policy}");
        for key in ["times_best_peer", "regret", "overall_times_best_peer", "overall_regret"] {
            assert!(policy["also"][key].is_f64(), "{key}: {policy}");
        }
    }
    assert!(rows.iter().any(|row| row["metric"] == "nanoseconds"), "the cost of choosing");
}

#[test]
fn every_operation_and_condition_can_be_compared() {
    for operation in bulkmem::Operation::ALL.map(bulkmem::Operation::name) {
        let home = Home::new();
        let arguments =
            ["bench", "choice", operation, "--size", "4K", "--budget", "5s", "--no-peers", "--json"];
        let found = home.json(&[&arguments[..], &["--unaligned", "--warm", "--cold"]].concat());
        let rows = found["rows"].as_array().unwrap();
        let compared: Vec<_> = rows.iter().filter(|row| row["metric"] == "bandwidth").collect();
        assert!(!compared.is_empty(), "{operation}");
        for row in compared {
            assert_eq!(row["config"]["operation"], operation);
            assert_eq!(row["config"]["alignment"], "unaligned");
        }
    }
}

#[test]
fn conditions_are_taken_together() {
    let home = Home::new();
    let text = home.text(&[&SHORT[..], &["--warm", "--cold"]].concat(), 80);
    assert_fits(&text, 80);
    assert!(text.contains("Taken together"), "{text}");
    assert!(!home.text(&[&SHORT[..], &["--cold"]].concat(), 80).contains("Taken together"));
}

#[test]
fn fresh_memory_is_shown_apart_and_labelled() {
    let home = Home::new();
    let copy = ["bench", "choice", "copy", "--size", "64K", "--method", "portable", "--budget", "12s"];
    let saved = [&copy[..], &["--source", "cold,warm", "--output", "found.json"]].concat();
    let text = home.text(&saved, 80);
    assert_fits(&text, 80);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (state, pages) in [("cold", "thp"), ("warm", "thp"), ("fresh", "4K")] {
        for source in ["cold", "warm"] {
            let heading = format!("aligned, {state}, {source} source, {pages} pages");
            assert!(text.contains(&heading), "{heading}: {text}");
        }
    }
    let charts = home.text(&["report", "found.json", "--format", "markdown", "--output", "-"], 80);
    assert!(
        charts.contains("4K pages, aligned, fresh, cold source") && charts.contains("| fresh |"),
        "{charts}"
    );

    let found = home.json(&[&copy[..], &["--fresh", "--page-size", "4K", "--json"]].concat());
    let rows = found["rows"].as_array().unwrap();
    let compared: Vec<_> = rows.iter().filter(|row| row["metric"] == "bandwidth").collect();
    assert!(!compared.is_empty());
    for row in compared {
        let config = &row["config"];
        assert_eq!([&config["cache"], &config["source"], &config["page_size"]], ["fresh", "cold", "4K"]);
    }
}

#[test]
fn time_that_does_not_suffice_is_a_failure_with_a_remedy() {
    let arguments = ["bench", "choice", "clear", "--size", "256M", "--intent", "reuse", "--budget", "100ms"];
    let output = Home::new().bulkmem().args(arguments).output().unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    match output.status.code() {
        Some(1) => {
            assert!(complaints.contains("the time was up") && complaints.contains("--budget"), "{complaints}")
        }
        // A machine that is fast enough measures something, and notes that it was not everything.
        Some(0) => {
            let shown = String::from_utf8(output.stdout).unwrap();
            let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            let reasons = ["time ran out", "no time for", "would take too long"];
            assert!(reasons.iter().any(|reason| shown.contains(reason)), "{shown}");
        }
        other => panic!("{other:?}: {complaints}"),
    }
}

#[test]
fn a_budget_that_leaves_out_every_size_is_a_failure_too() {
    let arguments =
        ["bench", "choice", "clear", "--size", "4G", "--budget", "100ms", "--output", "found.json"];
    let home = Home::new();
    let assert = home.bulkmem().args(arguments).assert().code(1).stdout("");
    // On a small machine memory is what does not suffice.
    let time = contains("the time was up before anything was measured").and(contains("--budget"));
    assert.stderr(time.or(contains("of memory").and(contains("name a smaller size"))));
    let never_fits = ["bench", "choice", "copy", "--size", "1T", "--budget", "1s"];
    home.bulkmem().args(never_fits).assert().code(1).stdout("").stderr(contains("of memory"));
}

#[test]
fn comma_separated_values_have_a_line_for_each_row() {
    let home = Home::new();
    home.bulkmem().args(SHORT).args(["--csv", "rows.csv"]).assert().success().stdout(contains("Policy: "));
    let mut reader = csv::Reader::from_path(home.path().join("rows.csv")).unwrap();
    assert_eq!(reader.headers().unwrap().get(0), Some("measurement"));
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    assert!(rows.len() >= 6 && rows.iter().all(|row| &row[0] == "choice"), "{rows:?}");

    let text = home.text(&[&SHORT[..], &["--csv", "-"]].concat(), 80);
    assert!(text.starts_with("measurement,"), "{text}");
    assert!(
        csv::Reader::from_reader(text.as_bytes()).records().all(|row| row.is_ok()),
        "nothing else is on stdout"
    );
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_measuring() {
    let home = Home::new();
    let assert =
        home.bulkmem().args(["bench", "choice", "clear", "--csv", "no/such/rows.csv"]).assert().code(1);
    assert.stdout("").stderr(
        contains("error: cannot write no/such").and(contains("help: ")).and(contains("bench: ").not()),
    );
}

#[test]
fn interrupted_it_shows_what_it_measured() {
    let home = Home::new();
    let mut command = home.spawnable();
    command.args([
        "bench",
        "choice",
        "clear",
        "--size",
        "16M-128M",
        "--intent",
        "throughput,reuse,stream",
        "--budget",
        "60s",
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut complaints = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("bench: ") || line.contains("memory") {
        line.clear();
        assert_ne!(complaints.read_line(&mut line).unwrap(), 0, "it ended early: {:?}", child.wait());
    }
    // SAFETY: `kill` has no precondition; the process is our child and not yet waited for.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
    let mut rest = String::new();
    complaints.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted"), "{rest}");
}

#[test]
fn every_target_is_checked_or_reported_as_not_measured() {
    const OPERATIONS: [&str; 3] = ["clear", "fill", "copy"];
    let home = Home::new();
    let measured =
        |budget| home.json(&["bench", "targets", "--max-size", "1M", "--budget", budget, "--json"]);
    let reused = |found: &serde_json::Value, operation: &str| -> BTreeSet<String> {
        let own = |row: &&serde_json::Value| {
            row["config"]["memory"] == "reused" && row["config"]["operation"] == operation
        };
        let rows = found["rows"].as_array().unwrap().iter().filter(own);
        rows.map(|row| row["candidate"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut found = measured("8s");
    if OPERATIONS.iter().any(|operation| reused(&found, operation).is_empty()) {
        // There is less time on a busy machine.
        found = measured("40s");
    }
    let findings = found["findings"].as_array().unwrap();
    let checks: Vec<_> = findings.iter().map(|it| &it["check"]).filter(|it| !it.is_null()).collect();
    for target in [
        "each operation, cold or warm",
        "each operation, fresh",
        "geometric mean",
        "regret",
        "copy_persist",
        "all proc",
        "intent stream",
        "cost of",
        "the same memory again and again",
    ] {
        let starts = |it: &&&serde_json::Value| it["what"].as_str().unwrap().starts_with(target);
        assert!(checks.iter().any(|it| starts(&it)), "{target}: {checks:?}");
    }
    for check in &checks {
        assert_eq!(keys(check), ["bound", "measured", "met", "note", "unit", "what"]);
        // What was not measured is not decided either; what was measured need not be.
        assert!(!check["measured"].is_null() || check["met"].is_null(), "{check}");
        assert_ne!(check["note"], "");
    }
    for operation in OPERATIONS {
        let expected = ["c_library", "policy"].map(str::to_owned);
        assert_eq!(reused(&found, operation), BTreeSet::from(expected), "{operation}");
    }
    // No target about 64 MiB can be checked, but others can.
    let long = checks.iter().find(|it| it["what"].as_str().unwrap().contains("64 MiB")).unwrap();
    assert!(long["met"].is_null(), "{long}");
    assert!(checks.iter().any(|check| !check["met"].is_null()));
}

#[test]
fn the_table_of_targets_fits() {
    for columns in [80, 200] {
        let text = Home::new().text(&["bench", "targets", "--max-size", "64K", "--budget", "8s"], columns);
        assert_fits(&text, columns as usize);
        assert!(text.contains("target") && text.contains(" not met, "), "{text}");
    }
}
