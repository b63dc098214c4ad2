//! `bulkmem bench choice` and `bulkmem bench targets`.

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
    let report = Home::new().json(&[&SHORT[..], &["--json"]].concat());
    let expected =
        ["choosing", "complete", "evidence", "notes", "operation", "overall", "policy", "regret", "rows"];
    assert_eq!(keys(&report), expected);
    let rows = report["rows"].as_array().unwrap();
    for key in [
        "length",
        "intent",
        "cost",
        "condition",
        "contestant",
        "median_ns",
        "quartiles_ns",
        "samples",
        "gb_per_s",
        "ratio_to_best_peer",
        "regret",
    ] {
        assert!(rows[0].get(key).is_some(), "{key}: {}", rows[0]);
    }
    for length in [4096, 16384, 32768] {
        let whole =
            report["overall"].as_array().unwrap().iter().find(|place| place["length"] == length).unwrap();
        assert!(whole["conditions"] == 1 && whole["ratio_to_best_peer"].is_f64(), "{whole}");
        let kinds: Vec<&str> = rows
            .iter()
            .filter(|row| row["length"] == length)
            .map(|row| row["contestant"]["kind"].as_str().unwrap())
            .collect();
        assert!(
            kinds.contains(&"policy") && kinds.contains(&"method") && kinds.contains(&"peer"),
            "{length}: {kinds:?}"
        );
    }
}

#[test]
fn every_operation_and_condition_can_be_compared() {
    for operation in bulkmem::Operation::ALL.map(bulkmem::Operation::name) {
        let home = Home::new();
        let arguments =
            ["bench", "choice", operation, "--size", "4K", "--budget", "5s", "--no-peers", "--json"];
        let report = home.json(&[&arguments[..], &["--unaligned", "--warm", "--cold"]].concat());
        assert_eq!(report["operation"], operation);
        let rows = report["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{operation}");
        assert!(rows.iter().all(|row| row["condition"]["aligned"] == false), "{operation}");
        assert!(rows.iter().all(|row| row["ratio_to_best_peer"].is_null()), "{operation}");
    }
}

#[test]
fn conditions_are_taken_together() {
    let home = Home::new();
    let text = home.text(&[&SHORT[..], &["--warm", "--cold"]].concat(), 80);
    assert_fits(&text, 80);
    assert!(text.contains("Taken together"), "{text}");
    assert!(!home.text(&SHORT, 80).contains("Taken together"));
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
        // A machine that is fast enough measures something, and says that it was not everything.
        Some(0) => assert!(String::from_utf8(output.stdout).unwrap().contains("the time was up")),
        other => panic!("{other:?}: {complaints}"),
    }
}

#[test]
fn comma_separated_values_have_a_line_for_each_row() {
    let home = Home::new();
    home.bulkmem().args(SHORT).args(["--csv", "rows.csv"]).assert().success().stdout(contains("Policy: "));
    let mut reader = csv::Reader::from_path(home.path().join("rows.csv")).unwrap();
    assert_eq!(reader.headers().unwrap().get(0), Some("operation"));
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    assert!(rows.len() >= 6 && rows.iter().all(|row| &row[0] == "clear"), "{rows:?}");

    let text = home.text(&[&SHORT[..], &["--csv", "-"]].concat(), 80);
    assert!(text.starts_with("operation,length,"), "{text}");
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
    while !line.starts_with("bench choice: ") || line.contains("memory") {
        line.clear();
        assert_ne!(complaints.read_line(&mut line).unwrap(), 0, "it ended by itself: {:?}", child.wait());
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
fn every_promise_is_checked_or_said_not_to_be() {
    let home = Home::new();
    let report = home.json(&["bench", "targets", "--max-size", "1M", "--budget", "8s", "--json"]);
    assert_eq!(keys(&report), ["complete", "evidence", "notes", "policy", "targets"]);
    let targets = report["targets"].as_array().unwrap();
    for promise in
        ["clear, one", "clear, two", "copy", "persist", "any operation", "regret", "intent stream", "cost of"]
    {
        assert!(
            targets.iter().any(|it| it["what"].as_str().unwrap().starts_with(promise)),
            "{promise}: {targets:?}"
        );
    }
    for target in targets {
        assert_eq!(keys(target), ["bound", "measured", "met", "note", "unit", "what"]);
        assert_eq!(target["measured"].is_null(), target["met"].is_null());
        assert_ne!(target["note"], "");
    }
    // Nothing of 256 MiB was measured, so nothing is claimed of it.
    assert!(targets[0]["met"].is_null(), "{}", targets[0]);
    // But what fits was.
    assert!(targets.iter().any(|target| !target["met"].is_null()));
}

#[test]
fn the_table_of_promises_fits() {
    for columns in [80, 200] {
        let text = Home::new().text(&["bench", "targets", "--max-size", "64K", "--budget", "8s"], columns);
        assert_fits(&text, columns as usize);
        assert!(text.contains("promise") && text.contains(" not met, "), "{text}");
    }
}
