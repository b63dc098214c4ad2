//! Output files: what is replaced, what is written through, and what is refused before any work starts.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

use crate::home::Home;
use crate::planted;

/// A measurement of a moment.
const SHORT: [&str; 12] = [
    "bench", "clear", "--size", "4K", "--method", "portable", "--loops", "1", "--runs", "2", "--peers",
    "none",
];

/// A home with planted results in `found.json`.
fn with_results() -> Home {
    let home = Home::new();
    let found = serde_json::to_string(&planted::everything("AMD EPYC 9B14", 1.0)).unwrap();
    fs::write(home.path().join("found.json"), found).unwrap();
    home
}

fn make(path: &Path, kind: libc::mode_t, device: libc::dev_t) -> bool {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: `name` is a C string that outlives the call.
    unsafe { libc::mknod(name.as_ptr(), kind | 0o666, device) == 0 }
}

fn fifo(home: &Home, name: &str) -> PathBuf {
    let path = home.path().join(name);
    assert!(make(&path, libc::S_IFIFO, 0));
    path
}

/// Reads a FIFO to its end, in a thread.
fn reader(path: &Path) -> thread::JoinHandle<String> {
    let path = path.to_owned();
    thread::spawn(move || {
        let mut text = String::new();
        File::open(path).unwrap().read_to_string(&mut text).unwrap();
        text
    })
}

fn names(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn arguments<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

#[test]
fn stdout_by_its_path_is_written_through() {
    let home = with_results();
    // A link to stdout of our own first: were it replaced, the machine's would be, too.
    symlink("/proc/self/fd/1", home.path().join("out")).unwrap();
    for path in ["out", "/dev/stdout", "/proc/self/fd/1"] {
        let output = home
            .bulkmem()
            .args(["report", "found.json", "--output", path])
            .assert()
            .success()
            .get_output()
            .clone();
        let link = home.path().join("out");
        assert!(link.is_symlink(), "{path} was replaced");
        assert!(output.stdout.starts_with(b"<!DOCTYPE html>"), "{path}");
        assert!(output.stdout.ends_with(b"</html>\n") || output.stdout.ends_with(b"</html>"), "{path}");
    }
    assert!(Path::new("/dev/stdout").is_symlink());
    // Stdout that is a file: appended to, not replaced.
    let log = home.path().join("log");
    fs::write(&log, "before\n").unwrap();
    let mut command = home.spawnable();
    command.args(["report", "found.json", "--output", "/dev/stdout"]);
    command.stdout(File::options().append(true).open(&log).unwrap());
    assert!(command.status().unwrap().success());
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.starts_with("before\n<!DOCTYPE html>"), "{}", &text[..40]);
}

#[test]
fn a_fifo_gets_what_a_file_would() {
    let home = with_results();
    for (name, first) in
        [("bench", &SHORT[..]), ("report", &["report", "found.json", "--format", "markdown"])]
    {
        let path = fifo(&home, name);
        let reader = reader(&path);
        home.bulkmem().args(arguments(first, &["--output", name])).assert().success();
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo(), "{name} was replaced");
        let text = reader.join().unwrap();
        match name {
            "bench" => {
                let found: Value = serde_json::from_str(&text).expect("one document");
                assert!(found["complete"] == true && !found["rows"].as_array().unwrap().is_empty());
            }
            _ => assert!(text.starts_with("# "), "{text}"),
        }
    }
}

#[test]
fn a_device_is_written_through() {
    let home = with_results();
    let path = home.path().join("null");
    if !make(&path, libc::S_IFCHR, libc::makedev(1, 3)) || File::options().write(true).open(&path).is_err() {
        println!("skipped: output to a device: none can be made here (mknod)");
        return;
    }
    for command in [
        arguments(&SHORT, &["--output", "null"]),
        arguments(&SHORT, &["--csv", "null"]),
        vec!["bench", "choice", "clear", "--size", "4K", "--no-peers", "--csv", "null"],
        vec!["report", "found.json", "--output", "null"],
        vec!["compare", "found.json", "found.json", "--csv", "null"],
    ] {
        home.bulkmem().args(&command).assert().success();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        assert!(kind.is_char_device(), "{command:?} replaced the device");
    }
}

#[test]
fn a_link_stays_and_its_target_keeps_mode_and_owner() {
    let home = with_results();
    let (target, link) = (home.path().join("folder/target"), home.path().join("link"));
    fs::create_dir(target.parent().unwrap()).unwrap();
    for command in [
        arguments(&SHORT, &["--output", "link"]),
        arguments(&SHORT, &["--csv", "link"]),
        vec!["report", "found.json", "--output", "link"],
        vec!["compare", "found.json", "found.json", "--csv", "link"],
    ] {
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o640)).unwrap();
        let chowned = std::os::unix::fs::chown(&target, Some(12345), Some(12346)).is_ok();
        _ = fs::remove_file(&link);
        symlink("folder/target", &link).unwrap();
        home.bulkmem().args(&command).assert().success();
        assert!(link.is_symlink(), "{command:?} replaced the link");
        assert_ne!(fs::read_to_string(&target).unwrap(), "old", "{command:?}");
        let about = fs::metadata(&target).unwrap();
        assert_eq!(about.mode() & 0o777, 0o640, "{command:?}");
        if chowned {
            assert_eq!((about.uid(), about.gid()), (12345, 12346), "{command:?}");
        } else {
            println!("skipped: that a replaced file keeps its owner: only root can give files away");
        }
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 1, "nothing is left next to it");
    }
}

/// Runs a command that must fail before it measures or writes, and returns what it says.
fn refused(home: &Home, command: &[&str], code: i32) -> String {
    let before = names(home);
    let assert = home.bulkmem().args(command).assert().code(code).stdout("");
    let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(said.contains("error: ") && said.contains("\nhelp: "), "{command:?}: {said}");
    assert!(!said.contains("bench: "), "{command:?} measured first: {said}");
    assert_eq!(names(home), before, "{command:?} left something");
    said
}

#[test]
fn what_cannot_be_written_is_refused_before_any_work() {
    let home = with_results();
    symlink("nowhere", home.path().join("dangling")).unwrap();
    symlink("loop", home.path().join("loop")).unwrap();
    fs::create_dir(home.path().join("folder")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(home.path().join("socket")).unwrap();
    let mut cases = vec![
        ("dangling", "symbolic link to nowhere, which does not exist"),
        ("loop", "symbolic links"),
        ("folder", "is a directory"),
        ("folder/", "is a directory"),
        ("new/", "that of a directory"),
        ("socket", "is a socket"),
        ("no/such/folder/file", "no/such/folder does not exist"),
        ("found.json/file", "found.json is not a directory"),
        ("/dev/full", "No space left"),
    ];
    if make(&home.path().join("disk"), libc::S_IFBLK, libc::makedev(7, 250)) {
        cases.push(("disk", "is a block device"));
    } else {
        println!("skipped: output to a block device: none can be made here (mknod)");
    }
    for (path, reason) in cases {
        for command in [
            arguments(&SHORT, &["--output", path]),
            arguments(&SHORT, &["--csv", path]),
            vec!["bench", "choice", "clear", "--csv", path],
            vec!["report", "found.json", "--output", path],
            vec!["compare", "found.json", "found.json", "--csv", path],
            vec!["reproduce", "--quick", "--output", path],
        ] {
            let said = refused(&home, &command, 1);
            assert!(said.contains("cannot write") && said.contains(reason), "{command:?}: {said}");
        }
    }
}

#[test]
fn a_read_only_file_is_not_replaced() {
    let home = with_results();
    fs::write(home.path().join("kept"), "mine").unwrap();
    fs::set_permissions(home.path().join("kept"), Permissions::from_mode(0o444)).unwrap();
    if File::options().write(true).open(home.path().join("kept")).is_ok() {
        println!("skipped: that a read-only file is not replaced: root may write it");
        return;
    }
    let said = refused(&home, &["report", "found.json", "--output", "kept"], 1);
    assert!(said.contains("Permission denied"), "{said}");
    assert_eq!(fs::read_to_string(home.path().join("kept")).unwrap(), "mine");
}

#[test]
fn an_input_is_never_the_output() {
    let home = with_results();
    symlink("found.json", home.path().join("link.json")).unwrap();
    fs::hard_link(home.path().join("found.json"), home.path().join("hard.json")).unwrap();
    fs::write(home.path().join("other.json"), fs::read(home.path().join("found.json")).unwrap()).unwrap();
    let before = fs::read(home.path().join("found.json")).unwrap();
    for output in ["found.json", "./found.json", "link.json", "hard.json"] {
        for command in [
            vec!["report", "found.json", "--output", output],
            vec!["report", "other.json", "link.json", "--output", output],
            vec!["compare", "found.json", "other.json", "--csv", output],
            vec!["compare", "other.json", "hard.json", "--csv", output],
        ] {
            let said = refused(&home, &command, 2);
            assert!(said.contains("is also an input"), "{command:?}: {said}");
            assert_eq!(fs::read(home.path().join("found.json")).unwrap(), before, "{command:?}");
        }
    }
}

#[test]
fn the_profile_that_is_used_is_never_the_output() {
    let home = Home::with_profile();
    let profile = home.profile();
    let before = fs::read(&profile).unwrap();
    for command in [
        arguments(&SHORT, &["--output", profile.to_str().unwrap()]),
        arguments(&SHORT, &["--csv", profile.to_str().unwrap()]),
        vec!["bench", "choice", "clear", "--csv", profile.to_str().unwrap()],
        vec!["report", "--output", profile.to_str().unwrap()],
    ] {
        let said = refused(&home, &command, 2);
        assert!(said.contains("contains measurements"), "{command:?}: {said}");
        assert_eq!(fs::read(&profile).unwrap(), before, "{command:?}");
    }
}

#[test]
fn measurements_are_replaced_only_by_measurements_of_their_kind() {
    let home = with_results();
    let results = fs::read(home.path().join("found.json")).unwrap();
    fs::write(home.path().join("other.json"), &results).unwrap();
    let profile = serde_json::to_vec(&crate::home::profile()).unwrap();
    fs::write(home.path().join("profile.json"), &profile).unwrap();
    for command in [
        arguments(&SHORT, &["--output", "profile.json"]),
        arguments(&SHORT, &["--csv", "profile.json"]),
        arguments(&SHORT, &["--csv", "other.json"]),
        vec!["bench", "choice", "clear", "--csv", "other.json"],
        vec!["report", "found.json", "--output", "other.json"],
        vec!["report", "found.json", "--output", "profile.json"],
        vec!["compare", "found.json", "found.json", "--csv", "other.json"],
    ] {
        let said = refused(&home, &command, 2);
        assert!(said.contains("contains measurements"), "{command:?}: {said}");
        assert_eq!(fs::read(home.path().join("other.json")).unwrap(), results, "{command:?}");
        assert_eq!(fs::read(home.path().join("profile.json")).unwrap(), profile, "{command:?}");
    }
    home.bulkmem().args(arguments(&SHORT, &["--output", "other.json"])).assert().success();
    assert_ne!(fs::read(home.path().join("other.json")).unwrap(), results);
}

#[test]
fn what_is_measured_is_never_the_output() {
    let home = Home::new();
    fs::write(home.path().join("data"), vec![7u8; 8 << 20]).unwrap();
    for command in [
        &["bench", "persist"][..],
        &["bench", "iops"],
        &["bench", "writecache"],
        &["bench", "log"],
        &["bench", "pollution", "--list", "4K"],
        &["reproduce"],
    ] {
        let one = ["iops", "writecache", "log"].contains(command.last().unwrap());
        let target = if one { "data" } else { "ram,data" };
        let arguments = ["--target", target, "--overwrite", "--output", "data"];
        let said = refused(&home, &[command, &arguments].concat(), 2);
        assert!(said.contains("is also an input"), "{said}");
    }
    assert_eq!(fs::read(home.path().join("data")).unwrap(), vec![7u8; 8 << 20]);
}

#[test]
fn two_outputs_are_two_files() {
    let home = Home::new();
    for (json, csv) in [("both", "both"), ("both", "./both")] {
        let said = refused(&home, &arguments(&SHORT, &["--output", json, "--csv", csv]), 2);
        assert!(said.contains("--output and --csv"), "{said}");
    }
    // A device takes both.
    home.bulkmem()
        .args(arguments(&SHORT, &["--output", "/dev/null", "--csv", "/dev/null"]))
        .assert()
        .success();
    assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn other_names_of_a_replaced_file_keep_the_old_content() {
    let home = with_results();
    fs::write(home.path().join("old"), "old").unwrap();
    fs::hard_link(home.path().join("old"), home.path().join("kept")).unwrap();
    home.bulkmem().args(["report", "found.json", "--output", "old"]).assert().success();
    assert_eq!(fs::read_to_string(home.path().join("kept")).unwrap(), "old");
    assert!(fs::read_to_string(home.path().join("old")).unwrap().starts_with("<!DOCTYPE"));
}

#[test]
fn a_file_that_is_a_mount_point_is_refused_before_any_work() {
    let home = with_results();
    for name in ["mounted", "below"] {
        fs::write(home.path().join(name), "old").unwrap();
    }
    let script = r#"mount --bind below mounted || exit 77; "$0" report found.json --output mounted"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_bulkmem")]);
    let output = command.current_dir(home.path()).stdin(Stdio::null()).output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare") => output,
        other => {
            println!("skipped: output to a mount point: nothing can be mounted here: {other:?}");
            return;
        }
    };
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("is a mount point"), "{said}");
    assert_eq!(fs::read_to_string(home.path().join("below")).unwrap(), "old");
}

#[test]
fn manual_pages_follow_links_and_replace_whole_files() {
    let home = Home::new();
    fs::write(home.path().join("target"), "old").unwrap();
    symlink("target", home.path().join("bulkmem.1")).unwrap();
    symlink("nowhere", home.path().join("bulkmem-info.1")).unwrap();
    let assert = home.bulkmem().args(["man", "--output", "."]).assert().code(1);
    assert.stderr(contains("bulkmem-info.1").and(contains("does not exist")).and(contains("\nhelp: ")));
    fs::remove_file(home.path().join("bulkmem-info.1")).unwrap();
    home.bulkmem().args(["man", "--output", "."]).assert().success();
    assert!(home.path().join("bulkmem.1").is_symlink());
    assert!(fs::read_to_string(home.path().join("target")).unwrap().contains(".TH"));
}
