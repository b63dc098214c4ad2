//! `bulkmem calibrate`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::policy::Policy;
use bulkmem_measure::calibration::Profile;
use predicates::prelude::*;
use predicates::str::contains;

use crate::home::{Home, assert_fits, keys, limit_file_size, succeeds};

/// Enough to choose something, in little time.
pub(crate) const SHORT: [&str; 7] = ["calibrate", "--op", "clear", "--max-size", "1M", "--budget", "2s"];
/// More than a test waits for.
pub(crate) const LONG: [&str; 8] =
    ["calibrate", "--op", "clear,copy", "--max-size", "64M", "--budget", "30s", "--force"];

/// Evidence of this machine.
pub(crate) fn load_profile(path: &Path) -> Profile {
    let profile = Profile::load(path).expect("a profile");
    profile.check(Machine::current()).expect("one of this machine");
    profile
}

/// A profile with its policy file.
pub(crate) fn load(path: &Path) -> Profile {
    let profile = load_profile(path);
    let policy = fs::read(path.with_extension("policy")).expect("a policy file next to it");
    Policy::from_file_bytes(&policy, Machine::current()).expect("a policy of this machine");
    assert_eq!(policy, profile.policy_text().as_bytes());
    profile
}

#[test]
fn it_writes_a_profile_that_serves_and_says_what_it_chose() {
    let home = Home::new();
    let assert = home.bulkmem().args(SHORT).assert().success();
    let output = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(output.contains(&format!("Wrote {}", home.profile().display())), "{output}");
    assert!(output.contains("clear, intent throughput") && output.contains("× C library"), "{output}");
    assert.stderr(predicates::str::starts_with("calibrate: ").and(contains(" left, ")));
    let profile = load(&home.profile());
    assert!(!profile.coverage.complete && !profile.figures.is_empty(), "one operation is not all");
    let measured: Vec<_> = profile.coverage.operations.iter().map(|it| it.operation).collect();
    assert_eq!(measured, [bulkmem::Operation::Clear]);
    let missing = "no: not measured to the end: fill, copy,";
    home.bulkmem().arg("info").assert().success().stdout(contains(missing));
    assert!(profile.figures.iter().all(|figure| figure.length <= 1 << 20));
    let info = home.json(&["info", "--json"]);
    assert_eq!(info["provenance"]["date"], profile.provenance.date.as_str());
    let answer = home.json(&["explain", "--op", "clear", "--size", "16K", "--json"]);
    assert!(
        answer["measured"][0]["figures"].as_array().unwrap().iter().any(|figure| figure["chosen"] == true),
        "{answer}"
    );
    home.bulkmem().arg("report").assert().success();
}

#[test]
fn the_tables_fit() {
    for columns in [80, 200] {
        let arguments = [&SHORT[..], &["--dry-run"]].concat();
        assert_fits(&Home::new().text(&arguments, columns), columns as usize);
    }
}

#[test]
fn json_has_the_documented_keys_and_a_dry_run_writes_nothing() {
    let home = Home::new();
    let document = home.json(&[&SHORT[..], &["--json", "--dry-run"]].concat());
    assert_eq!(keys(&document), ["choices", "notes", "path", "profile"]);
    assert!(document["path"].is_null());
    let expected =
        ["from", "gb_per_s", "method", "operation", "parameters", "reason", "situation", "times_c_library"];
    assert_eq!(keys(&document["choices"][0]), expected);
    Profile::parse(document["profile"].to_string().as_bytes()).expect("the profile is one");
    assert!(!home.profile().exists());
}

#[test]
fn it_writes_where_it_is_told_to() {
    let home = Home::new();
    home.bulkmem().args(SHORT).args(["--output", "new/folder/p.json"]).assert().success();
    load(&home.path().join("new/folder/p.json"));
    home.bulkmem().args(SHORT).env("BULKMEM_PROFILE", home.path().join("named.policy")).assert().success();
    load(&home.path().join("named.json"));
    assert!(!home.profile().exists());
}

/// Starts a calibration and waits until it measures.
pub(crate) fn start(home: &Home) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = home.spawnable();
    let mut child =
        command.args(LONG).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut complaints = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // At a second length; of the first one there are figures then.
    let early = |line: &str| {
        !line.starts_with("calibrate: ")
            || ["memory", "module", ", 64 B\n"].iter().any(|part| line.contains(part))
    };
    while early(&line) {
        line.clear();
        assert_ne!(complaints.read_line(&mut line).unwrap(), 0, "it ended early: {:?}", child.wait());
    }
    (child, complaints)
}

pub(crate) fn send(child: &Child, signal: libc::c_int) {
    // SAFETY: `kill` has no precondition; the process is our child and not yet waited for.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

#[test]
fn interrupted_it_keeps_what_it_measured() {
    let home = Home::new();
    let (child, mut complaints) = start(&home);
    send(&child, libc::SIGINT);
    let mut rest = String::new();
    complaints.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted"), "{rest}");
    let profile = load(&home.profile());
    assert!(!profile.coverage.complete && !profile.figures.is_empty());
    assert!(String::from_utf8(output.stdout).unwrap().contains("Wrote "));
    home.bulkmem().arg("info").assert().success().stdout(contains("no: calibration was interrupted"));
}

#[test]
fn a_second_interrupt_leaves_at_once_and_no_rubbish() {
    let home = Home::new();
    let (mut child, _complaints) = start(&home);
    send(&child, libc::SIGINT);
    // The process may have ended after the first one.
    std::thread::sleep(Duration::from_millis(1));
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    if home.profile().exists() {
        load(&home.profile());
    }
}

/// Runs the command and expects it to fail before it measures.
fn assert_refused_at_once(command: &mut Command, reason: &str) {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaints}");
    assert!(
        complaints.contains("error: cannot write the profile") && complaints.contains(reason),
        "{complaints}"
    );
    assert!(complaints.contains("\nhelp: ") && complaints.contains("--output FILE"), "{complaints}");
    assert!(!complaints.contains("calibrate: "), "it measured first: {complaints}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_target_that_cannot_be_written_is_refused_before_measuring() {
    let home = Home::new();
    fs::write(home.path().join("file"), "").unwrap();
    fs::write(home.path().join("results.json"), r#"{"format": "bulkmem-results", "version": 1}"#).unwrap();
    std::os::unix::fs::symlink("nowhere", home.path().join("dangling.json")).unwrap();
    std::os::unix::fs::symlink("/dev/null", home.path().join("device.json")).unwrap();
    fs::create_dir(home.path().join("folder.json")).unwrap();
    // /proc takes no files, not even root's.
    for (target, reason) in [
        ("file/p.json", "file is not a directory"),
        ("dangling.json", "symbolic link to nowhere, which does not exist"),
        ("results.json", "the file's format is not `bulkmem-profile`"),
        ("/proc/bulkmem/p.json", "No such file"),
        ("folder.json", "it is a directory"),
        ("device.json", "not a regular file"),
    ] {
        assert_refused_at_once(home.spawnable().args(LONG).args(["--output", target]), reason);
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 5, "nothing is left");
}

#[test]
fn a_name_that_no_policy_file_can_have_is_refused() {
    let home = Home::new();
    for (arguments, variable) in
        [(&["--output", "p"][..], ""), (&["--output", "/dev/null"], ""), (&[], "p.json")]
    {
        let assert = home.bulkmem().args(SHORT).args(arguments).env("BULKMEM_PROFILE", variable).assert();
        assert.code(2).stderr(contains("does not end in .policy").and(contains("FILE.json, the profile")));
    }
    home.bulkmem().args(SHORT).args(["--output", "p.policy"]).assert().success();
    load(&home.path().join("p.json"));
}

#[test]
fn a_limit_on_file_sizes_is_found_out_before_measuring() {
    let home = Home::new();
    let mut command = home.spawnable();
    command.args(LONG);
    limit_file_size(&mut command, 4096);
    assert_refused_at_once(&mut command, "File too large");
    assert!(!home.profile().exists());
}

#[test]
fn a_full_disk_is_found_out_before_measuring_and_left_as_it_was() {
    let home = Home::new();
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // The mount is seen by this shell and its children only, and goes with them.
    let script = r#"mount -t tmpfs -o size=64k tmpfs "$1" || exit 77
        "$2" calibrate --output "$1/p.json"; code=$?; ls -A "$1"; exit $code"#;
    let mut command = Command::new("unshare");
    let bulkmem = env!("CARGO_BIN_EXE_bulkmem");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&disk).arg(bulkmem);
    let mut trial = Command::new("unshare");
    trial.args(["--mount", "sh", "-c", r#"mount -t tmpfs tmpfs "$1""#, "sh"]).arg(&disk);
    if let Err(why) = succeeds(&mut trial) {
        println!("skipped: a full disk while calibrating: no file system can be mounted here: {why}");
        return;
    }
    assert_refused_at_once(&mut command, "No space left");
}

#[test]
fn what_was_measured_is_shown_even_if_it_cannot_be_kept() {
    let home = Home::new();
    let mut command = home.spawnable();
    command.args(SHORT).args(["--output", "folder/p.json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut complaints = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    complaints.read_line(&mut text).unwrap();
    // The folder was there when it was tried out.
    fs::remove_dir_all(home.path().join("folder")).unwrap();
    fs::write(home.path().join("folder"), "in the way").unwrap();
    complaints.read_to_string(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("error: cannot write the profile") && text.contains("help: "), "{text}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("clear, intent throughput") && shown.contains("Wrote nothing."), "{shown}");
}
