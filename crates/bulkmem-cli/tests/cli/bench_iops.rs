//! `bulkmem bench iops`.

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SHORT: [&str; 10] =
    ["bench", "iops", "--working-set", "1M", "--runs", "2", "--time", "2ms", "--threads", "1,2"];

#[test]
fn the_tables_fit_and_name_everybody() {
    for columns in [80, 160] {
        let text = Home::new().text(&SHORT, columns);
        assert_fits(&text, columns as usize);
        for word in [
            "iops, random reads of 4 KiB, 1 thread: 1 MiB of ram (wb)",
            "iops, random writes of 4 KiB, 2 threads: 1 MiB of ram (wb)",
            "iops, random, 70 % reads of 4 KiB, 2 threads: 1 MiB of ram (wb)",
            "IOPS",
            "p99.99",
            "c_library",
            "the policy's choice",
            "(reading)",
            "±",
            "*",
        ] {
            assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(word), "{word}\n{text}");
        }
    }
}

#[test]
fn percentiles_rise_in_every_row() {
    let arguments = ["--method", "c_library", "--block", "512,4K", "--mix", "50", "--json"];
    let found = Home::new().json(&[&SHORT[..], &arguments].concat());
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.len() >= 24, "two blocks, three directions, two numbers of threads, two and more subjects");
    for row in rows {
        assert_eq!(row["metric"], "iops");
        let latencies =
            ["p50_ns", "p99_ns", "p999_ns", "p9999_ns"].map(|key| row["also"][key].as_f64().unwrap());
        assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{row}");
        assert_eq!(row["config"]["mix"].is_null(), row["config"]["direction"] != "mixed");
        assert!(row["config"]["mix"].is_null() || row["config"]["mix"] == 50);
    }
}

#[test]
fn a_file_is_read_without_leave_and_written_only_with_it() {
    let home = Home::new();
    let content: Vec<u8> = (0..1u32 << 20).map(|index| (index % 249) as u8).collect();
    let path = home.path().join("there");
    std::fs::write(&path, &content).unwrap();
    let target = ["--target", "there", "--peers", "none", "--method", "portable"];
    home.text(&[&SHORT[..], &target, &["--direction", "read"]].concat(), 80);
    let refused = home.bulkmem().args(SHORT).args(target).assert().code(1);
    refused.stderr(contains("would be overwritten").and(contains("--overwrite")));
    assert_eq!(std::fs::read(&path).unwrap(), content);
    home.text(&[&SHORT[..], &target, &["--overwrite"]].concat(), 80);
    assert_ne!(std::fs::read(&path).unwrap(), content);
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    let home = Home::new();
    for (arguments, message) in [
        (&["--block", "100"][..], "--block: 100 bytes are not whole cache lines"),
        (&["--mix", "101"], "101"),
        (&["--threads", "0"], "--threads"),
        (&["--threads", "5000"], "--threads: 5000 is not from 1 to 1024 threads"),
        (&["--time", "1m"], "and more --runs"),
        (&["--direction", "sideways"], "mixed"),
        (&["--method", "nosuch"], "nosuch"),
    ] {
        let assert = home.bulkmem().args(["bench", "iops", "--working-set", "1M"]).args(arguments).assert();
        assert.code(2).stderr(contains(message)).stdout("");
    }
}

/// Returns true if this machine has the kernel module, and this user may use its device.
fn module_is_there(what: &str) -> bool {
    let there = bulkmem_kmod::BulkHint::available();
    if let Err(error) = &there {
        println!("skipped: {what}: {error}");
    }
    there.is_ok()
}

#[test]
fn memory_of_other_attributes_is_the_modules_and_without_it_the_error_says_how_to_get_it() {
    let home = Home::new();
    if bulkmem_kmod::BulkHint::available().is_ok() {
        println!("skipped: the note without the kernel module: it is here");
        return;
    }
    for command in ["iops", "clear", "fill", "persist"] {
        for attribute in ["wb", "wc", "uc", "wt"] {
            let assert = home.bulkmem().args(["bench", command, "--attr", attribute]).assert().code(1);
            assert.stdout("").stderr(contains("/dev/bulkmem-memory").and(contains("docs/kernel/README.md")));
        }
    }
    for arguments in
        [&["iops", "--attr", "all"][..], &["clear", "--attr", "wb,uc,wc"], &["fill", "--attr", "all"]]
    {
        let assert = home.bulkmem().arg("bench").args(arguments).assert().code(1);
        assert.stderr(contains("modprobe bulkmem"));
    }
    let device = ["bench", "iops", "--target", "/dev/bulkmem-memory"];
    home.bulkmem().args(device).assert().code(1).stderr(contains("modprobe bulkmem"));
}

#[test]
fn attributes_that_make_no_sense_are_refused() {
    let home = Home::new();
    for (arguments, message) in [
        (&["iops", "--attr", "often"][..], "wb, wc, uc or wt"),
        (&["iops", "--attr", "wb,uc", "--target", "ram"], "leave --target out"),
        (&["iops", "--attr", "all", "--target", "ram"], "leave --target out"),
        (&["iops", "--attr", "uc", "--target", "ram"], "ram is mapped wb, not uc"),
        (&["copy", "--attr", "uc"], "unexpected argument '--attr'"),
    ] {
        home.bulkmem().arg("bench").args(arguments).assert().code(2).stdout("").stderr(contains(message));
    }
}

#[test]
fn attributes_stand_in_one_table() {
    if !module_is_there("the table by cache attribute") {
        return;
    }
    let home = Home::new();
    let arguments = ["bench", "iops", "--attr", "all", "--size", "1M", "--page-size", "4K", "--runs", "1"];
    let text = home.text(&[&arguments[..], &["--time", "2ms", "--threads", "1"]].concat(), 80);
    assert_fits(&text, 80);
    assert_eq!(text.matches("iops by cache attribute").count(), 1, "{text}");
}
