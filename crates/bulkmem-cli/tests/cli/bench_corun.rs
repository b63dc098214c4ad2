//! `bulkmem bench corun`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{self, Stdio};
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
        for name in ["written_gb", "rate", "busy_percent"] {
            assert_eq!(row["also"][name].is_number(), background, "{name} of {row}");
        }
    }
}

#[test]
fn the_kernel_clears_too_and_without_a_limit() {
    let large =
        ["bench", "corun", "--size", "4M", "--method", "portable", "--runs", "1", "--clearing", "kernel"];
    let home = Home::new();
    let text = home.text(&[&large[..], &["--rate", "0.5,max", "--", "sleep", "0.02"]].concat(), 80);
    assert_fits(&text, 80);
    for words in ["next to 0.5 GB/s of clearing, 2 MiB", "next to unlimited clearing, 2 MiB"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert_eq!(text.matches("\nkernel: 4K pages ").count(), 2, "{text}");
    assert_eq!(text.matches("\nkernel: 2M pages ").count(), 2, "{text}");
}

#[test]
fn other_operations_run_in_the_background() {
    let home = Home::new();
    let copy = ["--op", "copy", "--json", "--", "sleep", "0.02"];
    let found = home.json(&[&SHORT[..], &copy].concat());
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["config"]["operation"] == "copy"), "{rows:?}");
    assert!(
        found["findings"][0]["text"].as_str().unwrap().starts_with("Next to 0.1 GB/s of copying, `sleep`")
    );
}

/// The misses are those of the command, where the processor counts them.
#[test]
fn misses_are_counted_or_a_note_says_why_not() {
    let counted = ["--counters", "--json", "--", "sleep", "0.02"];
    let found = Home::new().json(&[&SHORT[..], &counted].concat());
    let rows = found["rows"].as_array().unwrap();
    let counts = |name: &str| rows.iter().any(|row| row["also"][name].is_number());
    let why =
        |note: &serde_json::Value| note.as_str().unwrap().contains("hardware counters are not available");
    let refused = found["notes"].as_array().unwrap().iter().any(why);
    assert_ne!(counts("cache_misses") || counts("llc_load_misses"), refused, "{found}");
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
        (&["--builtin", "--rate", "fast"], "write a number of GB/s, or max"),
        (&["--builtin", "--op", "persist"], "writes nothing new"),
        (&["--builtin", "--op", "copy", "--clearing", "kernel"], "the kernel only clears"),
        (&["--builtin", "--clearing", "kernel", "--chunk", "64K"], "a multiple of 2M"),
        (&["--builtin", "--clearing", "kernel"], "name a command: bulkmem bench corun --clearing kernel --"),
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

/// The recipe, with a folder in place of the sources of Linux, and without the tools that only those need.
#[test]
fn the_recipe_measures_a_build() {
    if process::Command::new("make").arg("--version").output().is_err() {
        eprintln!("skipped: the recipe of a kernel build: make is not installed");
        return;
    }
    let home = Home::new();
    let (linux, tools) = (home.path().join("kernel-build/linux"), home.path().join("tools"));
    fs::create_dir_all(linux.join("part")).unwrap();
    fs::create_dir(&tools).unwrap();
    fs::write(linux.join(".config"), "").unwrap();
    let rules =
        ".PHONY: prepare part/\nprepare:\n\ttouch prepared\npart/:\n\ttouch part/a.o && echo >> built\n";
    fs::write(linux.join("Makefile"), rules).unwrap();
    for tool in ["gcc", "flex", "bison", "bc", "xz"] {
        fs::write(tools.join(tool), "#!/bin/sh\n").unwrap();
        fs::set_permissions(tools.join(tool), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut recipe =
        process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/kernel-build.sh"));
    recipe.envs(home.spawnable().get_envs().filter_map(|(name, value)| Some((name, value?))));
    recipe.env("PATH", format!("{}:{}", tools.display(), std::env::var("PATH").unwrap()));
    recipe.env("CARGO_TARGET_DIR", home.path()).env("PARTS", "part/");
    recipe.env("BULKMEM", env!("CARGO_BIN_EXE_bulkmem"));
    let output = recipe.args(["--runs", "1", "--size", "4M"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("kernel: 4K pages") && text.contains("A kernel build takes less time"), "{text}");
    // A warm-up and a run next to each of 7, at both rates.
    let built = fs::read_to_string(linux.join("built")).unwrap();
    assert_eq!((built.lines().count(), linux.join("prepared").exists()), (2 * 2 * 7, true));
}

#[test]
fn help_says_what_it_shows_how_to_read_it_and_its_source() {
    let text = Home::new().text(&["bench", "corun", "--help"], 80);
    for words in ["How to read it", "Source: Ankur Arora", "-- make -j2", "JSON: "] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{words}\n{text}");
    }
    assert_fits(&text, 80);
}
