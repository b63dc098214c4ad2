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
    assert_eq!((&found["format"], &found["version"]), (&"bulkmem-results".into(), &1.into()));
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
        (&["--size", "100T"][..], "bytes of memory"),
        (&["--page-size", "8K"], "it has 4K"),
        (&["--page-size", "often"], "4K, thp, 2M or 1G"),
        (&["--method", "nosuch"], "unknown method `nosuch`"),
        (&["--runs", "0"], "--runs"),
        (&["--peers", "some"], "none"),
    ] {
        let assert = home.bulkmem().args(["bench", "clear"]).args(arguments).assert().failure();
        assert.stderr(contains(message)).stdout("");
    }
}
