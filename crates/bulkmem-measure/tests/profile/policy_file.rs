//! Policy files: what is refused and why, and that they say what the profile says.

use bulkmem::machine::Machine;
use bulkmem::policy::{LineError, MOST_RULES, POLICY_VERSION, Policy, PolicyFileError};
use bulkmem::{Durability, Intent, Operation};
use bulkmem_measure::calibration::{Profile, Rule};

use super::{bytes, rules, sample};

/// The error for a policy file with these lines between the first two and the last one.
fn refused(lines: &str) -> PolicyFileError {
    let cpu = &Machine::current().cpu;
    let head = format!(
        "bulkmem-policy {POLICY_VERSION}\ncpu {} {} {} {}\n",
        cpu.family, cpu.model, cpu.stepping, cpu.vendor
    );
    let text = format!("{head}{lines}\nend\n");
    Policy::from_file_bytes(text.as_bytes(), Machine::current()).expect_err(lines)
}

#[test]
fn a_policy_file_says_what_the_profile_says() {
    let text = sample().policy_text();
    assert!(text.len() < 1024, "programs load little");
    let policy = Policy::from_file_bytes(text.as_bytes(), Machine::current()).unwrap();
    let from_profile = sample().policy(Machine::current()).unwrap();
    assert_eq!(rules(&policy), rules(&from_profile));
    for length in [0, 1 << 20, 1 << 30] {
        assert_eq!(policy.threads(Operation::Clear, length), from_profile.threads(Operation::Clear, length));
    }
    assert_eq!(policy.rules(Operation::Clear, Intent::Throughput)[1].reason, "measured here");
    let rules = vec![Rule { reason: "why".into(), ..sample().rules[1].clone() }];
    let explained = Profile { rules, ..sample() }.explain(policy);
    assert_eq!(explained.rules(Operation::Clear, Intent::Throughput)[1].reason, "why");
}

#[test]
fn what_is_no_policy_file_is_refused_as_what_it_is() {
    let refused = |text: &str| Policy::from_file_bytes(text.as_bytes(), Machine::current()).unwrap_err();
    for text in
        ["\n", "nonsense\n", "bulkmem-policy\n", "bulkmem-policy x\n", "bulkmem-policy1\n", "#!/bin/sh\nx\n"]
    {
        assert_eq!(refused(text), PolicyFileError::NotAPolicy, "{text:?}");
    }
    assert_eq!(refused(""), PolicyFileError::NotAPolicy);
    assert_eq!(refused("{\n}\n"), PolicyFileError::Profile);
    assert_eq!(refused("bulkmem-policy 7\nwhatever comes then"), PolicyFileError::Version { found: 7 });
    let older = refused("bulkmem-policy 1\ncpu 6 85 7 GenuineIntel\nend\n");
    assert_eq!(older, PolicyFileError::Version { found: 1 });
    assert!(older.to_string().contains("calibrate"), "{older}");
    let whole = sample().policy_text();
    for length in 1..whole.len() {
        let error = refused(&whole[..length]);
        let first_line = whole.find('\n').unwrap() + 1;
        let named = if length < first_line { PolicyFileError::Truncated } else { error };
        assert_eq!(error, named, "{length}");
        assert!(
            matches!(error, PolicyFileError::Truncated | PolicyFileError::Line { .. }),
            "{length}: {error:?}"
        );
    }
}

#[test]
fn lines_that_cannot_be_followed_are_refused_with_their_number() {
    for (lines, line, error) in [
        ("rule clear throughput 0", 3, LineError::Fields),
        ("rule clear throughput 0 portable more", 3, LineError::Fields),
        ("rule clear throughput -1 portable", 3, LineError::Fields),
        ("rule clear throughput 99999999999999999999 portable", 3, LineError::Fields),
        ("rule erase throughput 0 portable", 3, LineError::Fields),
        ("rule clear soon 0 portable", 3, LineError::Fields),
        ("rule clear throughput 0 wishful", 3, LineError::Method),
        ("rule persist throughput 0 portable", 3, LineError::Method),
        ("rule clear throughput 0 portable[streams=4]", 3, LineError::Method),
        ("rule clear throughput 1 portable", 3, LineError::Order),
        ("rule clear throughput 0 portable\nrule clear throughput 0 c_library", 4, LineError::Order),
        (
            "# a comment\nrule clear throughput 0 portable\nrule fill reuse 0 portable\nrule clear throughput 9 c_library",
            6,
            LineError::Order,
        ),
        ("threads clear 0 0", 3, LineError::Fields),
        ("threads clear 0 65537", 3, LineError::Fields),
        ("threads clear 9 2\nthreads clear 9 3", 4, LineError::Order),
        ("", 3, LineError::Unknown),
        ("rules", 3, LineError::Unknown),
        ("end\nrule clear throughput 0 portable", 4, LineError::AfterEnd),
        ("cpu 1 2 3", 3, LineError::Fields),
        ("rule \u{1b}[31m", 3, LineError::Fields),
    ] {
        assert_eq!(refused(lines), PolicyFileError::Line { line, error }, "{lines}");
    }
    let long = format!("rule {}", "x".repeat(2000));
    assert_eq!(refused(&long), PolicyFileError::Line { line: 3, error: LineError::TooLong });
    let early = format!("bulkmem-policy {POLICY_VERSION}\nrule clear throughput 0 portable\nend\n");
    let error = Policy::from_file_bytes(early.as_bytes(), Machine::current()).unwrap_err();
    assert_eq!(error, PolicyFileError::Line { line: 2, error: LineError::NoCpu });
    let mut no_text = format!("bulkmem-policy {POLICY_VERSION}\n").into_bytes();
    no_text.extend(b"\xff\n");
    let error = Policy::from_file_bytes(&no_text, Machine::current()).unwrap_err();
    assert_eq!(error, PolicyFileError::Line { line: 2, error: LineError::NotText });
}

#[test]
fn a_policy_file_says_whether_caches_survive() {
    let durability = |profile: &Profile| {
        let text = profile.policy_text();
        let policy = Policy::from_file_bytes(text.as_bytes(), Machine::current()).unwrap();
        assert_eq!(profile.policy(Machine::current()).unwrap().durability(), policy.durability());
        policy.durability()
    };
    assert_eq!(durability(&sample()), Durability::FlushToMemory);
    assert!(!sample().policy_text().contains("durability"), "the default needs no line");
    let flush = Profile { durability: Some(Durability::FlushToMemory), ..sample() };
    assert_eq!(durability(&flush), Durability::FlushToMemory);
    let included = Profile { durability: Some(Durability::CachesIncluded), ..sample() };
    assert_eq!(durability(&included), Durability::CachesIncluded);
    assert!(included.policy_text().contains("\ndurability caches-included\n"));
    let json = serde_json::to_string(&included).unwrap();
    assert!(json.contains(r#""durability":"caches-included""#), "{json}");
    assert_eq!(Profile::parse(json.as_bytes()).unwrap(), included);
    let none = serde_json::to_string(&sample()).unwrap();
    assert!(!none.contains("durability"), "{none}");
    for lines in ["durability", "durability maybe", "durability caches-included twice"] {
        let error = LineError::Fields;
        assert_eq!(refused(lines), PolicyFileError::Line { line: 3, error }, "{lines}");
    }
}

/// A table of any size would make each call as slow as scanning it.
#[test]
fn a_table_has_64_rules_at_most() {
    let table = |rules: usize| {
        let rule = |at: usize| format!("rule clear throughput {at} {}", ["portable", "c_library"][at % 2]);
        (0..rules).map(rule).collect::<Vec<_>>().join("\n")
    };
    let line = 3 + MOST_RULES as u32;
    assert_eq!(refused(&table(MOST_RULES + 1)), PolicyFileError::Line { line, error: LineError::TooMany });
    let full = format!("{}\nrule fill stream 1 portable", table(MOST_RULES));
    assert_eq!(
        refused(&full),
        PolicyFileError::Line { line, error: LineError::Order },
        "all before is accepted"
    );
    let mut profile = sample();
    profile.rules = (0..=MOST_RULES)
        .map(|at| Rule {
            from: at as u64,
            method: ["portable", "c_library"][at % 2].into(),
            ..sample().rules[0].clone()
        })
        .collect();
    let error = profile.check(Machine::current()).unwrap_err();
    assert!(error.to_string().contains("rule 65") && error.to_string().contains("at most 64"), "{error}");
    profile.rules.pop();
    profile.check(Machine::current()).unwrap();
}

/// The library does not load such a policy file by default, whatever the name of the emulator.
#[test]
fn the_policy_file_names_the_emulator() {
    let under = |name: &str| {
        let mut profile = sample();
        profile.provenance.emulator = Some(name.to_owned());
        Profile::parse(&bytes(&profile)).unwrap()
    };
    for (name, line) in
        [("qemu-aarch64", "emulator qemu-aarch64\n"), ("two\nlines", "emulator two\\nlines\n")]
    {
        let profile = under(name);
        assert!(profile.policy_text().contains(line), "{}", profile.policy_text());
        profile.policy(Machine::current()).unwrap();
    }
    under(&"\n".repeat(10_000)).policy(Machine::current()).unwrap();
    assert!(!sample().policy_text().contains("emulator"));
}
