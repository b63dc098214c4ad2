//! `bulkmem bench choice` and `bulkmem bench targets`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

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
fn json_is_that_of_all_measurements() {
    let found = Home::new().json(&[&SHORT[..], &["--json"]].concat());
    assert_eq!(found["format"], "bulkmem-results");
    assert!(found["provenance"]["policy"].as_str().unwrap().starts_with("defaults for "), "{found}");
    let rows = found["rows"].as_array().unwrap();
    for length in [4096, 16384, 32768] {
        let here = || {
            let of = move |row: &&Value| row["config"]["size"] == length && row["metric"] == "bandwidth";
            rows.iter().filter(of)
        };
        let kinds: Vec<&str> = here().map(|row| row["candidate"]["kind"].as_str().unwrap()).collect();
        for kind in ["policy", "method", "peer"] {
            assert!(kinds.contains(&kind), "{length}: {kinds:?}");
        }
        let chosen = here().find(|row| row["candidate"]["kind"] == "policy").unwrap();
        let config = json!({
            "operation": "clear", "size": length, "threads": 1, "alignment": "aligned", "cache": "cold",
            "intent": "throughput",
        });
        assert_eq!(chosen["config"], config);
        assert!(chosen["chosen"].is_string(), "{chosen}");
        for name in ["times_best_peer", "regret", "overall_times_best_peer", "overall_regret"] {
            assert!(chosen["also"][name].is_f64(), "{name}: {chosen}");
        }
    }
    let costs: Vec<&Value> = rows.iter().filter(|row| row["metric"] == "nanoseconds").collect();
    assert_eq!(costs.len(), 3, "called directly, through the policy, and only choosing: {costs:?}");
    let findings = found["findings"].to_string();
    assert!(findings.contains("clear: regret over 3 configurations") && findings.contains("Choosing costs "));
}

#[test]
fn results_are_saved_compared_and_reported_like_any_others() {
    let home = Home::new();
    home.bulkmem().args(SHORT).args(["--output", "choice.json"]).assert().success();
    home.bulkmem().args(["compare", "choice.json", "choice.json"]).assert().success();
    home.bulkmem().args(["report", "choice.json", "--output", "report.html"]).assert().success();
    let page = std::fs::read_to_string(home.path().join("report.html")).unwrap();
    assert!(page.contains("The policy&#39;s choice") || page.contains("The policy's choice"));
}

#[test]
fn every_operation_and_condition_can_be_compared() {
    for operation in ["clear", "fill", "copy", "fill_persist", "copy_persist", "persist"] {
        let home = Home::new();
        let arguments =
            ["bench", "choice", operation, "--size", "4K", "--budget", "5s", "--no-peers", "--json"];
        let found = home.json(&[&arguments[..], &["--unaligned", "--warm", "--cold"]].concat());
        let rows = found["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{operation}");
        for row in rows.iter().filter(|row| row["metric"] == "bandwidth") {
            assert_eq!(
                (&row["config"]["operation"], &row["config"]["alignment"]),
                (&json!(operation), &json!("unaligned"))
            );
            assert_ne!(row["candidate"]["kind"], "read", "{row}");
        }
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
    assert_eq!(reader.headers().unwrap().get(0), Some("measurement"));
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    assert!(rows.len() >= 6 && rows.iter().all(|row| &row[0] == "choice"), "{rows:?}");

    let text = home.text(&[&SHORT[..], &["--csv", "-"]].concat(), 80);
    assert!(text.starts_with("measurement,kind,name,"), "{text}");
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
fn every_target_is_checked_or_reported_as_not_measured() {
    let home = Home::new();
    let found = home.json(&["bench", "targets", "--max-size", "1M", "--budget", "8s", "--json"]);
    let targets: Vec<&Value> =
        found["findings"].as_array().unwrap().iter().map(|finding| &finding["check"]).collect();
    for target in
        ["clear, one", "clear, two", "copy", "persist", "any operation", "regret", "intent stream", "cost of"]
    {
        assert!(
            targets.iter().any(|it| it["what"].as_str().unwrap().starts_with(target)),
            "{target}: {targets:?}"
        );
    }
    for target in &targets {
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
fn the_table_of_targets_fits() {
    for columns in [80, 200] {
        let text = Home::new().text(&["bench", "targets", "--max-size", "64K", "--budget", "8s"], columns);
        assert_fits(&text, columns as usize);
        assert!(text.contains("target") && text.contains(" not met, "), "{text}");
    }
}
