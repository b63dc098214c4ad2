//! `bulkmem tunables`.

use predicates::prelude::*;
use predicates::str::contains;

use crate::home::{Home, keys};
use crate::limits::limit;

#[test]
fn a_short_run_prints_its_conclusion_as_json() {
    let home = Home::new();
    let mut command = home.spawnable();
    // One sample of everything in more memory takes half a minute.
    limit(&mut command, libc::RLIMIT_AS, 3 << 30);
    command.env("GLIBC_TUNABLES", "glibc.malloc.check=0");
    let run =
        command.args(["tunables", "--budget", "1s", "--json", "--output", "found.json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr);
    if stderr.contains("cannot list the C library's tunables") {
        return println!("skipped: bulkmem tunables: {stderr}");
    }
    assert!(run.status.success(), "{stderr}");
    let found: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(
        keys(&found),
        ["complete", "gains", "glibc_tunables", "notes", "page_aliasing", "provenance", "text", "tunables"]
    );
    let tunables = found["tunables"].as_array().unwrap();
    assert!(!tunables.is_empty());
    for tunable in tunables {
        assert_eq!(keys(tunable), ["current", "limits", "name", "operation", "recommended"]);
    }
    assert!(found["notes"].to_string().contains("GLIBC_TUNABLES is set"), "{}", found["notes"]);
    // The results are those of a measurement, which other commands read.
    home.bulkmem().args(["report", "found.json", "--output", "report.html"]).assert().success();
    let page = std::fs::read_to_string(home.path().join("report.html")).unwrap();
    assert!(page.contains("<section id=\"tunables\">"));
}

#[test]
fn a_process_that_measures_ends_with_its_requests() {
    let home = Home::new();
    let process = |requests: &str| {
        let mut command = home.bulkmem();
        command.env("BULKMEM_TUNABLES_PROCESS", "1").arg("tunables").write_stdin(requests);
        command.assert()
    };
    process("").success().stdout("");
    process("[1,\n").code(1).stderr(contains("error: cannot measure").and(contains("EOF")));
    // It is not a command.
    let help = home.text(&["help"], 80) + &home.text(&["tunables", "--help"], 80);
    assert!(!help.contains("TUNABLES_PROCESS") && !help.contains("requests"), "{help}");
}
