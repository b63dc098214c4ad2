//! `bulkmem calibrate` where there is a profile already: what is replaced, what is kept, and who may write.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem_measure::calibration::{Load, Mode, Profile};
use predicates::prelude::*;
use predicates::str::contains;

use crate::calibrate::{LONG, SHORT, load, load_profile, send, start};
use crate::home::{Home, profile};

/// Persist alone, in little time, on a machine that may be busy with other tests.
const PERSIST: [&str; 8] = ["calibrate", "--op", "persist", "--max-size", "64K", "--budget", "4s", "--force"];

fn plant(home: &Home, profile: &Profile) -> Vec<u8> {
    home.write_profile(profile);
    fs::read(home.profile()).unwrap()
}

/// The planted profile, its rules measured while others used so many processors.
fn measured_beside(others: f64) -> Profile {
    let mut profile = profile();
    let clear = &mut profile.coverage.operations[0];
    clear.mode = Mode::Thorough;
    clear.load = Some(Load { others, processors: 2, stolen: 0.0, throttled: 0.0, busiest: Vec::new() });
    profile
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn folder(home: &Home) -> PathBuf {
    home.profile().parent().unwrap().to_owned()
}

#[test]
fn an_interruption_leaves_a_profile_that_knows_more() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let home = Home::new();
        let before = plant(&home, &profile());
        let (mut child, mut complaints) = start(&home);
        send(&child, signal);
        let mut said = String::new();
        complaints.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
        assert_eq!(fs::read(home.profile()).unwrap(), before, "{said}");
        assert!(said.contains("not measured completely: clear") && said.contains("is unchanged"), "{said}");
        assert_eq!(names(&folder(&home)), ["profile.json", "profile.policy"]);
    }
}

#[test]
fn one_operation_is_merged_into_the_profile_and_the_one_before_is_kept() {
    let home = Home::new();
    let old = profile();
    let before = plant(&home, &old);
    let assert = home.bulkmem().args(PERSIST).assert().success();
    let backup = folder(&home).join("profile.json.old");
    assert.stdout(
        contains(format!("Wrote {}", home.profile().display()))
            .and(contains(format!("The previous profile is in {}", backup.display())))
            .and(contains("Its rules for clear stay")),
    );
    assert_eq!(fs::read(&backup).unwrap(), before);
    let merged = load(&home.profile());
    let clear: Vec<_> = merged.rules.iter().filter(|rule| rule.operation == Operation::Clear).collect();
    assert_eq!(clear, old.rules.iter().collect::<Vec<_>>());
    assert!(merged.rules.iter().any(|rule| rule.operation == Operation::Persist));
    assert!(merged.figures.starts_with(&old.figures) && merged.threads == old.threads);
    let measured: Vec<_> = merged.coverage.operations.iter().map(|it| (it.operation, it.mode)).collect();
    assert_eq!(measured, [(Operation::Clear, Mode::Quick), (Operation::Persist, Mode::Default)]);
    assert_eq!(merged.coverage.operations[0].date, old.provenance.date);
    assert!(!merged.coverage.complete, "other operations are not measured");
    let info = home.text(&["info"], 120);
    assert!(info.contains("no: not measured to the end: fill, copy, fill_persist, copy_persist"), "{info}");
    assert!(info.contains("clear (2025-11-21, quick)"), "{info}");
    assert_eq!(
        names(&folder(&home)),
        ["profile.json", "profile.json.old", "profile.policy", "profile.policy.old"]
    );
    // Only one backup: that of the profile before.
    let second = fs::read(home.profile()).unwrap();
    home.bulkmem().args(PERSIST).assert().success();
    assert_eq!(fs::read(&backup).unwrap(), second);
    assert_eq!(
        names(&folder(&home)),
        ["profile.json", "profile.json.old", "profile.policy", "profile.policy.old"]
    );
}

#[test]
fn a_profile_that_cannot_be_merged_with_is_replaced_only_by_a_complete_one() {
    let home = Home::new();
    let mut foreign = profile();
    foreign.provenance.cpu.model += 1;
    let before = plant(&home, &foreign);
    let assert = home.bulkmem().args(PERSIST).assert().code(1);
    let partial = folder(&home).join("profile.partial.json");
    assert.stdout(contains("Wrote nothing")).stderr(
        contains("error: the profile was not replaced")
            .and(contains(partial.display().to_string()))
            .and(contains("measured on"))
            .and(contains("\nhelp: calibrate all operations")),
    );
    assert_eq!(fs::read(home.profile()).unwrap(), before);
    assert!(load_profile(&partial).rules.iter().all(|rule| rule.operation == Operation::Persist));
    fs::remove_file(&partial).unwrap();
    // Enough for every operation on a busy machine.
    let whole = ["calibrate", "--max-size", "4K", "--budget", "15s"];
    home.bulkmem().args(whole).assert().success();
    assert!(load(&home.profile()).coverage.complete);
    assert_eq!(fs::read(folder(&home).join("profile.json.old")).unwrap(), before);
    assert_eq!(
        names(&folder(&home)),
        ["profile.json", "profile.json.old", "profile.policy", "profile.policy.old"]
    );
}

#[test]
fn a_second_calibration_says_that_one_is_running() {
    let home = Home::new();
    let (mut first, _complaints) = start(&home);
    let assert = home.bulkmem().args(PERSIST).assert().code(1).stdout("");
    assert.stderr(
        contains(format!("is already running: process {}", first.id()))
            .and(contains(home.profile().display().to_string()))
            .and(contains("\nhelp: ")),
    );
    // Another profile is another matter, and a dry run writes none.
    home.bulkmem().args(PERSIST).args(["--output", "other.json"]).assert().success();
    home.bulkmem().args(&PERSIST[..7]).arg("--dry-run").assert().success();
    // A killed calibration locks nothing, and leaves no temporary file.
    send(&first, libc::SIGKILL);
    first.wait().unwrap();
    let left = names(&folder(&home));
    assert!(left.iter().all(|name| name == "profile.json" || name == "profile.json.lock"), "{left:?}");
    home.bulkmem().args(PERSIST).assert().success();
    assert!(!folder(&home).join("profile.json.lock").exists());
}

/// Processes that do nothing but use the processors.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start() -> Hogs {
        let hog = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            command.spawn().expect("a shell")
        };
        Hogs((0..Machine::current().processors + 2).map(hog).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            _ = hog.kill();
            _ = hog.wait();
        }
    }
}

#[test]
fn under_a_heavier_load_nothing_is_replaced_unless_forced() {
    let home = Home::new();
    let before = plant(&home, &measured_beside(0.0));
    let hogs = Hogs::start();
    let assert = home.bulkmem().args(SHORT).assert().code(1).stdout("");
    assert.stderr(
        contains("other processes use")
            .and(contains("was measured under a lighter load"))
            .and(contains("--force"))
            .and(contains("calibrate: ").not()),
    );
    assert_eq!(fs::read(home.profile()).unwrap(), before);
    // Beside the hogs and other tests, preparing memory alone can take two seconds.
    let longer = SHORT.map(|word| if word == "2s" { "10s" } else { word });
    let assert = home.bulkmem().args(longer).arg("--force").assert().success();
    assert.stderr(contains("warning: other processes used").and(contains("while clear was measured")));
    drop(hogs);
    let forced = load(&home.profile());
    let load = forced.coverage.operations[0].load.as_ref().expect("it is recorded");
    assert!(load.others > 0.25 && !load.busiest.is_empty(), "{load:?}");
    assert_ne!(forced.rules, measured_beside(0.0).rules);
    let info = home.text(&["info"], 120);
    let words = info.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("other processes") && words.contains("while clear was measured"), "{info}");
}

/// The load may begin after the look at it.
#[test]
fn what_was_measured_under_a_load_that_came_later_is_saved_next_to_the_profile() {
    let home = Home::new();
    let before = plant(&home, &measured_beside(0.0));
    let mut command = home.spawnable();
    command.args(SHORT).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Past the look, which is over before the first progress; if other tests are at work, it is refused there.
    while !folder(&home).join("profile.json.lock").exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let _hogs = Hogs::start();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(fs::read(home.profile()).unwrap(), before, "{said}");
    let unmerged = folder(&home).join("profile.under-load.json");
    assert_eq!(unmerged.exists(), said.contains("profile.under-load.json"), "{said}");
    assert!(said.contains("heavier load than before") || said.contains("under a lighter load"), "{said}");
}

#[test]
fn a_linked_profile_is_replaced_where_it_is() {
    let home = Home::new();
    let elsewhere = home.path().join("dotfiles");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::create_dir_all(folder(&home)).unwrap();
    fs::write(elsewhere.join("p.json"), serde_json::to_string(&profile()).unwrap()).unwrap();
    symlink(elsewhere.join("p.json"), home.profile()).unwrap();
    home.bulkmem().args(PERSIST).assert().success().stdout(contains("p.json.old"));
    assert!(home.profile().is_symlink());
    assert_eq!(load(&home.profile()).coverage.operations.len(), 2);
    assert_eq!(names(&elsewhere), ["p.json", "p.json.old"]);
}

/// Expects a refusal before anything is measured or written.
fn refused(home: &Home, output: &str, reason: &str) {
    let assert = home.bulkmem().args(PERSIST).args(["--output", output]).assert().code(1).stdout("");
    assert.stderr(contains(reason).and(contains("calibrate: ").not()));
}

#[test]
fn a_file_that_is_no_policy_file_is_not_overwritten() {
    let home = Home::new();
    for text in ["grant { other policy };", "x", "bulkmem-poli"] {
        fs::write(home.path().join("java.policy"), text).unwrap();
        refused(&home, "java.json", "java.policy: it is not a policy file");
        assert_eq!(fs::read_to_string(home.path().join("java.policy")).unwrap(), text);
        assert_eq!(names(home.path()), ["java.policy"]);
    }
    fs::write(home.path().join("java.policy"), "").unwrap();
    home.bulkmem().args(PERSIST).args(["--output", "java.json"]).assert().success();
    load(&home.path().join("java.json"));
}

#[test]
fn the_policy_file_and_the_profile_are_two_files() {
    let home = Home::new();
    let text = serde_json::to_string(&profile()).unwrap();
    fs::write(home.path().join("x.json"), &text).unwrap();
    symlink("x.json", home.path().join("x.policy")).unwrap();
    refused(&home, "x.json", "x.policy: it is the same file as the profile");
    assert_eq!(fs::read_to_string(home.path().join("x.json")).unwrap(), text);
}

#[test]
fn backups_are_regular_files() {
    let home = Home::new();
    for name in ["p.json.old", "p.policy.old"] {
        let fifo = home.path().join(name);
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        refused(&home, "p.json", "it is not a regular file");
        fs::remove_file(&fifo).unwrap();
    }
}

/// Killed after it wrote the profile, and before the policy file.
#[test]
fn a_policy_file_that_was_not_written_is_written_next_time() {
    let home = Home::new();
    plant(&home, &profile());
    fs::remove_file(home.policy()).unwrap();
    let child = home.spawnable().args(LONG).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut child = child;
    while !home.policy().exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended without the file");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(home.policy()).unwrap(), profile().policy_text());
}

#[test]
fn durability_is_written_to_the_policy_file_and_kept() {
    let home = Home::new();
    let line = |expected: Option<&str>| {
        let text = fs::read_to_string(home.policy()).unwrap();
        assert_eq!(text.lines().find_map(|line| line.strip_prefix("durability ")), expected, "{text}");
        let info = home.json(&["info", "--json"]);
        assert_eq!(info["durability"], expected.unwrap_or("flush-to-memory"));
    };
    let calibrate = |durability: &[&str]| {
        home.bulkmem().args(PERSIST).args(durability).env("BULKMEM_EADR", "1").assert().success();
    };
    calibrate(&[]);
    line(None);
    calibrate(&["--durability", "caches-included"]);
    line(Some("caches-included"));
    calibrate(&[]);
    line(Some("caches-included"));
    calibrate(&["--durability", "flush-to-memory"]);
    line(Some("flush-to-memory"));
    let assert = home.bulkmem().args(["calibrate", "--durability", "1"]).assert().code(2);
    assert.stderr(contains("flush-to-memory, caches-included"));
}

#[test]
fn rules_for_greater_lengths_are_not_replaced_unless_forced() {
    let home = Home::new();
    let before = plant(&home, &profile());
    let shorter = ["calibrate", "--op", "clear", "--max-size", "100", "--budget", "4s"];
    let assert = home.bulkmem().args(shorter).assert().code(1).stdout("");
    assert.stderr(
        contains("has rules for clear of up to 1 MiB")
            .and(contains("--max-size 100 B").and(contains("--max-size 1048576")))
            .and(contains("--output"))
            .and(contains("--force"))
            .and(contains("calibrate: ").not()),
    );
    assert_eq!(fs::read(home.profile()).unwrap(), before);
    let other_operation = shorter.map(|word| if word == "clear" { "fill" } else { word });
    home.bulkmem().args(other_operation).assert().success();
    home.bulkmem().args(shorter).arg("--dry-run").assert().success();
    home.bulkmem().args(shorter).arg("--force").assert().success();
    assert!(
        load(&home.profile()).figures.iter().all(|it| it.length <= 100 || it.operation != Operation::Clear)
    );
}
