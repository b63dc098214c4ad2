//! `bulkmem bench fork`.

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{HUGE_PAGES, Home, assert_fits};

const SMALL: [&str; 10] =
    ["bench", "fork", "--size", "8K,64K", "--loops", "3", "--method", "portable", "--runs", "2"];

#[test]
fn the_tables_fit_and_show_times_and_pages() {
    for columns in [80, 160] {
        let text = Home::new().text(&SMALL, columns);
        assert_fits(&text, columns as usize);
        for word in [
            "microseconds",
            "child writes",
            "parent writes",
            "per page",
            "8 KiB",
            "64 KiB",
            "first touch",
            "the policy's choice",
            "portable",
            "pages copied past the cache",
            "±",
        ] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
}

#[test]
fn json_has_the_pages_counted() {
    let found = Home::new().json(&[&SMALL[..], &["--json"]].concat());
    let rows = found["rows"].as_array().unwrap();
    for (name, factor) in [("fork, child writes", 1.0), ("fork, parent writes", 1.0), ("fork alone", 0.0)] {
        for size in [8192, 65536] {
            let row = rows
                .iter()
                .find(|row| row["candidate"]["name"] == name && row["config"]["size"] == size)
                .unwrap_or_else(|| panic!("{name} {size}"));
            assert_eq!(row["metric"], "nanoseconds");
            let Some(copied) = row["also"]["buffer_pages_copied"].as_f64() else {
                let notes = found["notes"].to_string();
                assert!(notes.contains("not counted: not available"), "{notes}");
                println!("skipped: pages counted around a fork: {notes}");
                return;
            };
            let page = bulkmem::machine::Machine::current().page_size as f64;
            assert_eq!(copied, f64::from(size) / page * factor, "{name} {size}");
            assert!(row["also"]["pages_copied"].as_f64() >= Some(copied));
        }
    }
}

/// On a machine without free huge pages that may not reserve some, the error says how many are needed and what to do.
#[test]
fn huge_pages_are_counted_whole_or_refused_with_a_remedy() {
    let _guard = HUGE_PAGES.lock();
    let home = Home::new();
    let arguments =
        ["bench", "fork", "--huge", "--loops", "1", "--method", "portable", "--runs", "2", "--json"];
    let output = home.bulkmem().args(arguments).args(["--size", "2M"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let remedies = ["nr_hugepages", "this kernel has no huge pages", "hugepages="];
        assert!(remedies.iter().any(|remedy| said.contains(remedy)), "{said}");
        assert!(output.stdout.is_empty());
        println!("skipped: copies of huge pages: {said}");
        return;
    }
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = found["rows"].as_array().unwrap();
    for (name, copied) in [("fork, child writes", 1.0), ("fork, parent writes", 1.0), ("fork alone", 0.0)] {
        let row = rows.iter().find(|row| row["candidate"]["name"] == name).unwrap();
        assert_eq!(row["config"]["page_size"], "2M");
        if let Some(pages) = row["also"]["buffer_pages_copied"].as_f64() {
            assert_eq!(pages, copied, "{name}");
        }
    }
    let refused = home.bulkmem().args(arguments).args(["--size", "64K"]).assert().failure();
    refused.stderr(contains("--size: 65536 bytes are not a whole number of pages"));
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    let home = Home::new();
    for (arguments, message) in [
        (&["--size", "5000"][..], "--size: 5000 bytes are not a whole number of pages"),
        (&["--size", "100T"], "available"),
        (&["--loops", "0"], "--loops"),
        (&["--method", "nosuch"], "unknown method `nosuch`"),
    ] {
        let assert = home.bulkmem().args(["bench", "fork"]).args(arguments).assert().failure();
        assert.stderr(contains(message)).stdout("");
    }
}

#[test]
fn help_says_what_it_counts_and_where_it_comes_from() {
    let assert = Home::new().bulkmem().args(["bench", "fork", "--help"]).assert().success();
    assert.stdout(contains("Denis Vlasenko").and(contains("pagemap")).and(contains("buffer_pages_copied")));
}
