//! Arguments, exit codes, streams that go away.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;

use predicates::prelude::*;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

#[test]
fn help_names_every_command_the_variables_and_the_exit_codes() {
    let text = Home::new().text(&["help"], 80);
    for word in [
        "calibrate",
        "bench",
        "info",
        "explain",
        "methods",
        "reproduce",
        "report",
        "run",
        "tunables",
        "prefault",
        "kmod",
        "completions",
        "man",
    ] {
        assert!(text.contains(&format!("\n  {word} ")), "{word}\n{text}");
    }
    for word in ["BULKMEM_METHOD", "BULKMEM_PROFILE", "NO_COLOR", "130  interrupted"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
    assert_fits(&text, 80);
}

#[test]
fn bad_arguments_exit_with_2_and_say_what_would_do() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage: bulkmem"),
        (&["calibarte"], "similar subcommand exists: 'calibrate'"),
        (&["explain", "--op", "clear"], "--size <SIZE>"),
        (&["explain", "--size", "4K"], "--op <OPERATION>"),
        (&["explain", "--intent", "stream"], "--op <OPERATION>"),
        (&["explain", "--threads", "2"], "--op <OPERATION>"),
        (
            &["explain", "--op", "wipe", "--size", "4K"],
            "clear, fill, copy, fill_persist, copy_persist, persist",
        ),
        (&["explain", "--op", "clear", "--size", "4X"], "write 4096, 4K, 256M or 1.5G"),
        (&["explain", "--op", "clear", "--size", "0"], "at least 1 byte"),
        (&["explain", "--op", "clear", "--size", "1G", "--threads", "0"], "or `auto`"),
        (&["explain", "--op", "clear", "--size", "1G", "--intent", "soon"], "throughput, reuse, stream"),
        (&["methods", "--op", "wipe"], "clear, fill, copy, fill_persist, copy_persist, persist"),
        (&["completions", "cobol"], "bash"),
        (&["report", "--format", "pdf"], "markdown"),
        (&["calibrate", "--quick", "--thorough"], "cannot be used with"),
        (&["calibrate", "--output", "x", "--system"], "cannot be used with"),
        (&["calibrate", "--budget", "soon"], "--budget"),
        (&["calibrate", "--budget", "1ms"], "error: --budget: less than"),
        (&["tunables", "--budget", "1ms"], "error: --budget: less than"),
        (&["calibrate", "--op", "clear,clear"], "error: --op: clear is given twice"),
        (&["calibrate", "--max-size", "2T"], "error: --max-size: "),
        (&["bench", "choice", "clear", "--size", "4K,2T"], "error: --size: "),
        (&["bench"], "Usage"),
        (&["bench", "wipe"], "unrecognized subcommand"),
        (&["bench", "clear", "--size", "1M-4K"], "empty range"),
        (&["bench", "clear", "--size=-1"], "`-1` is not a size: a size is never negative"),
        (&["explain", "--op", "clear", "--size=-1"], "`-1` is not a size: it is negative"),
        (&["bench", "clear", "--size", "1.5"], "`1.5` is not a size: it is not a whole number of bytes"),
        (&["bench", "choice", "clear", "--threads", "0"], "--threads"),
        (&["bench", "choice", "clear", "--method", "nosuch"], "unknown method `nosuch`"),
        (&["bench", "choice", "persist", "--method", "c_library"], "does not support persist"),
        (&["bench", "choice", "clear", "--source", "warm"], "error: --source: clear has no source"),
        (&["bench", "choice", "copy", "--source", "fresh"], "cold, warm"),
        (&["bench", "choice", "clear", "--page-size", "2M"], "error: --page-size: 2M pages are not compared"),
        (&["explain", "--op", "flush", "--size", "4K"], "invalid value 'flush'"),
        (&["bench", "targets", "--max-size", "64"], "256 bytes"),
        (&["run"], "<PROGRAM>"),
        (&["run", "--libpmem"], "<PROGRAM>"),
        (&["run", "--json", "--", "true"], "--histogram"),
        (&["run", "--output", "x", "--", "true"], "--histogram"),
        (&["run", "--histogram", "--libpmem", "--", "true"], "cannot be used with"),
        (&["run", "--libpmem", "true"], "unexpected argument"),
    ];
    let home = Home::new();
    for (arguments, says) in cases {
        home.bulkmem().args(*arguments).assert().code(2).stdout("").stderr(contains(*says));
    }
    assert!(!home.profile().exists());
}

#[test]
fn counters_are_refused_where_nothing_is_counted() {
    let home = Home::new();
    for (arguments, reason) in [
        (&["fork"][..], "forks run in the kernel"),
        (&["iops", "--size", "1M"], "other threads read"),
        (&["pollution"], "the walk of a list"),
        (&["log"], "times single writes"),
        (&["threshold"], "re-reads what was written"),
        (&["clear", "--threads", "2"], "only one thread is counted"),
        (&["vm", "--threads", "2"], "only one thread is counted"),
        (&["choice", "clear", "--threads", "2"], "only one thread is counted"),
    ] {
        let assert = home.bulkmem().arg("bench").args(arguments).arg("--counters").assert();
        let says = contains("error: --counters would count nothing here: ").and(contains(reason));
        assert.code(2).stdout("").stderr(says.and(contains("help: clear, fill, copy, chunks")));
    }
}

#[test]
fn a_bad_forced_method_is_refused_with_its_cause_and_a_remedy() {
    let cases = [
        ("clear:nosuch", "unknown method `nosuch`"),
        ("wipe:movnti", "unknown operation `wipe`"),
        ("movnti", "not of the form"),
        ("clear:c_library,clear:portable", "twice"),
        ("persist:c_library", "does not support persist"),
        ("flush:c_library", "unknown operation `flush`"),
    ];
    for (value, says) in cases {
        for command in
            [&["info"][..], &["explain", "--op", "clear", "--size", "4K"], &["bench", "choice", "clear"]]
        {
            let home = Home::new();
            let assert = home.bulkmem().args(command).env("BULKMEM_METHOD", value).assert();
            let says = contains("error: BULKMEM_METHOD is").and(contains(says)).and(contains("\nhelp: "));
            assert.code(2).stdout("").stderr(says);
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for arguments in
        [&["methods"][..], &["methods", "--json"], &["info"], &["help"], &["completions", "bash"], &["man"]]
    {
        let home = Home::new();
        let mut child = home
            .spawnable()
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let mut complaints = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert_eq!((child.wait().unwrap().code(), complaints.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_behind_stdout_is_a_failure() {
    let full = match OpenOptions::new().write(true).open("/dev/full") {
        Ok(full) => full,
        Err(error) => {
            println!("skipped: a full disk under standard output: /dev/full: {error}");
            return;
        }
    };
    let home = Home::new();
    let full = || Stdio::from(File::try_clone(&full).unwrap());
    for arguments in [&["methods"][..], &["info", "--json"], &["completions", "zsh"], &["man"]] {
        let output = home.spawnable().args(arguments).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert!(complaints.contains("error: cannot write the output: No space left"), "{complaints}");
    }
}

#[test]
fn colours_are_for_terminals() {
    let home = Home::new();
    home.bulkmem().arg("methods").assert().success().stdout(contains('\u{1b}').not());
    let forced = home.bulkmem().arg("methods").env("CLICOLOR_FORCE", "1").assert().success();
    forced.stdout(contains('\u{1b}'));
    let neither =
        home.bulkmem().arg("methods").env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").assert().success();
    neither.stdout(contains('\u{1b}').not());
}
