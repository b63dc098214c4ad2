//! `bulkmem bench pollution`.

use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SHORT: [&str; 14] = [
    "bench",
    "pollution",
    "--list",
    "4K,16K",
    "--size",
    "64K",
    "--method",
    "portable",
    "--runs",
    "5",
    "--walks",
    "3",
    "--page-size",
    "4K",
];

#[test]
fn walks_stand_beside_their_controls_for_each_list() {
    for columns in [80, 160] {
        let text = Home::new().text(&SHORT, columns);
        assert_fits(&text, columns as usize);
        for list in
            ["a walk of 64 lines (4 KiB, fits L1) and a clear of 64 KiB", "a walk of 256 lines (16 KiB"]
        {
            assert_eq!(text.matches(list).count(), 1, "{list}\n{text}");
        }
        for (word, times) in [
            ("before – after", 2),
            ("\nportable ", 2),
            ("\nthe policy's choice, stream ", 2),
            ("\n(same time, no memory) ", 2),
            ("the control ", 2),
            ("\n(nothing in between) ", 2),
            ("\nA list of ", 2),
        ] {
            assert!(text.matches(word).count() >= times, "{word}\n{text}");
        }
        assert!(text.contains('*'), "one costs least\n{text}");
    }
}

#[test]
fn rows_carry_the_walks() {
    for operation in ["clear", "fill", "copy"] {
        let found = Home::new().json(&[&SHORT[..], &["--op", operation, "--json"]].concat());
        let rows = found["rows"].as_array().unwrap();
        for (name, kind) in [
            ("policy", "policy"),
            ("portable", "method"),
            ("same time, no memory", "control"),
            ("nothing in between", "control"),
        ] {
            let of: Vec<_> = rows.iter().filter(|row| row["candidate"]["name"] == name).collect();
            let sides = if operation == "copy" { 3 } else { 1 };
            assert_eq!(of.len(), 2 * sides, "{name} for each list and side");
            for row in of {
                assert_eq!((&row["candidate"]["kind"], &row["metric"]), (&kind.into(), &"growth".into()));
                assert_eq!(
                    (&row["config"]["operation"], &row["config"]["size"]),
                    (&operation.into(), &65536.into())
                );
                for walk in ["before_ns", "after_ns", "control_ns"] {
                    assert!(row["also"][walk].as_f64().unwrap() > 0.0, "{walk} of {row}");
                }
            }
        }
        let sides = if operation == "copy" { 3 } else { 1 };
        assert_eq!(found["findings"].as_array().unwrap().len(), 2 * sides);
    }
}

#[test]
fn the_sides_of_a_copy_have_tables_of_their_own() {
    let copy = [&SHORT[..], &["--op", "copy", "--list", "4K"]].concat();
    let text = Home::new().text(&copy, 160);
    for side in ["a copy of 64 KiB, ns", "its source alone (calls", "its destination alone (calls"] {
        assert!(text.contains(side), "{side}\n{text}");
    }
    let found = Home::new().json(&[&copy[..], &["--side", "source", "--json"]].concat());
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["config"]["side"] == "source"), "{rows:?}");
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    for (arguments, message) in [
        (&["--op", "persist"][..], "name clear, fill, copy, fill_persist or copy_persist"),
        (&["--side", "source"], "clear has no source"),
        (&["--list", "64"], "error: --list: "),
        (&["--list", "4X"], "write 4096, 4K, 256M or 1.5G"),
        (&["--walks", "0"], "--walks"),
        (&["--method", "nosuch"], "nosuch"),
        (&["--page-size", "8K"], "it has 4K"),
    ] {
        let assert = Home::new().bulkmem().args(["bench", "pollution"]).args(arguments).assert().code(2);
        assert.stderr(contains(message)).stdout("");
    }
    let large = Home::new().bulkmem().args(["bench", "pollution", "--size", "100T"]).assert().code(1);
    large.stderr(contains("of memory")).stdout("");
}

#[test]
fn help_says_what_it_shows_how_to_read_it_and_its_source() {
    let text = Home::new().text(&["bench", "pollution", "--help"], 80);
    for words in ["How to read it", "not distinguishable here", "Source: Mikulas Patocka", "JSON: "] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{words}\n{text}");
    }
    assert_fits(&text, 80);
}
