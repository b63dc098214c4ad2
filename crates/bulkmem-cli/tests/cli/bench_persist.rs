//! `bulkmem bench persist`, and what targets have in common.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SHORT: [&str; 6] = ["bench", "persist", "--size", "256K", "--runs", "2"];

#[cfg(target_arch = "x86_64")]
#[test]
fn the_tables_fit_and_name_everybody() {
    for columns in [80, 160] {
        let text = Home::new().text(&SHORT, columns);
        assert_fits(&text, columns as usize);
        for word in [
            "persist, sequential writes, one fence at the end: 256 KiB of ram",
            "persist, random writes, a fence for each 64 B: 256 KiB of ram",
            "thr: GB/s",
            "lat: nsec",
            "movnti_4",
            "the policy's choice",
            "±",
            "*",
            "blocks, pattern sequential: GB/s",
            "blocks, pattern random: GB/s",
            "(half lines, pause)",
            "runs are too few to tell anything from the control",
        ] {
            assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(word), "{word}\n{text}");
        }
    }
}

/// The crossover, and what half-written lines cost, come at the end, also if blocks are given.
#[cfg(target_arch = "x86_64")]
#[test]
fn it_ends_with_the_crossover_and_half_written_lines() {
    let options =
        ["bench", "persist", "--size", "256K", "--width", "8", "--peers", "none", "--block", "64,256"];
    let text = Home::new().text(&options, 160);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in [
        "ram, sequential writes: ",
        "Published (Patocka 2020, dm-writecache on Optane): stores that are written back are faster from between 512 B and 1 KiB",
        "ram, random writes: ",
        "ram: compared with whole lines, non-temporal stores take longer by, in blocks of 64 B and of 256 B: misaligned: ",
        "both with a pause of 500 ns in the middle: misaligned: ",
    ] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn several_targets_stand_in_one_table() {
    let home = Home::new();
    let target = ["--target", "ram,made", "--method", "movnti,store_8_clflush", "--peers", "none"];
    let line = |text: &str, start: &str| -> Vec<String> {
        let lines: Vec<&str> =
            text.lines().filter(|line| line.starts_with(start) && line.contains(['±', '–'])).collect();
        lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let text = home.text(&[&SHORT[..], &target].concat(), 100);
    assert_fits(&text, 100);
    for heading in ["persist, pattern sequential: GB/s", "persist, chunk 64 B, pattern random: GB/s"] {
        assert_eq!(text.matches(heading).count(), 1, "{text}");
    }
    assert_eq!(text.lines().filter(|line| line.split_whitespace().eq(["ram", "made"])).count(), 2, "{text}");
    assert!(text.contains("then the time per block with its fence"), "{text}");
    for name in ["movnti", "store_8_clflush", "the policy's choice"] {
        let rows = line(&text, &format!("{name} "));
        let complete = |row: &String| row.matches('±').count() == 2 && row.matches(" ns").count() == 2;
        assert!(rows.len() == 2 && rows.iter().all(complete), "{name}\n{text}");
    }
    let again = ["bench", "persist", "--size", "256K", "--target", "ram,ram"];
    home.bulkmem().args(again).assert().code(1).stderr(contains("ram: is named twice"));
    let pollution = ["bench", "pollution", "--op", "copy", "--list", "4K", "--size", "64K", "--walks", "3"];
    let text = home.text(&[&pollution[..], &target[..2], &["--method", "portable"]].concat(), 100);
    assert_fits(&text, 100);
    // Both sides of the copy, its source, which is in memory only, its destination.
    assert_eq!(text.lines().filter(|line| line.split_whitespace().eq(["ram", "made"])).count(), 2, "{text}");
    let walks: Vec<usize> = line(&text, "portable ").iter().map(|row| row.matches('–').count()).collect();
    assert_eq!(walks, [2, 1, 2], "{text}");
    assert!(!home.path().join("made").exists());
    let iops = home.bulkmem().args(["bench", "iops", "--target", "ram,made"]).assert().code(2);
    iops.stderr(contains("--target: iops measures one target at a time"));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn rows_say_where_and_how_wide() {
    let arguments = [
        "--method",
        "movnti,movnti_4",
        "--peers",
        "none",
        "--json",
        "--pattern",
        "random",
        "--block",
        "64,4K",
    ];
    let found = Home::new().json(&[&SHORT[..], &arguments].concat());
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert_eq!((&row["metric"], &row["config"]["target"]), (&"bandwidth".into(), &"ram".into()));
        assert_eq!(row["config"]["pattern"], "random");
        assert_eq!(row["config"]["attribute"], "wb");
        let width = match row["candidate"]["name"].as_str().unwrap() {
            "movnti" => 8.into(),
            "movnti_4" => 4.into(),
            _ => serde_json::Value::Null,
        };
        assert_eq!(row["config"]["width"], width);
        assert!(row["also"]["per_8_bytes_ns"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn bad_targets_name_cause_and_remedy_and_change_nothing() {
    let home = Home::new();
    std::fs::write(home.path().join("there"), [7; 8192]).unwrap();
    for (arguments, code, message, remedy) in [
        (
            &["--target", "there"][..],
            1,
            "there: exists, and what it holds would be overwritten",
            "--overwrite",
        ),
        (&["--target", "there", "--overwrite", "--size", "1M"], 1, "has 8192 bytes", "smaller --size"),
        (&["--target", "nosuch"], 1, "nosuch: there is no such file", "--size"),
        (
            &["--target", "no/such", "--size", "1M"],
            1,
            "no file can be created in no",
            "a folder you may write to",
        ),
        (&["--target", ".", "--size", "1M"], 1, ".: is a folder", "name a file in it"),
        (&["--target", "vast", "--size", "100T"], 1, "the file system has", "smaller --size"),
        (
            &["--target", "/dev/null", "--size", "1M", "--overwrite"],
            1,
            "cannot be mapped",
            "that can be mapped",
        ),
        (&["--target", "ram", "--attr", "wc"], 2, "--attr: ram is mapped wb, not wc", "resource0_wc"),
        (&["--attr", "often"], 2, "not a cache attribute", "wb, wc, uc or wt"),
        (&["--block", "100"], 2, "--block: 100 bytes are not whole cache lines", "multiple of 64"),
        (&["--width", "5"], 2, "--width: no store writes 5 bytes", "4, 8, 16, 32 or 64"),
        (&["--size", "100T"], 1, "of memory", "smaller size"),
    ] {
        if cfg!(not(target_arch = "x86_64")) && !message.starts_with("--") {
            continue;
        }
        let assert =
            home.bulkmem().args(["bench", "persist", "--runs", "1"]).args(arguments).assert().code(code);
        assert.stderr(contains(message).and(contains(remedy))).stdout("");
    }
    assert_eq!(std::fs::read(home.path().join("there")).unwrap(), [7; 8192]);
    let left: Vec<_> =
        std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["there"]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_file_is_made_and_gone_or_kept() {
    let home = Home::new();
    let arguments = ["--target", "made", "--method", "movnti", "--peers", "none"];
    let said = home.text(&[&SHORT[..], &arguments].concat(), 80);
    assert!(said.contains("256 KiB of made") && said.contains("MAP_SYNC"), "{said}");
    assert!(!home.path().join("made").exists());
    home.text(&[&SHORT[..], &arguments, &["--keep"]].concat(), 80);
    assert_eq!(std::fs::metadata(home.path().join("made")).unwrap().len(), 256 << 10);
}

/// Ctrl-C in the middle: what was measured is shown, and of the made file nothing is left.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_made_file_is_gone_after_an_interruption() {
    let home = Home::new();
    let mut command = home.spawnable();
    command.args(["bench", "persist", "--target", "made", "--size", "1M", "--runs", "10000"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("sequential") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    // SAFETY: a signal to a child that was not waited for yet.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let left = std::fs::read_dir(home.path()).unwrap().count();
    assert_eq!(left, 0, "nothing stays behind");
}

#[test]
fn help_says_how_to_read_it_and_whose_table_it_is() {
    let text = Home::new().text(&["bench", "persist", "--help"], 100);
    for word in ["MAP_SYNC", "Patocka", "2020", "per_8_bytes_ns", "--overwrite"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}
