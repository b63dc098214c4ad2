//! Results are saved as they are measured: whatever ends a run, the file is whole and holds what was complete.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::home::{Home, limit_file_size, succeeds};

/// Some groups that are done at once, and some that take a while.
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

/// The file as it stands, which must be whole, and loadable by the command.
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
    assert_eq!((&first["place"]["size"], first["samples"].as_array().unwrap().len()), (&4096.into(), 400));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside it");
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
    assert_eq!(stray, 1, "nothing is left beside it");
}
