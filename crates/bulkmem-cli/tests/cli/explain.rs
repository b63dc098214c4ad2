//! `bulkmem explain`.
// Longer than 600 lines: the tests of single answers and of the overview share the profiles in the middle.

use bulkmem::machine::Machine;
use bulkmem::method::Parameters;
use bulkmem::policy::{Choice, Situation};
use bulkmem::{Operation, Options, look};
use bulkmem_measure::calibration::{
    AliasingRule, Condition, Cost, Figure, LookRule, NewHugeRule, Profile, Rule, UnmappedRule,
};
use bulkmem_measure::engine::LIBPMEM;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::home::{Home, assert_fits, keys, persisting, profile};

const KEYS: [&str; 12] = [
    "from",
    "intent",
    "length",
    "look",
    "measured",
    "method",
    "operation",
    "origin",
    "page_aliasing",
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
            assert!(answer["measured"].as_array().unwrap().is_empty() && answer["look"].is_null());
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
    let measured = &answer["measured"][0];
    assert_eq!(answer["measured"].as_array().unwrap().len(), 1);
    assert_eq!(keys(measured), ["condition", "cost", "figures", "length"]);
    assert_eq!(measured["length"], 1 << 20);
    let best = &measured["figures"][0];
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
        "times_libpmem",
    ];
    assert_eq!(keys(best), expected);
    assert_eq!((&best["method"], &best["chosen"]), (&"portable".into(), &true.into()));
    assert_eq!(best["times_c_library"], 2.0);
    assert_eq!(measured["figures"][1]["chosen"], false);
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
            "Cold memory, measured at 1 MiB (aligned, 1 thread)",
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

/// A negative disturbance is noise; the choice need not be the fastest at one length.
#[test]
fn the_table_of_streams_shows_what_counts() {
    let mut profile = profile();
    let stream = |it: &Figure, ns| Figure { cost: Cost::Stream, disturbance_ns: Some(ns), ..it.clone() };
    let figures: Vec<Figure> =
        profile.figures[2..].iter().zip([700.0, -900.0]).map(|(it, ns)| stream(it, ns)).collect();
    profile.figures.extend(figures);
    let rule = Rule { situation: Situation::Stream, ..profile.rules[0].clone() };
    profile.rules.push(rule);
    let home = Home::new();
    home.write_profile(&profile);
    let text = home.text(&["explain", "--op", "clear", "--size", "1M", "--intent", "stream"], 120);
    for words in
        ["   portable ", "→  c_library ", "disturbance, ns", "→ is the choice for a range of lengths"]
    {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let cell = |method: &str| {
        let line = text.lines().find(|line| line.contains(&format!("  {method} "))).unwrap();
        line.split_whitespace().filter(|word| ["0", "700"].contains(word)).collect::<Vec<_>>()
    };
    assert_eq!((cell("portable"), cell("c_library")), (vec!["0"], vec!["700"]), "{text}");
    let length = home.text(&["explain", "--op", "clear", "--size", "1M"], 120);
    assert!(!length.contains("range of lengths"), "{length}");
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

/// The profile with a look: `portable` is the method for uncached memory, the C library that for cached memory, which is
/// twice as fast there.
fn looking() -> Profile {
    let mut profile = profile();
    let rule = |situation, from, method: &str| Rule {
        operation: Operation::Clear,
        situation,
        from,
        method: method.into(),
        parameters: Parameters::default(),
        reason: format!("it is good for {situation} memory"),
    };
    profile.rules.extend([
        rule(Situation::Cached, 0, "c_library"),
        rule(Situation::Uncached, 0, "c_library"),
        rule(Situation::Uncached, 65536, "portable"),
    ]);
    profile.looks.push(LookRule {
        operation: Operation::Clear,
        from: 65536,
        cached_below: 777,
        unmapped: Some(UnmappedRule {
            from: 9999,
            method: "portable".into(),
            parameters: Parameters::default(),
            huge: Some(NewHugeRule { from: 99_999, length: 8 << 20 }),
        }),
        reason: "it is worth a look".into(),
    });
    let warm = |figure: &Figure| {
        let condition = Condition { warm: true, ..figure.condition };
        let median_ns = if figure.method == "portable" { 60_000.0 } else { 30_000.0 };
        Figure { condition, median_ns, quartiles_ns: [median_ns; 2], ..figure.clone() }
    };
    let warm: Vec<_> = profile.figures.iter().filter(|it| it.length == 1 << 20).map(warm).collect();
    profile.figures.extend(warm);
    profile
}

/// A home with that profile; `None` if this machine has no clock to look with.
fn looking_home() -> Option<Home> {
    let policy = looking().policy(Machine::current()).unwrap();
    _ = Options::new().policy(&policy).unwrap();
    if !look::is_on() {
        println!("skipped: looks at the cache state: this machine has no clock that can be used for it");
        return None;
    }
    let home = Home::new();
    home.write_profile(&looking());
    Some(home)
}

/// Returns the method that is marked as chosen, and whether the memory was warm.
fn chosen(measurements: &Value) -> (bool, &str) {
    let mut figures = measurements["figures"].as_array().unwrap().iter();
    let chosen = figures.find(|it| it["chosen"] == true).unwrap();
    (measurements["condition"]["warm"].as_bool().unwrap(), chosen["method"].as_str().unwrap())
}

#[test]
fn several_threads_may_have_another_choice_for_uncached_memory() {
    let Some(home) = looking_home() else { return };
    let mut profile = looking();
    let uncached = profile.rules.iter().find(|it| it.situation == Situation::Uncached).unwrap();
    let own = Rule {
        situation: Situation::SeveralThreads,
        reason: "it is good for two".into(),
        ..uncached.clone()
    };
    profile.rules.push(own);
    home.write_profile(&profile);
    for (threads, method, reason) in
        [("1", "portable", "it is good for uncached memory"), ("2", "c_library", "it is good for two")]
    {
        let asked = ["explain", "--op", "clear", "--size", "1M", "--threads", threads, "--json"];
        let uncached = &home.json(&asked)["look"]["uncached"];
        assert_eq!((&uncached["method"], &uncached["reason"]), (&method.into(), &reason.into()), "{threads}");
    }
}

/// An unchanged program, whose calls may be of bytes that it uses next, gains from that length on.
#[test]
#[cfg(target_arch = "x86_64")]
fn with_the_intent_reuse_uncached_memory_has_a_choice_from_the_length_at_which_bypassing_pays() {
    let Some(home) = looking_home() else { return };
    let mut profile = looking();
    let rule = |from, method: &str| Rule {
        operation: Operation::Clear,
        situation: Situation::UncachedReuse,
        from,
        method: method.into(),
        parameters: Parameters::default(),
        reason: "it pays although it is read".into(),
    };
    profile.rules.extend([rule(0, "c_library"), rule(100_000, "store_8"), rule(200_000, "movnti")]);
    home.write_profile(&profile);
    let asked =
        |size: &str| home.json(&["explain", "--op", "clear", "--size", size, "--intent", "reuse", "--json"]);
    assert!(asked("199999")["look"].is_null(), "stores through the cache need no look");
    let look = &asked("200000")["look"];
    assert_eq!(look["from"], 200_000);
    assert_eq!(
        look["reason"],
        "from there on, bypassing the cache pays in uncached memory although the bytes are used next"
    );
    assert_eq!(
        (&look["uncached"]["method"], &look["uncached"]["reason"]),
        (&"movnti".into(), &"it pays although it is read".into())
    );
    let by_length = &asked("199999")["method"];
    assert_eq!(&look["cached"]["method"], by_length);
    // Unless cached memory has rules of its own.
    let mut with_own = profile.clone();
    let own = Rule {
        situation: Situation::CachedReuse,
        reason: "it is good for cached memory".into(),
        ..rule(0, "store_8")
    };
    with_own.rules.push(own);
    home.write_profile(&with_own);
    let cached = &asked("200000")["look"]["cached"];
    assert_eq!(
        (&cached["method"], &cached["reason"]),
        (&"store_8".into(), &"it is good for cached memory".into())
    );
    home.write_profile(&profile);
    let quarter = bulkmem::pointers::quarter_of_last_level_cache();
    // 3 times as fast as the C library at 64 KiB, and 2 times at 1 MiB; there, an unchanged program uses another method: 4 times.
    let first = profile.figures[0].clone();
    for (cost, method, kib, median_ns) in [
        (Cost::Throughput, "c_library", 64, 3e3),
        (Cost::Throughput, "portable", 64, 1e3),
        (Cost::Reuse, "c_library", 1024, 1e5),
        (Cost::Reuse, "movnti", 1024, 25e3),
    ] {
        let (method, length) = (method.into(), kib << 10);
        profile.figures.push(Figure { cost, method, length, median_ns, ..first.clone() });
    }
    home.write_profile(&profile);
    let gain = &home.json(&["explain", "--json"])["gains"][0];
    assert_eq!(gain["unchanged_from"], quarter.min(200_000));
    let squares = [&gain["cold"], &gain["unchanged"]["cold"]].map(|it| it.as_f64().unwrap().powi(2).round());
    assert_eq!(squares, [6.0, if quarter > 1 << 20 { 16.0 } else { 4.0 }], "{gain}");
}

#[test]
fn a_look_shows_both_branches_and_marks_each_in_its_table() {
    let Some(home) = looking_home() else { return };
    let answer = home.json(&["explain", "--op", "clear", "--size", "1M", "--json"]);
    assert_eq!(keys(&answer), KEYS);
    let look = &answer["look"];
    assert_eq!(keys(look), ["cached", "cached_below", "from", "reason", "uncached", "unmapped"]);
    assert_eq!((&look["from"], &look["cached_below"]), (&65536.into(), &777.into()));
    assert_eq!(keys(&look["unmapped"]), ["from", "huge", "method", "parameters"]);
    assert_eq!(look["unmapped"]["huge"], Value::Null, "the call is too short");
    assert_eq!((&look["unmapped"]["from"], &look["unmapped"]["method"]), (&9999.into(), &"portable".into()));
    for (state, method) in [("cached", "c_library"), ("uncached", "portable")] {
        assert_eq!(keys(&look[state]), ["method", "parameters", "reason"]);
        assert_eq!(look[state]["method"], method);
        assert_eq!(look[state]["reason"], format!("it is good for {state} memory"));
    }
    let measured = answer["measured"].as_array().unwrap();
    let chosen: Vec<_> = measured.iter().map(chosen).collect();
    assert_eq!(chosen, [(false, "portable"), (true, "c_library")]);
    for columns in [60, 80, 200] {
        let text = home.text(&["explain", "--op", "clear", "--size", "1M"], columns);
        assert_fits(&text, columns as usize);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "the time of stores to a few lines",
            "c_library (fewer than 777 ticks): it is good for cached memory",
            "portable (from 777 ticks on): it is good for uncached memory",
            "portable (from 9999 ticks on, which mapping pages takes)",
            "it is worth a look",
            "Cold memory, measured at 1 MiB (aligned, 1 thread)",
            "→ portable 21.0 2.00",
            "Warm memory, measured at 1 MiB (aligned, 1 thread)",
            "→ c_library 35.0 1.00",
        ] {
            assert!(words.contains(expected), "{expected} at {columns}\n{text}");
        }
        let text = home.text(&["explain", "--op", "clear", "--size", "8M"], columns);
        assert_fits(&text, columns as usize);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected =
            "huge pages as uncached: portable (from 99999 ticks on, which mapping such pages takes)";
        assert!(words.contains(expected), "{text}");
    }
    let long = home.json(&["explain", "--op", "clear", "--size", "8M", "--json"]);
    let huge = &long["look"]["unmapped"]["huge"];
    assert_eq!((&huge["from"], &huge["length"]), (&99_999.into(), &(8 << 20).into()));
}

#[test]
fn looks_that_do_not_tell_new_memory_from_other_say_so() {
    let Some(home) = looking_home() else { return };
    let told = |home: &Home| {
        let text = home.text(&["explain", "--op", "clear", "--size", "1M"], 200);
        text.contains("not told from other memory")
    };
    assert!(!told(&home));
    let mut profile = looking();
    profile.looks.iter_mut().for_each(|look| look.unmapped = None);
    home.write_profile(&profile);
    assert!(told(&home));
}

#[test]
fn without_a_look_the_rule_by_length_is_marked_in_both_tables() {
    let Some(home) = looking_home() else { return };
    // Shorter than a look pays for, another intent, and pieces of several threads that are too short.
    let cases = [
        &["--size", "63K"][..],
        &["--size", "1M", "--intent", "stream"],
        &["--size", "1M", "--threads", "17"],
    ];
    for arguments in cases {
        let answer = home.json(&[&["explain", "--op", "clear", "--json"], arguments].concat());
        assert!(answer["look"].is_null(), "{arguments:?}: {answer}");
    }
    let mut command = home.bulkmem();
    command.args(["explain", "--op", "clear", "--size", "1M", "--json"]).env("BULKMEM_LOOK", "off");
    let output = command.assert().success().get_output().stdout.clone();
    let answer: Value = serde_json::from_slice(&output).unwrap();
    assert!(answer["look"].is_null());
    let chosen: Vec<_> = answer["measured"].as_array().unwrap().iter().map(chosen).collect();
    assert_eq!(chosen, [(false, "portable"), (true, "portable")]);
}

/// Warm memory of 1 GiB does not exist.
#[test]
fn a_cache_state_that_was_measured_far_from_the_length_is_not_shown() {
    let mut profile = looking();
    let far = |it: &Figure| Figure { length: 1 << 30, ..it.clone() };
    let far: Vec<_> = profile.figures.iter().filter(|it| !it.condition.warm).map(far).collect();
    profile.figures.extend(far);
    let home = Home::new();
    home.write_profile(&profile);
    let answer = home.json(&["explain", "--op", "clear", "--size", "1G", "--json"]);
    assert_eq!(answer["measured"].as_array().unwrap().len(), 1);
    assert_eq!(answer["measured"][0]["condition"]["warm"], false);
}

/// Returns the row of an operation and length.
fn row<'a>(overview: &'a Value, operation: &str, length: u64) -> &'a Value {
    let mut rows = overview["rows"].as_array().unwrap().iter();
    rows.find(|row| row["operation"] == operation && row["length"] == length).unwrap()
}

#[test]
fn the_overview_has_a_row_for_each_operation_and_length() {
    let home = Home::with_profile();
    let overview = home.json(&["explain", "--json"]);
    assert_eq!(
        keys(&overview),
        [
            "c_library",
            "date",
            "drop_in",
            "gains",
            "microarchitecture",
            "processor",
            "processors",
            "rows",
            "thresholds"
        ]
    );
    assert_eq!(overview["rows"].as_array().unwrap().len(), Operation::ALL.len() * 4);
    let clear = row(&overview, "clear", 1 << 20);
    assert_eq!(keys(clear), ["cold", "length", "operation", "warm"]);
    let cold = &clear["cold"];
    let expected =
        ["gb_per_s", "measured_length", "method", "parameters", "times_c_library", "times_libpmem"];
    assert_eq!(keys(cold), expected);
    assert_eq!((&cold["method"], &cold["measured_length"]), (&"portable".into(), &(1 << 20).into()));
    assert_eq!((&cold["gb_per_s"], &cold["times_c_library"]), (&20.97152.into(), &2.0.into()));
    assert!(cold["times_libpmem"].is_null());
    // Only cold memory was measured, only clears, and only two lengths.
    assert!(clear["warm"].is_null());
    for (operation, length) in [("clear", 64 << 10), ("clear", 16 << 20), ("copy", 1 << 20)] {
        let row = row(&overview, operation, length);
        assert!(row["cold"].is_null() && row["warm"].is_null(), "{row}");
    }
}

#[test]
fn the_overview_uses_the_nearest_length_within_a_factor_of_two() {
    for (from, to, near) in [(1 << 20, 2 << 20, true), (1 << 20, 5 << 19, false)] {
        let mut profile = profile();
        profile.figures.iter_mut().filter(|it| it.length == from).for_each(|it| it.length = to);
        let home = Home::new();
        home.write_profile(&profile);
        let overview = home.json(&["explain", "--json"]);
        let cold = &row(&overview, "clear", 1 << 20)["cold"];
        assert_eq!(cold["measured_length"].as_u64(), near.then_some(to), "{cold}");
        let text = home.text(&["explain"], 80);
        assert_eq!(text.contains("up to a factor of 2 away"), near, "{text}");
    }
}

#[test]
fn operations_that_persist_are_compared_with_libpmem() {
    let (profile, method) = persisting();
    let home = Home::new();
    home.write_profile(&profile);
    let overview = home.json(&["explain", "--json"]);
    for (length, times) in [(64 << 10, 2.0), (1 << 20, 0.5)] {
        let cold = &row(&overview, "copy_persist", length)["cold"];
        assert_eq!((&cold["method"], &cold["times_libpmem"]), (&method.into(), &times.into()));
        assert!(cold["times_c_library"].is_null());
    }
    let text = home.text(&["explain"], 80);
    assert!(text.contains(&format!("  1M  21.0 0.50 {method}")), "{text}");
    let legend = "×: times the C library, or libpmem for operations that persist";
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(legend), "{text}");
    // Programs with the drop-in: the geometric mean of both lengths.
    let drop_in = &overview["drop_in"];
    assert_eq!(*drop_in, json!([{ "operation": "copy_persist", "cold": 1.0, "warm": null }]));
    let text = home.text(&["explain"], 200);
    let expected = "--libpmem -- PROGRAM (times PMDK's): pmem_memcpy_persist 1.00 × cold, – warm\n";
    assert!(text.contains(expected), "{text}");
    // One length: libpmem is among the figures, and is not chosen although it is faster.
    let one = ["explain", "--op", "copy_persist", "--size", "1M"];
    let figures = &home.json(&[&one[..], &["--json"]].concat())["measured"][0]["figures"];
    for (figure, name, times) in [(0, "libpmem", 1.0), (1, method, 0.5)] {
        let figure = &figures[figure];
        assert_eq!((&figure["method"], &figure["times_libpmem"]), (&name.into(), &times.into()));
        assert_eq!(figure["chosen"], name == method);
        assert!(figure["times_c_library"].is_null());
    }
    let text = home.text(&one, 80);
    assert!(text.contains("× libpmem") && !text.contains("× C library"), "{text}");
}

#[test]
fn the_overview_has_the_gains_over_libpmem() {
    let mut profile = profile();
    let own = profile.figures.iter().find(|it| it.length == 1 << 20 && it.method == "portable").unwrap();
    let libpmem = Figure { method: LIBPMEM.into(), median_ns: own.median_ns * 1.5, ..own.clone() };
    let home = Home::new();
    home.write_profile(&profile);
    assert!(home.json(&["explain", "--json"])["gains"][0]["libpmem"]["cold"].is_null());
    assert!(!home.text(&["explain"], 80).contains("× libpmem"));
    profile.figures.push(libpmem);
    home.write_profile(&profile);
    let overview = home.json(&["explain", "--json"]);
    assert_eq!(row(&overview, "clear", 1 << 20)["cold"]["times_libpmem"], 1.5);
    let gain = &overview["gains"][0];
    assert_eq!(keys(gain), ["cold", "libpmem", "operation", "unchanged", "unchanged_from", "warm"]);
    assert_eq!((&gain["libpmem"]["cold"], &gain["libpmem"]["warm"]), (&1.5.into(), &Value::Null));
    let text = home.text(&["explain"], 80);
    assert!(
        text.lines().any(|line| line.starts_with("× libpmem  clear 1.50 × cold, – warm (PMDK's make")),
        "{text}"
    );
}

#[test]
fn the_overview_does_not_mix_cold_and_warm_memory() {
    let Some(home) = looking_home() else { return };
    let overview = home.json(&["explain", "--json"]);
    let clear = row(&overview, "clear", 1 << 20);
    assert_eq!(
        (&clear["cold"]["method"], &clear["cold"]["times_c_library"]),
        (&"portable".into(), &2.0.into())
    );
    assert_eq!(
        (&clear["warm"]["method"], &clear["warm"]["times_c_library"]),
        (&"c_library".into(), &1.0.into())
    );
    let text = home.text(&["explain"], 80);
    assert!(text.contains("  1M  21.0 2.00 portable") && text.contains("  35.0 1.00 c_library"), "{text}");
}

#[test]
fn the_overview_says_what_each_way_gains() {
    let Some(home) = looking_home() else { return };
    let overview = home.json(&["explain", "--json"]);
    let [clear, fill, copy] = overview["gains"].as_array().unwrap().as_slice() else { panic!("{overview}") };
    assert_eq!(keys(clear), ["cold", "libpmem", "operation", "unchanged", "unchanged_from", "warm"]);
    assert_eq!((&clear["cold"], &clear["warm"]), (&2.0.into(), &1.0.into()));
    let quarter = bulkmem::pointers::quarter_of_last_level_cache();
    assert_eq!(clear["unchanged_from"], quarter, "it looks from 64 KiB on, but bulkmem run begins there");
    for other in [fill, copy] {
        assert!(
            other["unchanged"]["cold"].is_null()
                && other["cold"].is_null()
                && other["unchanged_from"].is_null(),
            "{other}"
        );
    }
    let text = home.text(&["explain"], 200);
    assert!(text.contains("clear 2.00 × cold, 1.00 × warm; fill – cold, – warm"), "{text}");
    assert!(text.contains("memset to 0 from ") && text.contains(" (docs/preload.md)"), "{text}");
}

#[test]
fn the_overview_fits_one_screen() {
    let mut longest = looking();
    // The longest name.
    let features = bulkmem::machine::features();
    let method = bulkmem::method::all()
        .filter(|it| it.does(Operation::Clear) && features.contains(it.requires))
        .max_by_key(|it| it.name.len())
        .unwrap();
    let (name, parameters) = (method.name, Choice::of(method, Operation::Clear).parameters);
    for rule in longest.rules.iter_mut().filter(|rule| rule.method == "portable") {
        (rule.method, rule.parameters) = (name.to_owned(), parameters);
    }
    for figure in longest.figures.iter_mut().filter(|figure| figure.method == "portable") {
        (figure.method, figure.parameters) = (name.to_owned(), parameters);
    }
    for profile in [looking(), longest] {
        let home = Home::new();
        home.write_profile(&profile);
        for columns in [60, 80, 200] {
            let text = home.text(&["explain"], columns);
            assert_fits(&text, columns as usize);
            assert!(columns < 80 || text.lines().count() <= 47, "{}\n{text}", text.lines().count());
            for word in [
                "cold: method",
                "warm: method",
                "copy_persist",
                "Intent::Stream",
                "total_len",
                "Threads::Auto",
                "Rust, C ",
                "bulkmem_copy",
                "bulkmem run -- PROGRAM",
            ] {
                assert!(text.contains(word), "{word} at {columns}\n{text}");
            }
        }
        assert!(home.text(&["explain"], 80).lines().next().unwrap().contains("calibrated 2025-11-21"));
    }
}

#[test]
fn the_overview_names_forced_methods() {
    let home = Home::with_profile();
    let mut command = home.bulkmem();
    command.arg("explain").env("BULKMEM_METHOD", "clear:c_library");
    command.assert().success().stdout(contains("clear, forced to c_library"));
}

#[test]
fn the_overview_names_variables_that_unchanged_programs_inherit() {
    let home = Home::with_profile();
    for (name, value, named) in [
        ("BULKMEM_METHOD", "clear:c_library", true),
        ("BULKMEM_FROM", "65536", true),
        ("BULKMEM_FROM", "", false),
        ("BULKMEM_LOOK", "off", true),
        ("BULKMEM_LOOK", "on", false),
        ("BULKMEM_POPULATE", "on", true),
        ("BULKMEM_POPULATE", "off", false),
    ] {
        let mut command = home.bulkmem();
        command.arg("explain").env(name, value);
        let text = String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap();
        assert_eq!(text.contains(&format!("inherits {name}")), named, "{value}: {text}");
    }
}

#[test]
fn the_overview_needs_a_profile() {
    let home = Home::new();
    for arguments in [&["explain"][..], &["explain", "--json"]] {
        let mut command = home.bulkmem();
        command.args(arguments).env("BULKMEM_PROFILE", home.path().join("nowhere.policy"));
        let remedy = contains("error: there is no profile").and(contains("help: run `bulkmem calibrate`"));
        command.assert().code(1).stdout("").stderr(remedy);
    }
}

#[test]
fn copies_that_page_aliasing_slows_down_have_a_method_of_their_own() {
    let home = Home::new();
    let rule = AliasingRule {
        from: 2112,
        below: 786_432,
        method: "portable".into(),
        parameters: Parameters::default(),
        reason: "17 × as fast".into(),
    };
    home.write_profile(&Profile { aliasing: Some(rule), ..profile() });
    let answer = |operation: &str, size: &str| {
        let arguments = ["explain", "--op", operation, "--size", size];
        let json = home.json(&[&arguments[..], &["--json"]].concat());
        (json["page_aliasing"].clone(), home.text(&arguments, 80))
    };
    let (json, text) = answer("copy", "4K");
    assert_eq!(
        (&json["from"], &json["below"], &json["method"]),
        (&2112.into(), &786_432.into(), &"portable".into())
    );
    assert_eq!(json["reason"], "17 × as fast");
    assert!(text.contains("page aliasing") && text.contains("portable: 17 × as fast"), "{text}");
    for (operation, size) in [("copy", "2111"), ("copy", "768K"), ("clear", "4K")] {
        let (json, text) = answer(operation, size);
        assert!(json.is_null() && !text.contains("page aliasing"), "{operation} {size}: {text}");
    }
    let info = home.json(&["info", "--json"]);
    assert_eq!(info["page_aliasing"]["choice"]["method"], "portable");
    assert!(home.text(&["info"], 80).contains("page aliasing"));
    let without = Home::with_profile();
    assert!(without.json(&["info", "--json"])["page_aliasing"].is_null());
}
