//! `bulkmem bench writecache` and `log`.
#![cfg(target_arch = "x86_64")]

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SHORT: [&str; 6] = ["--size", "1M", "--runs", "2", "--time", "1ms"];

fn arguments<'a>(measurement: &'a str, further: &[&'a str]) -> Vec<&'a str> {
    [&["bench", measurement], &SHORT[..], further].concat()
}

#[test]
fn the_tables_fit_and_name_everybody() {
    for (measurement, heading) in [
        ("writecache", "writecache, blocks of 4 KiB, 30 % reads, a commit for each 64: 1 MiB of ram"),
        ("log", "log, records of 256 B, a commit for each 8: 1 MiB of ram"),
    ] {
        for columns in [80, 160] {
            let text = Home::new().text(&arguments(measurement, &[]), columns);
            assert_fits(&text, columns as usize);
            let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let words = ["IOPS", "p50", "p99.9", "movnti_4", "store_8_clflush", "the policy's choice", "*"];
            for word in [&[heading], &words[..]].concat() {
                assert!(plain.contains(word), "{word}\n{text}");
            }
        }
    }
}

#[test]
fn rows_are_those_asked_for() {
    let methods = ["--method", "movnti,store_8_clflush", "--peers", "none", "--json"];
    let cache = ["--block", "512,4K", "--read-share", "70", "--group", "8"];
    let found = Home::new().json(&[arguments("writecache", &methods), cache.to_vec()].concat());
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "the policy and two methods, by two blocks");
    assert!(rows.iter().all(|row| row["config"]["mix"] == 70 && row["config"]["group"] == 8));
    let log = ["--record", "100", "--group", "1,3"];
    let found = Home::new().json(&[arguments("log", &methods), log.to_vec()].concat());
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "the policy and two methods, by two groups");
    for row in rows {
        assert_eq!((&row["metric"], &row["config"]["chunk"]), (&"iops".into(), &100.into()));
        assert!(row["config"]["mix"].is_null() && row["also"]["p999_ns"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_file_is_written_only_with_leave() {
    let home = Home::new();
    let path = home.path().join("there");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let target = ["--target", "there", "--peers", "none", "--method", "movnti"];
    for measurement in ["writecache", "log"] {
        let refused = home.bulkmem().args(arguments(measurement, &target)).assert().code(1);
        refused.stderr(contains("would be overwritten").and(contains("--overwrite")));
        assert_eq!(std::fs::read(&path).unwrap(), [7; 1 << 20]);
    }
    for measurement in ["writecache", "log"] {
        let said = home.text(&arguments(measurement, &[&target[..], &["--overwrite"]].concat()), 80);
        assert!(said.contains("MAP_SYNC"), "{said}");
    }
    assert_ne!(std::fs::read(&path).unwrap(), [7; 1 << 20]);
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    let home = Home::new();
    for (given, code, message) in [
        (&["writecache", "--block", "100"][..], 2, "--block: 100 bytes are not whole cache lines"),
        (&["writecache", "--mix", "101"], 2, "101"),
        (&["log", "--record", "4"], 2, "--record: shorter records do not hold their number; give 8 or more"),
        (&["log", "--group", "0"], 2, "--group: groups of 0 are never committed; give 1 or more"),
        (&["log", "--time", "1m"], 2, "and more --runs"),
        (&["log", "--method", "rep_movsb"], 2, "rep_movsb"),
        (&["writecache", "--group", "1000"], 1, "are too small"),
    ] {
        let assert =
            home.bulkmem().args(["bench", given[0], "--size", "1M"]).args(&given[1..]).assert().code(code);
        assert.stdout("").stderr(contains(message));
    }
}

#[test]
fn help_names_the_source_and_the_fields() {
    for (measurement, words) in [
        ("writecache", &["dm-writecache", "Patocka", "p999_ns", "--read-share"][..]),
        ("log", &["MOVNTI", "p999_ns", "--record", "--overwrite"]),
    ] {
        let text = Home::new().text(&["bench", measurement, "--help"], 100);
        for word in words {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
}
