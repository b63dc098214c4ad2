//! `bulkmem bench all`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::home::Home;

/// Interrupted in its first part: the time was stated before, and what was measured is in the file.
#[test]
fn it_states_its_time_and_keeps_what_it_measured() {
    let home = Home::new();
    let mut command = home.spawnable();
    command.args(["bench", "all", "--quick"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut complaints = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    complaints.read_line(&mut line).unwrap();
    assert!(line.starts_with("bench all: 16 measurements, about "), "{line}");
    assert!(line.contains("bulkmem-results.json"), "{line}");
    let saved = home.path().join("bulkmem-results.json");
    let rows = || -> usize {
        let text = std::fs::read_to_string(&saved).unwrap_or_default();
        let found: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        found.map_or(0, |found| found["rows"].as_array().map_or(0, Vec::len))
    };
    // The progress that it writes paces the waiting.
    while rows() == 0 {
        line.clear();
        assert_ne!(complaints.read_line(&mut line).unwrap(), 0, "it ended early: {:?}", child.wait());
    }
    // SAFETY: `kill` has no precondition; the process is our child and not yet waited for.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
    let mut rest = String::new();
    complaints.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("clear") && shown.contains("Saved to bulkmem-results.json"), "{shown}");
    let found: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&saved).unwrap()).unwrap();
    assert_eq!(found["complete"], false);
    // As many as a comparison takes.
    assert_eq!(found["rows"][0]["samples"].as_array().unwrap().len(), 5);
}

#[test]
fn a_file_that_cannot_be_written_is_found_out_before() {
    let home = Home::new();
    let assert = home.bulkmem().args(["bench", "all", "--output", "no/such/file"]).assert().code(1);
    assert.stderr(predicates::str::contains("cannot write no/such/file"));
}
