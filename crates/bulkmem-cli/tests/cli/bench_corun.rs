//! `bulkmem bench corun`.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SHORT: [&str; 14] = [
    "bench",
    "corun",
    "--rate",
    "0.1,0.2",
    "--size",
    "1M",
    "--chunk",
    "64K",
    "--page-size",
    "4K",
    "--method",
    "portable",
    "--runs",
    "5",
];

#[test]
fn a_command_runs_next_to_each_candidate_and_the_controls() {
    for columns in [80, 160] {
        let text = Home::new().text(&[&SHORT[..], &["--", "sleep", "0.02"]].concat(), columns);
        assert_fits(&text, columns as usize);
        for word in [
            "next to 0.1 GB/s of clearing, 64 KiB at a time",
            "next to 0.2 GB/s of clearing, 64 KiB at a time",
            "\n(alone) ",
            "\n(same processor time) ",
            "\nthe policy's choice, stream ",
            "\nportable ",
            "not distinguishable here",
            "`sleep`",
        ] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
    let found = Home::new().json(&[&SHORT[..], &["--json", "--", "sleep", "0.02"]].concat());
    assert_eq!(found["command"].as_array().unwrap().last().unwrap(), "0.02");
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 4);
    for row in rows {
        assert_eq!(row["metric"], "seconds");
        assert!(row["also"]["user_s"].is_number() && row["also"]["system_s"].is_number(), "{row}");
        let background = row["candidate"]["name"] != "alone";
        for name in ["cleared_gb", "rate", "busy_percent"] {
            assert_eq!(row["also"][name].is_number(), background, "{name} of {row}");
        }
    }
}

#[test]
fn a_walk_of_our_own_stands_in_for_a_command() {
    let one = ["--runs", "1", "--rate", "0.1", "--builtin", "--same-cpu"];
    let text = Home::new().text(&[&SHORT[..2], &SHORT[4..12], &one].concat(), 80);
    assert!(text.contains("\nportable ") && text.contains("too few runs to tell"), "{text}");
    assert!(text.contains("1 runs are too few to tell anything from the control: --runs 5"), "{text}");
}

#[test]
fn what_the_command_says_is_shown_when_asked_for_only() {
    let home = Home::new();
    let command = ["--", "sh", "-c", "echo out; echo err >&2"];
    let run = |more: &[&str]| home.bulkmem().args(SHORT).args(more).args(command).assert().success();
    run(&[]).stderr(contains("\nout\n").not().and(contains("\nerr\n").not()));
    run(&["--show-output"])
        .stderr(contains("\nout\n").and(contains("\nerr\n")))
        .stdout(contains("\nout\n").not());
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    let home = Home::new();
    for (arguments, message) in [
        (&[][..], "bulkmem bench corun -- make -j2"),
        (&["--", "no-such-program"], "error: -- COMMAND: cannot start `no-such-program`"),
        (&["--builtin", "--", "true"], "cannot be used with"),
        (&["--builtin", "--rate", "0"], "error: --rate: "),
        (&["--builtin", "--rate", "fast"], "--rate"),
        (&["--builtin", "--chunk", "2M", "--size", "1M"], "error: --chunk: "),
        (&["--builtin", "--method", "nosuch"], "nosuch"),
    ] {
        let assert = home.bulkmem().args(["bench", "corun"]).args(arguments).assert().code(2);
        assert.stderr(contains(message)).stdout("");
    }
    let fails = home.bulkmem().args(SHORT).args(["--", "sh", "-c", "exit 7"]).assert().code(1).stdout("");
    fails.stderr(contains("exit status: 7").and(contains("run it separately")));
}

/// Measurements are kept, and neither the command nor its children survive.
#[test]
fn an_interrupt_ends_the_command_and_keeps_what_was_measured() {
    let home = Home::new();
    let script = "echo >> runs; test $(wc -l < runs) -lt 24 && exit; sleep 60 & echo $! > started; wait";
    let mut child = home
        .spawnable()
        .args(SHORT)
        .args(["--output", "found.json", "--json", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = home.path().join("started");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&started).is_ok_and(|text| text.ends_with('\n')) {
        assert!(Instant::now() < deadline, "the command is not started");
        sleep(Duration::from_millis(10));
    }
    // SAFETY: it sends a signal to a child of ours that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let found: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(home.path().join("found.json")).unwrap()).unwrap();
    assert_eq!(found["complete"], false);
    // Of the first rate, whose 6 rounds of 4 had one run to go.
    assert_eq!(found["rows"].as_array().unwrap().len(), 4);
    let id = fs::read_to_string(started).unwrap();
    let state = || fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
    let gone = (0..500).any(|_| {
        sleep(Duration::from_millis(10));
        let state = state();
        !state.contains("(sleep)") || state.contains(") Z ")
    });
    assert!(gone, "{}", state());
}

#[test]
fn help_says_what_it_shows_how_to_read_it_and_its_source() {
    let text = Home::new().text(&["bench", "corun", "--help"], 80);
    for words in ["How to read it", "Source: Ankur Arora", "-- make -j2", "JSON: "] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{words}\n{text}");
    }
    assert_fits(&text, 80);
}
