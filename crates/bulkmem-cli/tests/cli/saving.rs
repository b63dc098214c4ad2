//! Results are saved while measuring: after any end of a run, the file is intact and has every complete group.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::home::{Home, limit_file_size, succeeds};

/// Some groups that finish immediately, and some that take a while.
const LONG: [&str; 12] = [
    "bench",
    "clear",
    "--size",
    "4K-16M",
    "--method",
    "portable",
    "--loops",
    "1",
    "--runs",
    "400",
    "--output",
    "found.json",
];

fn start(home: &Home) -> Child {
    home.spawnable()
        .args(LONG)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// Waits for the first group.
fn wait_for(file: &Path, child: &mut Child) {
    while !file.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended and saved nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: kill has no preconditions; the child was not waited for, so its number is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

/// Loads the file, which must be intact, also for the command.
fn load(home: &Home, complete: bool) -> Value {
    let found: Value =
        serde_json::from_slice(&fs::read(home.path().join("found.json")).unwrap()).expect("a whole file");
    assert_eq!((&found["format"], &found["complete"]), (&"bulkmem-results".into(), &complete.into()));
    let rows = found["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| !row["samples"].as_array().unwrap().is_empty()));
    home.bulkmem().args(["compare", "found.json", "found.json"]).assert().code(0);
    found
}

#[test]
fn an_interrupted_run_keeps_what_was_complete() {
    let home = Home::new();
    let mut child = start(&home);
    wait_for(&home.path().join("found.json"), &mut child);
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let found = load(&home, false);
    let first = &found["rows"][0];
    assert_eq!((&first["config"]["size"], first["samples"].as_array().unwrap().len()), (&4096.into(), 400));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "no other file is left");
}

/// At any moment, even while the file is being replaced.
#[test]
fn a_killed_run_leaves_a_whole_file() {
    for moment in 0..4 {
        let home = Home::new();
        let mut child = start(&home);
        wait_for(&home.path().join("found.json"), &mut child);
        std::thread::sleep(Duration::from_millis(7 * moment));
        signal(&child, libc::SIGKILL);
        child.wait().unwrap();
        load(&home, false);
    }
}

#[test]
fn where_the_disk_fills_up_the_last_whole_file_stays_and_the_error_says_why() {
    let home = Home::new();
    let short = [
        "bench",
        "clear",
        "--size",
        "4K-512K",
        "--method",
        "portable",
        "--loops",
        "1",
        "--output",
        "found.json",
    ];
    home.bulkmem().args(short).assert().success();
    let path = home.path().join("found.json");
    let (size, all) = (fs::metadata(&path).unwrap().len(), rows(&path));
    fs::remove_file(&path).unwrap();
    let mut command = home.spawnable();
    command.args(short).stdin(Stdio::null());
    limit_file_size(&mut command, size / 2);
    assert_fails_and_keeps(command, &home, "File too large", all);
}

#[test]
fn a_full_file_system_too() {
    let home = Home::new();
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // The mount is seen by this shell and its children only, and goes with them; the file is fetched from it before.
    let script = r#"mount -t tmpfs -o size=24k tmpfs "$1" || exit 77
        "$2" bench clear --size 4K-512K --method portable --loops 1 --output "$1/found.json"
        code=$?; cp "$1/found.json" .; exit $code"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&disk).arg(env!("CARGO_BIN_EXE_bulkmem"));
    command.current_dir(home.path()).stdin(Stdio::null());
    let mut trial = Command::new("unshare");
    trial.args(["--mount", "sh", "-c", r#"mount -t tmpfs tmpfs "$1""#, "sh"]).arg(&disk);
    if let Err(why) = succeeds(&mut trial) {
        println!("skipped: a full file system while saving results: none can be mounted here: {why}");
        return;
    }
    assert_fails_and_keeps(command, &home, "No space left", usize::MAX);
}

fn rows(path: &Path) -> usize {
    let found: Value = serde_json::from_slice(&fs::read(path).unwrap()).expect("a whole file");
    found["rows"].as_array().unwrap().len()
}

/// Runs a command whose space is limited, and expects the error and fewer rows than `all`.
fn assert_fails_and_keeps(mut command: Command, home: &Home, reason: &str, all: usize) {
    let output = command.output().expect("it starts");
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaints}");
    assert!(complaints.contains("error: what was measured cannot be saved"), "{complaints}");
    assert!(complaints.contains(reason) && complaints.contains("space left"), "{complaints}");
    load(home, false);
    let kept = rows(&home.path().join("found.json"));
    assert!(0 < kept && kept < all, "{kept} of {all}");
    let stray = fs::read_dir(home.path()).unwrap().flatten().filter(|it| it.path().is_file()).count();
    assert_eq!(stray, 1, "no other file is left");
}

/// Planted results: more than any run here finds.
fn old_results(home: &Home) -> Vec<u8> {
    let old = serde_json::to_vec(&crate::planted::everything("AMD EPYC 9B14", 1.0)).unwrap();
    fs::write(home.path().join("found.json"), &old).unwrap();
    fs::write(home.path().join("found.csv"), "old\n1\n").unwrap();
    old
}

fn names(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_run_that_measures_nothing_leaves_the_old_results() {
    let home = Home::new();
    let old = old_results(&home);
    let command = [
        "bench",
        "corun",
        "--size",
        "1M",
        "--chunk",
        "64K",
        "--page-size",
        "4K",
        "--output",
        "found.json",
        "--csv",
        "found.csv",
    ];
    let assert = home.bulkmem().args(command).args(["--", "false"]).assert().code(1);
    let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(fs::read(home.path().join("found.json")).unwrap() == old, "{said}");
    assert_eq!(fs::read_to_string(home.path().join("found.csv")).unwrap(), "old\n1\n");
    assert!(said.contains("found.json is unchanged") && said.contains("found.csv is unchanged"), "{said}");
    assert_eq!(names(&home), ["found.csv", "found.json"]);
    // Interrupted before the first row: the first group does not end.
    let mut child = home
        .spawnable()
        .args(command)
        .args(["--", "sleep", "60"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut complaints = BufReader::new(child.stderr.take().unwrap());
    complaints.read_line(&mut String::new()).unwrap();
    signal(&child, libc::SIGINT);
    let mut said = String::new();
    complaints.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(fs::read(home.path().join("found.json")).unwrap() == old, "{said}");
    assert_eq!(names(&home), ["found.csv", "found.json"]);
    // And where there was no file, none is made.
    let empty = Home::new();
    empty.bulkmem().args(command).args(["--", "false"]).assert().code(1);
    assert!(names(&empty).is_empty());
}

#[test]
fn a_partial_result_is_saved_next_to_the_old_one() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL] {
        let home = Home::new();
        let old = old_results(&home);
        fs::write(home.path().join("found.partial.json"), "of an earlier run").unwrap();
        let mut child = home
            .spawnable()
            .args(LONG)
            .args(["--csv", "found.csv"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let partial = home.path().join("found.partial-2.json");
        wait_for(&partial, &mut child);
        wait_for(&home.path().join("found.partial.csv"), &mut child);
        signal(&child, number);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let code = child.wait().unwrap().code();
        assert!(fs::read(home.path().join("found.json")).unwrap() == old, "{said}");
        assert_eq!(fs::read_to_string(home.path().join("found.csv")).unwrap(), "old\n1\n");
        assert_eq!(fs::read_to_string(home.path().join("found.partial.json")).unwrap(), "of an earlier run");
        assert!(rows(&partial) > 0);
        let all =
            ["found.csv", "found.json", "found.partial-2.json", "found.partial.csv", "found.partial.json"];
        assert_eq!(names(&home), all, "{said}");
        if number != libc::SIGKILL {
            assert_eq!(code, Some(130), "{said}");
            assert!(said.contains("found.json is unchanged; what was measured is in "), "{said}");
            assert!(said.contains("found.partial-2.json") && said.contains("found.partial.csv"), "{said}");
        }
    }
}

#[test]
fn a_complete_result_replaces_the_old_one() {
    let home = Home::new();
    old_results(&home);
    let short = ["bench", "clear", "--size", "4K,8K", "--method", "portable", "--loops", "1"];
    let files = ["--output", "found.json", "--csv", "found.csv"];
    let assert = home.bulkmem().args(short).args(files).assert().success();
    assert!(!String::from_utf8_lossy(&assert.get_output().stderr).contains("unchanged"));
    load(&home, true);
    assert!(fs::read_to_string(home.path().join("found.csv")).unwrap().starts_with("measurement,"));
    assert_eq!(names(&home), ["found.csv", "found.json"], "no partial result stays");
}

/// A terminal that is closed sends SIGHUP; nohup(1) has it ignored.
#[test]
fn an_ignored_hang_up_stays_ignored() {
    let home = Home::new();
    let script = r#"trap '' HUP; exec "$0" bench clear --size 4K-1M --method portable --loops 1 --runs 50 \
        --output found.json"#;
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_bulkmem")])
        .current_dir(home.path())
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&home.path().join("found.json"), &mut child);
    signal(&child, libc::SIGHUP);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    load(&home, true);
}
