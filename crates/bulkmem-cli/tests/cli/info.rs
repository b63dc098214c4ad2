//! `bulkmem info`.

use bulkmem::Operation;
use bulkmem::method::Parameters;
use bulkmem::policy::{Choice, POLICY_VERSION};
use bulkmem_measure::engine::Threshold;
use predicates::prelude::*;
use predicates::str::contains;

use crate::home::{Home, assert_fits, keys, profile};

#[test]
fn it_describes_the_machine_at_every_width() {
    for columns in [80, 200] {
        let text = Home::with_profile().text(&["info"], columns);
        assert_fits(&text, columns as usize);
        for word in [
            "Machine",
            "kernel",
            "L1d",
            "counters",
            "Instruction sets",
            "C library",
            "memset",
            "Policy",
            "profile.json",
            "0123456789abcdef",
        ] {
            assert!(text.contains(word), "{word} at {columns}\n{text}");
        }
    }
}

#[test]
fn json_has_the_documented_keys() {
    let info = Home::with_profile().json(&["info", "--json"]);
    assert_eq!(
        keys(&info),
        [
            "bulkmem",
            "counters",
            "coverage",
            "durability",
            "instructions",
            "looks",
            "machine",
            "page_aliasing",
            "policy",
            "provenance",
            "rules",
            "thresholds"
        ]
    );
    assert_eq!(keys(&info["rules"][0]), ["choice", "from", "intent", "operation", "reason"]);
    assert_eq!(keys(&info["counters"]), ["available", "reason"]);
    assert_eq!(keys(&info["instructions"][0]), ["available", "methods", "name"]);
    assert_eq!(keys(&info["policy"]), ["basis", "forced", "refused"]);
    assert_eq!(info["provenance"]["date"], "2025-11-21T05:06:07Z");
}

/// At 80 columns, a method with its parameters is broken between them.
#[test]
fn rules_with_parameters_fit() {
    let methods = bulkmem::method::all().filter(|it| it.does(Operation::Clear) && it.available());
    let choices = methods.map(|it| Choice::of(it, Operation::Clear));
    let longest = choices.max_by_key(|it| it.to_string().len()).unwrap();
    let mut profile = profile();
    profile.rules[1].method = longest.method.name.to_owned();
    profile.rules[1].parameters = longest.parameters;
    let home = Home::new();
    home.write_profile(&profile);
    let text = home.text(&["info"], 80);
    assert_fits(&text, 80);
    let rules = text.split("Rules\n").nth(1).unwrap();
    assert!(rules.contains(longest.method.name) && !rules.contains('['), "{text}");
    for name in Parameters::names() {
        let value = longest.parameters.get(name).unwrap();
        assert!(value == 0 || rules.contains(&format!("{name}={value}")), "{name}\n{text}");
    }
}

/// What calibration located stands next to the tunables, here and in `explain`.
#[test]
fn thresholds_of_the_c_library_are_shown() {
    let home = Home::new();
    let mut profile = profile();
    let located = Threshold { operation: Operation::Copy, cached: 287 << 20, uncached: Some(289 << 20) };
    profile.provenance.thresholds = vec![located];
    home.write_profile(&profile);
    let long = [
        "memcpy bypasses the cache from between 287 MiB and 289 MiB on",
        "memset: not located (`bulkmem calibrate`)",
    ];
    for (command, words) in
        [("info", long), ("explain", ["past the cache: memcpy from 289 MiB", "memset not located"])]
    {
        let text = home.text(&[command], 200);
        for word in words {
            assert!(text.contains(word), "{word}\n{text}");
        }
        let found = home.json(&[command, "--json"]);
        let [memcpy, memset] = [&found["thresholds"][0], &found["thresholds"][1]];
        assert_eq!(keys(memcpy), ["located", "operation", "tunable", "value"]);
        assert_eq!((&memcpy["operation"], &memset["operation"]), (&"copy".into(), &"clear".into()));
        assert_eq!(memcpy["located"]["cached"], 287 << 20);
        assert!(memset["located"].is_null(), "{memset}");
    }
    // The value is that of the environment, where the C library has the tunable.
    let set = "glibc.cpu.x86_non_temporal_threshold=0x1000000";
    let output = home.bulkmem().args(["info", "--json"]).env("GLIBC_TUNABLES", set).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    match found["thresholds"][0]["tunable"].as_str() {
        Some(name) => assert_eq!(
            (name, &found["thresholds"][0]["value"]),
            ("x86_non_temporal_threshold", &(16 << 20).into())
        ),
        None => println!("skipped: tunables in info: this C library lists none"),
    }
}

/// Whatever its length; and `run` warns as well, although the program then runs.
#[test]
fn a_profile_in_place_of_the_policy_file_is_refused_and_the_policy_file_is_named() {
    let home = Home::with_profile();
    let text = std::fs::read_to_string(home.profile()).unwrap();
    let one_line = serde_json::to_string(&profile()).unwrap();
    for text in [text.clone(), text + &" ".repeat(300 << 10), one_line, " \n".repeat(200 << 10)] {
        std::fs::write(home.profile(), text).unwrap();
        let (profile, policy) = (home.profile(), home.policy());
        let (profile, policy) = (profile.display(), policy.display());
        let expected =
            format!("{profile} is not used: it is the profile, not the policy file; name {policy} instead");
        let mut command = home.bulkmem();
        let assert = command.arg("info").env("BULKMEM_PROFILE", home.profile()).assert().success();
        assert.stdout(contains("defaults for")).stderr(contains(expected));
    }
}

#[test]
fn an_incomplete_profile_is_said_to_be_one() {
    let home = Home::new();
    let mut profile = profile();
    profile.coverage.complete = false;
    profile.coverage.operations.clear();
    home.write_profile(&profile);
    home.bulkmem().arg("info").assert().success().stdout(contains("no: calibration was interrupted"));
}

#[test]
fn what_is_forced_is_shown() {
    let home = Home::with_profile();
    let assert = home.bulkmem().arg("info").env("BULKMEM_METHOD", "clear:portable").assert().success();
    assert.stdout(contains("forced").and(contains("clear: portable")));
}

/// Policy files that cannot be used, and why.
fn useless() -> Vec<(String, &'static str)> {
    let text = |change: fn(&mut bulkmem_measure::calibration::Profile)| {
        let mut profile = profile();
        change(&mut profile);
        profile.policy_text()
    };
    vec![
        (String::new(), "not a regular file with content"),
        ("\n".to_owned(), "not a policy file"),
        ("bulkmem-pol".to_owned(), "incomplete"),
        (serde_json::to_string_pretty(&profile()).unwrap(), "it has the content of a profile"),
        (serde_json::to_string(&profile()).unwrap(), "it has the content of a profile"),
        (profile().policy_text().replacen(&POLICY_VERSION.to_string(), "99", 1), "it has version 99"),
        (text(|it| it.provenance.cpu.family += 1), "another processor model"),
        (text(|it| it.rules[1].method = "nosuch".into()), "line 5 names a method that is unknown"),
        (text(|it| it.rules[1].parameters.streams = 3), "line 5 names a method"),
        (text(|it| it.rules.reverse()), "line 4 is out of order"),
    ]
}

#[test]
fn a_policy_file_that_cannot_be_used_is_refused_with_the_reason_and_the_defaults_are_used() {
    for (text, reason) in useless() {
        let home = Home::new();
        home.write_policy(&text);
        let assert = home.bulkmem().arg("info").assert().success();
        assert.stdout(contains("refused").and(contains("defaults for").or(contains("/etc/bulkmem")))).stderr(
            contains("warning: ").and(contains("profile.policy is not used: ")).and(contains(reason)),
        );
        let info = home.json(&["info", "--json"]);
        let refused = &info["policy"]["refused"][0];
        assert_eq!(keys(refused), ["path", "reason"]);
        assert!(refused["reason"].as_str().unwrap().contains(reason), "{refused}");
        // What the library does without it is what is explained.
        let answer = home.json(&["explain", "--op", "clear", "--size", "1G", "--json"]);
        assert!(!answer["origin"].as_str().unwrap().contains("config/bulkmem"), "{answer}");
    }
}

#[test]
fn a_profile_that_does_not_belong_to_the_policy_file_is_not_used() {
    let other = |home: &Home, expected: &str| {
        let assert = home.bulkmem().arg("info").assert().success();
        assert
            .stdout(contains("profile.policy").and(contains("0123456789abcdef").not()))
            .stderr(contains("profile.json is not used: ").and(contains(expected)));
    };
    let home = Home::with_profile();
    let mut changed = profile();
    changed.rules[1].from += 1;
    home.write_policy(&changed.policy_text());
    other(&home, "not from the same calibration");
    std::fs::write(home.profile(), "{").unwrap();
    other(&home, "damaged");
    std::fs::remove_file(home.profile()).unwrap();
    other(&home, "no such file");
}

/// As before there were policy files.
#[test]
fn a_profile_without_a_policy_file_is_reported() {
    let home = Home::with_profile();
    std::fs::remove_file(home.policy()).unwrap();
    let assert = home.bulkmem().arg("info").assert().success();
    assert
        .stdout(contains("defaults for").or(contains("/etc/bulkmem")))
        .stderr(contains("profile.json is not used: programs load").and(contains("run `bulkmem calibrate`")));
}

#[test]
fn the_same_by_variable() {
    for (text, reason) in useless() {
        let home = Home::new();
        let path = home.path().join("named.policy");
        std::fs::write(&path, text).unwrap();
        let assert = home.bulkmem().arg("info").env("BULKMEM_PROFILE", &path).assert().success();
        assert.stdout(contains("defaults for")).stderr(contains("named.policy").and(contains(reason)));
    }
    let home = Home::new();
    let assert = home.bulkmem().arg("info").env("BULKMEM_PROFILE", "nowhere.json").assert().success();
    assert
        .stdout(contains("defaults for"))
        .stderr(contains("nowhere.json").and(contains("bulkmem calibrate")));
    let both =
        home.bulkmem().arg("info").env("BULKMEM_PROFILE", "nowhere.json").env("BULKMEM_METHOD", "x").assert();
    both.code(2).stderr(contains("`x` is not of the form"));
}
