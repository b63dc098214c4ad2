//! `bulkmem bench reuse`.

use predicates::str::contains;

use crate::home::{Home, assert_fits};

const SHORT: [&str; 12] = [
    "bench",
    "reuse",
    "--size",
    "4K,64K",
    "--share",
    "0,50,100",
    "--footprint",
    "256K",
    "--runs",
    "3",
    "--page-size",
    "4K",
];

#[test]
fn sides_stand_by_share_and_the_crossing_below() {
    for columns in [80, 160] {
        let text = Home::new().text(&SHORT, columns);
        assert_fits(&text, columns as usize);
        for (word, times) in [
            ("reuse: clear of 4 KiB and reading", 1),
            ("reuse: copy of 64 KiB and reading", 1),
            ("\npolicy, throughput ", 4),
            ("\npolicy, reuse ", 4),
            ("\npolicy, stream ", 4),
            ("\nc_library ", 4),
        ] {
            assert_eq!(text.matches(word).count(), times, "{word}\n{text}");
        }
        if cfg!(target_arch = "x86_64") {
            for (word, times) in [
                ("\ninto the cache ", 4),
                ("\npast the cache ", 4),
                ("share read back from which stores into the cache pay off", 1),
                ("\nclear: the share read back from which caching", 1),
                ("\ncopy: the share read back from which caching", 1),
            ] {
                assert_eq!(text.matches(word).count(), times, "{word}\n{text}");
            }
        }
    }
}

#[test]
fn seven_shares_fit_a_terminal_and_every_method_can_be_shown() {
    let one = [
        "bench",
        "reuse",
        "--op",
        "clear",
        "--size",
        "4K",
        "--footprint",
        "64K",
        "--runs",
        "1",
        "--page-size",
        "4K",
    ];
    let text = Home::new().text(&[&one[..], &["--by-method"]].concat(), 80);
    assert_fits(&text, 80);
    assert!(text.contains("\nread back ") && text.matches("100%").count() == 1, "{text}");
    assert!(text.contains("the policy's choice, reuse"), "{text}");
    let found = Home::new().json(&[&one[..], &["--json"]].concat());
    let shares: Vec<f64> = found["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["candidate"]["name"] == "policy, reuse")
        .map(|row| row["config"]["read_back"].as_f64().unwrap())
        .collect();
    assert_eq!(shares, [0.0, 6.25, 12.5, 25.0, 50.0, 75.0, 100.0]);
}

#[test]
fn one_side_alone_says_what_is_missing() {
    let assert =
        Home::new().bulkmem().args(SHORT).args(["--op", "clear", "--method", "portable"]).assert().success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("it needs a method of each kind"), "{text}");
    assert!(!text.contains("from which stores into the cache pay"), "{text}");
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    for (arguments, message) in [
        (&["--op", "copy_persist"][..], "name clear, fill or copy"),
        (&["--share", "101"], "error: --share: "),
        (&["--share", "50,25"], "in rising order"),
        (&["--share", "half"], "--share"),
        (&["--size", "32"], "error: --size: "),
        (&["--method", "nosuch"], "nosuch"),
    ] {
        let assert = Home::new().bulkmem().args(["bench", "reuse"]).args(arguments).assert().code(2);
        assert.stderr(contains(message)).stdout("");
    }
    let large = Home::new().bulkmem().args(["bench", "reuse", "--footprint", "100T"]).assert().code(1);
    large.stderr(contains("of memory")).stdout("");
}

#[test]
fn help_says_what_it_shows_how_to_read_it_and_its_source() {
    let text = Home::new().text(&["bench", "reuse", "--help"], 80);
    for words in ["How to read it", "Source: Denis Vlasenko", "JSON: "] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{words}\n{text}");
    }
    assert_fits(&text, 80);
}
