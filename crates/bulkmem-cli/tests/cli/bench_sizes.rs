//! `bulkmem bench clear`, `fill` and `copy`, and what all measurements have in common.

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SHORT: [&str; 8] = ["bench", "clear", "--size", "64K,1M", "--method", "portable", "--runs", "3"];

#[test]
fn the_table_fits_and_names_everybody() {
    for columns in [80, 160] {
        let text = Home::new().text(&SHORT, columns);
        assert_fits(&text, columns as usize);
        for word in ["the policy's choice", "portable", "(reading)", "64 KiB", "1 MiB", "GB/s", "±"] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
}

#[test]
fn results_are_saved_as_json_and_as_comma_separated_values() {
    let home = Home::new();
    let files = ["--output", "found.json", "--csv", "found.csv"];
    home.bulkmem().args([&SHORT[..], &files].concat()).assert().success();
    let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    let found: serde_json::Value = serde_json::from_str(&read("found.json")).unwrap();
    assert_eq!((&found["format"], &found["version"]), (&"bulkmem-results".into(), &2.into()));
    assert_eq!(found["complete"], true);
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["samples"].as_array().unwrap().len() == 3));
    let csv = read("found.csv");
    assert_eq!(csv.lines().count(), rows.len() + 1);
    assert!(csv.starts_with("measurement,kind,name,parameters,operation,size,"), "{csv}");
    let printed = home.bulkmem().args([&SHORT[..], &["--csv", "-"]].concat()).assert().success();
    let printed = String::from_utf8(printed.get_output().stdout.clone()).unwrap();
    assert_eq!(printed.lines().next(), csv.lines().next());
}

#[test]
fn a_file_that_cannot_be_written_is_found_out_before_measuring() {
    let home = Home::new();
    for option in ["--output", "--csv"] {
        let assert = home.bulkmem().args([&SHORT[..], &[option, "no/such/found"]].concat()).assert().code(1);
        assert.stderr(contains("cannot write no/such/found").and(contains("help:")));
    }
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    let home = Home::new();
    for (arguments, message) in [
        (&["--size", "100T"][..], "of memory"),
        (&["--page-size", "8K"], "it has 4K"),
        (&["--page-size", "often"], "4K, thp, 2M or 1G"),
        (&["--method", "nosuch"], "unknown method `nosuch`"),
        (&["--runs", "0"], "--runs"),
        (&["--peers", "some"], "none"),
        (
            &["--baseline", "nosuch"],
            "--baseline: `nosuch` takes no part; name another method, or one of `policy`",
        ),
        (&["--chunk", "1G", "--size", "1M"], "--chunk: 1073741824 bytes are not from 1 to the smallest size"),
        (&["--threads", "0"], "--threads"),
        (&["--threads", "5000"], "--threads: 5000 is not from 1 to 1024"),
        (&["--offset", "4096"], "--offset"),
        (&["--method", "movnti,write_prefetch_avx512[a"], "a bracket is not closed"),
    ] {
        let assert = home.bulkmem().args(["bench", "clear"]).args(arguments).assert().failure();
        assert.stderr(contains(message)).stdout("");
    }
}

#[test]
fn speed_ups_are_said_against_whom_one_names_and_the_choice_is_named() {
    let text = Home::new().text(&[&SHORT[..], &["--baseline", "policy"]].concat(), 80);
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    let speed_ups = text.split("speed-up").nth(1).expect("speed-ups");
    let policy = speed_ups.lines().find(|line| line.starts_with("the policy's choice")).unwrap();
    assert_eq!(policy.matches("+0.0%").count(), 2, "{text}");
    assert!(text.contains("Speed-ups are by medians, over policy."), "{text}");
    assert!(line("The policy's choice: ").len() > "The policy's choice: ".len(), "{text}");
    assert!(text.contains("kernel: first touch") && text.contains("c_library"), "{text}");
}

#[test]
fn commas_in_brackets_belong_to_the_method() {
    let home = Home::new();
    // What a comma cuts off would be an unknown method; what it does not is a tunable that portable lacks.
    let arguments = ["bench", "fill", "--size", "64K", "--method", "c_library,portable[a=1,b=2]"];
    home.bulkmem()
        .args(arguments)
        .assert()
        .code(2)
        .stderr(contains("portable[a=1,b=2]: ").and(contains("tunable `a`")));
}

#[test]
fn what_was_asked_for_is_in_the_configurations() {
    let home = Home::new();
    let results = home.json(&[
        "bench",
        "copy",
        "-s",
        "64K",
        "-k",
        "4K",
        "-l",
        "2",
        "-p",
        "4K",
        "-f",
        "portable",
        "--threads",
        "1,2",
        "--zeros",
        "--offset",
        "16",
        "--peers",
        "none",
        "--runs",
        "1",
        "--json",
    ]);
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{rows:?}");
    for row in rows {
        let config = &row["config"];
        assert_eq!((&config["chunk"], &config["offset"]), (&4096.into(), &16.into()));
        assert_eq!((&config["page_size"], &config["content"]), (&"4K".into(), &"zeros".into()));
        assert_eq!(row["chosen"].is_string(), row["candidate"]["kind"] == "policy");
    }
    let bytes = home.bulkmem().args(["bench", "fill", "--byte", "0x1ff"]).assert().code(2);
    bytes.stderr(contains("0 to 255, or 0x00 to 0xff"));
}

#[test]
fn a_single_run_has_no_deviation_and_concludes_nothing() {
    let home = Home::new();
    let text = home.text(&["bench", "clear", "--size", "64K", "--method", "portable", "--runs", "1"], 100);
    assert!(text.starts_with("clear: GB/s, one run of each"), "{text}");
    assert!(text.contains("±?") && !text.contains("±0.0"), "{text}");
    assert!(!text.contains("the policy's choice runs at"), "{text}");
    assert!(text.contains("Note: each figure is a single sample"), "{text}");
    let home = Home::new();
    let arguments =
        ["bench", "reuse", "--size", "4K", "--share", "0,100", "--footprint", "64K", "--runs", "1"];
    let text = home.text(&arguments, 100);
    assert!(
        text.contains("Note: each figure is a single sample") && !text.contains("caching pays, by size"),
        "{text}"
    );
}
