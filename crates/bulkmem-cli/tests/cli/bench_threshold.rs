//! `bulkmem bench threshold`.

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SMALL: [&str; 6] = ["bench", "threshold", "--longest", "256K", "--runs", "2"];

#[test]
fn the_tables_fit_and_have_every_length() {
    for columns in [80, 160] {
        let text = Home::new().text(&SMALL, columns);
        assert_fits(&text, columns as usize);
        for word in
            ["memset by length", "memcpy by length", "32 KiB", "256 KiB", "not in cache", "walk after"]
        {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
}

#[test]
fn json_has_speed_cache_and_neighbour() {
    let found = Home::new().json(&[&SMALL[..], &["--op", "copy", "--json"]].concat());
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.len() >= 4, "{rows:?}");
    for row in rows {
        assert_eq!((&row["measurement"], &row["config"]["operation"]), (&"threshold".into(), &"copy".into()));
        assert!(row["also"]["walk_percent"].as_f64().unwrap() > 0.0, "{row}");
        if cfg!(target_arch = "x86_64") {
            let uncached = row["also"].get("uncached_percent").map(|it| it.as_f64().unwrap());
            assert!(uncached.is_none_or(|it| (0.0..=100.0).contains(&it)), "{row}");
        }
    }
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    for (arguments, message) in [
        (&["--op", "fill"][..], "[possible values: clear, copy]"),
        (&["--longest", "1K"], "--longest: 1024 bytes are less than 32 KiB"),
        (&["--runs", "0"], "--runs"),
    ] {
        let assert = Home::new().bulkmem().args(["bench", "threshold"]).args(arguments).assert().failure();
        assert.stderr(contains(message)).stdout("");
    }
}

#[test]
fn help_names_the_sources_and_the_tunables() {
    let assert = Home::new().bulkmem().args(["bench", "threshold", "--help"]).assert().success();
    assert.stdout(contains("Patocka").and(contains("Arora")).and(contains("x86_non_temporal_threshold")));
}
