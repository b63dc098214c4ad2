//! `bulkmem explain`.

use predicates::prelude::*;
use predicates::str::contains;

use crate::home::{Home, assert_fits, keys};

const KEYS: [&str; 10] = [
    "evidence",
    "from",
    "intent",
    "length",
    "method",
    "operation",
    "origin",
    "parameters",
    "reason",
    "threads",
];

#[test]
fn it_answers_for_every_operation_and_intent_without_a_profile() {
    for operation in bulkmem::Operation::ALL {
        for intent in bulkmem::Intent::ALL {
            let home = Home::new();
            let answer = home.json(&[
                "explain",
                "--op",
                operation.name(),
                "--size",
                "3M",
                "--intent",
                intent.name(),
                "--json",
            ]);
            assert_eq!(keys(&answer), KEYS);
            assert_eq!(
                (&answer["operation"], &answer["length"]),
                (&operation.name().into(), &(3u64 << 20).into())
            );
            assert!(!answer["reason"].as_str().unwrap().is_empty());
        }
    }
}

#[test]
fn the_figures_behind_the_answer_are_those_of_the_profile() {
    let home = Home::with_profile();
    let answer = home.json(&["explain", "--op", "clear", "--size", "3M", "--json"]);
    assert_eq!(
        (&answer["method"], &answer["reason"]),
        (&"portable".into(), &"it measured <twice> as fast".into())
    );
    assert_eq!(answer["from"], 1 << 20);
    let evidence = &answer["evidence"];
    assert_eq!(keys(evidence), ["condition", "cost", "figures", "length"]);
    assert_eq!(evidence["length"], 1 << 20);
    let best = &evidence["figures"][0];
    let expected = [
        "chosen",
        "disturbance_ns",
        "gb_per_s",
        "median_ns",
        "method",
        "parameters",
        "quartiles_ns",
        "samples",
        "times_c_library",
    ];
    assert_eq!(keys(best), expected);
    assert_eq!((&best["method"], &best["chosen"]), (&"portable".into(), &true.into()));
    assert_eq!(best["times_c_library"], 2.0);
    assert_eq!(evidence["figures"][1]["chosen"], false);
}

#[test]
fn the_text_shows_the_figures_at_every_width() {
    let home = Home::with_profile();
    for columns in [60, 80, 200] {
        let text = home.text(&["explain", "--op", "clear", "--size", "1.5M"], columns);
        assert_fits(&text, columns as usize);
        for word in [
            "clear of 1.5 MiB",
            "portable",
            "Measured at 1 MiB",
            "21.0",
            "2.00",
            "it measured <twice> as fast",
        ] {
            assert!(text.contains(word), "{word} at {columns}\n{text}");
        }
    }
}

#[test]
fn threads_are_as_many_as_saturate_or_as_asked() {
    let home = Home::with_profile();
    let threads = |arguments: &[&str]| {
        let all = [&["explain", "--op", "clear", "--json", "--size"], arguments].concat();
        home.json(&all)["threads"].as_u64().unwrap()
    };
    let processors = bulkmem::machine::Machine::current().processors as u64;
    assert_eq!(threads(&["1M", "--threads", "auto"]), 1);
    assert_eq!(threads(&["8M", "--threads", "auto"]), processors.min(2));
    assert_eq!(threads(&["8M", "--threads", "3"]), 3);
    assert_eq!(threads(&["8M"]), 1);
}

#[test]
fn a_forced_method_is_the_answer() {
    let home = Home::with_profile();
    let mut command = home.bulkmem();
    command.args(["explain", "--op", "clear", "--size", "4K"]).env("BULKMEM_METHOD", "clear:portable");
    command.assert().success().stdout(contains("portable").and(contains("clear is forced to portable")));
}

#[test]
fn what_was_not_measured_is_said() {
    let home = Home::with_profile();
    let mut command = home.bulkmem();
    command.args(["explain", "--op", "copy", "--size", "4K"]);
    command.assert().success().stdout(contains("`bulkmem calibrate` measures it"));
}
