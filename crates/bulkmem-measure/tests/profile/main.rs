//! Profiles: what is refused and why, and that a file is written whole or not at all.

mod policy_file;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use bulkmem::machine::Machine;
use bulkmem::method::Parameters;
use bulkmem::policy::{Basis, Policy, PolicyFileError, Situation};
use bulkmem::{Intent, Operation};
use bulkmem_measure::Provenance;
use bulkmem_measure::calibration::{
    AliasingRule, Condition, Cost, Coverage, FORMAT, Figure, Mode, ModuleFigure, Profile, ProfileError, Rule,
    Saturation, VERSION,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A profile that can be used on this machine.
fn sample() -> Profile {
    let machine = Machine::current();
    let rule = |operation, from, method: &str| Rule {
        operation,
        situation: Situation::Throughput,
        from,
        method: method.to_owned(),
        parameters: Parameters::default(),
        reason: "measured".to_owned(),
    };
    Profile {
        format: FORMAT.to_owned(),
        version: VERSION,
        provenance: Provenance {
            cpu: machine.cpu.clone(),
            microcode: machine.microcode.clone(),
            caches: machine.caches.levels(),
            processors: machine.processors,
            kernel: machine.kernel.clone(),
            page_size: machine.page_size,
            backing_page_size: 2 << 20,
            date: "2025-01-01T00:00:00Z".to_owned(),
            bulkmem: "0.1.0".to_owned(),
            commit: "unknown".to_owned(),
            seconds: 9.5,
            samples: 1000,
            ..Provenance::default()
        },
        coverage: Coverage { mode: Mode::Quick, complete: true, operations: Vec::new() },
        durability: None,
        rules: vec![
            rule(Operation::Clear, 0, "c_library"),
            rule(Operation::Clear, 4096, "portable"),
            rule(Operation::Copy, 0, "portable"),
        ],
        looks: Vec::new(),
        aliasing: Some(AliasingRule {
            from: 2112,
            below: 786_432,
            method: "portable".to_owned(),
            parameters: Parameters::default(),
            reason: "measured".to_owned(),
        }),
        threads: vec![
            Saturation { operation: Operation::Clear, from: 1 << 20, threads: 1 },
            Saturation { operation: Operation::Clear, from: 1 << 30, threads: 60_000 },
        ],
        figures: vec![Figure {
            operation: Operation::Clear,
            cost: Cost::Throughput,
            method: "portable".to_owned(),
            parameters: Parameters::default(),
            length: 4096,
            condition: Condition::new(true, false, 1),
            median_ns: 81.5,
            quartiles_ns: [80.0, 84.0],
            disturbance_ns: None,
            samples: 31,
        }],
        module: vec![ModuleFigure {
            method: "prefetchw".to_owned(),
            prefetch_distance: Some(4096),
            extent: 32 << 20,
            chunk: 2 << 20,
            median_ns: 2.5e6,
            quartiles_ns: [2.4e6, 2.7e6],
            samples: 9,
        }],
    }
}

fn bytes(profile: &Profile) -> Vec<u8> {
    serde_json::to_vec_pretty(profile).unwrap()
}

/// The sample with one value replaced, read again.
fn with(pointer: &str, value: Value) -> Result<Profile, ProfileError> {
    let mut json = serde_json::to_value(sample()).unwrap();
    *json.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    Profile::parse(&serde_json::to_vec(&json).unwrap())
}

/// The whole text of why the sample with that value is refused by parsing or checking.
fn refusal(pointer: &str, value: Value) -> String {
    let error = with(pointer, value)
        .and_then(|profile| profile.policy(Machine::current()).map(|_| ()))
        .expect_err(pointer);
    whole(&error)
}

fn whole(error: &ProfileError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[test]
fn a_profile_survives_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/deeper/profile.json");
    sample().save(&path).unwrap();
    assert_eq!(Profile::load(&path).unwrap(), sample());
    let other = Profile { rules: Vec::new(), ..sample() };
    other.save(&path).unwrap();
    assert_eq!(Profile::load(&path).unwrap(), other, "the newer replaces the older");
    assert_eq!(names(path.parent().unwrap()), ["profile.json"], "no other file remains");
}

#[test]
fn a_policy_follows_the_profile_and_the_defaults_where_it_is_silent() {
    let machine = Machine::current();
    let policy = sample().policy(machine).unwrap();
    let method = |operation, length, intent| policy.choose(operation, length, intent).unwrap().method.name;
    assert_eq!(method(Operation::Clear, 4095, Intent::Throughput), "c_library");
    assert_eq!(method(Operation::Clear, 4096, Intent::Throughput), "portable");
    assert_eq!(method(Operation::Copy, usize::MAX, Intent::Throughput), "portable");
    let defaults = Policy::defaults(machine);
    for (operation, intent) in [(Operation::Clear, Intent::Stream), (Operation::Fill, Intent::Throughput)] {
        assert_eq!(policy.rules(operation, intent), defaults.rules(operation, intent));
    }
    assert_eq!(policy.threads(Operation::Clear, 1), 1);
    assert_eq!(
        policy.threads(Operation::Clear, 1 << 30),
        machine.processors,
        "no more threads than processors"
    );
    assert_eq!(policy.threads(Operation::Copy, 1 << 30), 1);
    assert!(policy.runs_here());
    assert!(matches!(policy.origin().basis, Basis::Profile { path: None, .. }), "{policy:?}");
    assert_eq!(policy.rules(Operation::Clear, Intent::Throughput)[1].reason, "measured");
    assert!(policy.is_measured(Operation::Clear, Intent::Throughput));
    assert!(
        !policy.is_measured(Operation::Clear, Intent::Stream),
        "the defaults are not credited to the profile"
    );
}

#[test]
fn what_is_no_profile_is_refused_with_the_place() {
    for text in ["", "{", "nonsense", "[1]", "{\"format\": 1}", "\u{0}", "{}"] {
        let error = Profile::parse(text.as_bytes()).expect_err(text);
        assert!(matches!(error, ProfileError::Damaged { .. }), "{text:?}: {error}");
    }
    let mut cut = bytes(&sample());
    cut.truncate(cut.len() / 2);
    let Err(ProfileError::Damaged { line, .. }) = Profile::parse(&cut) else { panic!("half a file") };
    assert_eq!(line, cut.iter().filter(|&&byte| byte == b'\n').count() + 1);
    let error = Profile::parse(&[0xff; 16]).unwrap_err();
    assert!(matches!(error, ProfileError::Damaged { line: 1, .. }), "{error}");
    let text = refusal("/rules/0/operation", json!("erase"));
    assert!(text.contains("damaged at line 1, column"), "{text}");
    let nested = "[".repeat(1 << 20);
    assert!(
        matches!(Profile::parse(nested.as_bytes()), Err(ProfileError::Damaged { .. })),
        "no stack overflow"
    );
}

#[test]
fn unknown_and_missing_fields_are_damage() {
    let damaged = |json: Value| {
        let error = Profile::parse(json.to_string().as_bytes()).unwrap_err();
        assert!(matches!(error, ProfileError::Damaged { line: 1, .. }), "{error}");
    };
    let mut json = serde_json::to_value(sample()).unwrap();
    json["rules"][0]["comment"] = json!("mine");
    damaged(json);
    let mut json = serde_json::to_value(sample()).unwrap();
    json["provenance"].as_object_mut().unwrap().remove("kernel");
    damaged(json);
    let error = with("/rules/0/parameters", json!({"stride": 1})).unwrap_err();
    assert!(matches!(error, ProfileError::Damaged { .. }), "{error}");
}

/// A set-user-ID program can be made to read a file that its user may not.
#[test]
fn no_error_quotes_what_the_file_holds() {
    const SECRET: &str = "root:$6$hash";
    let line = format!("{SECRET}\n");
    let secrets = [
        SECRET.to_owned(),
        format!("\"{SECRET}\""),
        format!("{{\"{SECRET}\": 1}}"),
        json!({"format": SECRET, "version": 1}).to_string(),
        json!({"format": FORMAT, "version": SECRET}).to_string(),
    ];
    let mut errors: Vec<String> =
        secrets.iter().map(|text| whole(&Profile::parse(text.as_bytes()).unwrap_err())).collect();
    for pointer in [
        "/provenance/cpu/vendor",
        "/coverage/mode",
        "/rules/0/operation",
        "/rules/0/method",
        "/rules/0/from",
        "/rules/0/parameters",
        "/figures/0/method",
        "/threads/0/threads",
    ] {
        errors.push(refusal(pointer, json!(SECRET)));
    }
    let policy = sample().policy_text();
    for at in 0..policy.lines().count() {
        let mut lines: Vec<&str> = policy.lines().collect();
        lines[at] = SECRET;
        let text = lines.join("\n");
        let error = Policy::from_file_bytes(text.as_bytes(), Machine::current()).unwrap_err();
        errors.push(format!("{error}: {error:?}"));
    }
    errors.push(Policy::from_file_bytes(line.as_bytes(), Machine::current()).unwrap_err().to_string());
    for error in errors {
        assert!(!error.contains("root") && !error.contains("hash"), "{error}");
    }
}

#[test]
fn another_format_and_a_newer_version_are_refused_as_such() {
    let error = with("/format", json!("photo")).unwrap_err();
    assert!(matches!(error, ProfileError::Format), "{error}");
    // Also where the newer version has fields that this one does not know.
    let newer = json!({"format": FORMAT, "version": VERSION + 1, "shapes": []});
    let error = Profile::parse(newer.to_string().as_bytes()).unwrap_err();
    assert!(matches!(error, ProfileError::Version { found } if found == u64::from(VERSION + 1)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("version 5, this library reads version 4") && text.contains("update bulkmem"),
        "{text}"
    );
}

#[test]
fn an_older_version_is_refused_with_the_command_to_run() {
    for version in [0, 1, 2, 3] {
        // An older version may lack fields that this one requires.
        let older = json!({"format": FORMAT, "version": version, "rules": []});
        let error = Profile::parse(older.to_string().as_bytes()).unwrap_err();
        assert!(matches!(error, ProfileError::Version { found } if found == u64::from(version)), "{error}");
        let text = error.to_string();
        assert!(text.contains("run `bulkmem calibrate`") && !text.contains("update"), "{text}");
        let error = Profile { version, ..sample() }.check(Machine::current()).unwrap_err();
        assert!(matches!(error, ProfileError::Version { .. }), "{error}");
    }
}

#[test]
fn a_profile_of_another_processor_is_refused() {
    let cpu = &Machine::current().cpu;
    for (pointer, value) in [
        ("/provenance/cpu/vendor", json!("Another")),
        ("/provenance/cpu/family", json!(cpu.family + 1)),
        ("/provenance/cpu/model", json!(cpu.model + 1)),
        ("/provenance/cpu/stepping", json!(cpu.stepping + 1)),
    ] {
        let profile = with(pointer, value).unwrap();
        let error = profile.check(Machine::current()).unwrap_err();
        assert!(matches!(error, ProfileError::ForeignCpu { .. }), "{pointer}: {error}");
        let text = error.to_string();
        assert!(text.contains(&cpu.key()), "{text}");
        let error =
            Policy::from_file_bytes(profile.policy_text().as_bytes(), Machine::current()).unwrap_err();
        assert_eq!(error, PolicyFileError::ForeignCpu, "{pointer}");
    }
    let renamed = with("/provenance/cpu/name", json!("overclocked")).unwrap();
    renamed.check(Machine::current()).unwrap();
}

#[test]
fn rules_that_cannot_be_followed_are_refused_with_their_number() {
    let text = refusal("/rules/1/method", json!("wishful"));
    assert!(text.contains("rule 2") && text.contains("a method that is unknown"), "{text}");
    let text = refusal("/figures/0/method", json!("wishful"));
    assert!(text.contains("figure 1") && text.contains("a method that is unknown"), "{text}");
    with("/figures/0/method", json!("libpmem")).unwrap().policy(Machine::current()).unwrap();
    let text = refusal("/rules/1/method", json!("libpmem"));
    assert!(text.contains("rule 2") && text.contains("a method that is unknown"), "libpmem is never chosen");
    let text = refusal("/rules/2/operation", json!("persist"));
    assert!(text.contains("rule 3") && text.contains("cannot do the operation"), "{text}");
    let text = refusal("/rules/1/parameters", json!({"streams": 4}));
    assert!(text.contains("rule 2") && text.contains("portable takes no parameters"), "{text}");
    let text = refusal("/rules/0/from", json!(1));
    assert!(text.contains("rule 1 (clear, throughput)") && text.contains("not 0"), "{text}");
    let text = refusal("/rules/1/from", json!(0));
    assert!(text.contains("rule 2") && text.contains("not after 0"), "{text}");
    let text = refusal("/threads/0/threads", json!(0));
    assert!(text.contains("number of threads 1") && text.contains("is 0"), "{text}");
    let text = refusal("/threads/1/from", json!(5));
    assert!(text.contains("number of threads 2") && text.contains("not after 1048576"), "{text}");
    let text = refusal("/figures/0/median_ns", json!(-1.0));
    assert!(text.contains("figure 1") && text.contains("-1"), "{text}");
    let text = refusal("/module/0/method", json!("memset"));
    assert!(text.contains("module figure 1 of the profile names a method that is unknown"), "{text}");
    let text = refusal("/module/0/median_ns", json!(-1.0));
    assert!(text.contains("module figure 1 of the profile has the impossible times"), "{text}");
    let text = refusal("/module/0/chunk", json!(0));
    assert!(text.contains("module figure 1 of the profile has 33554432 bytes in chunks of 0"), "{text}");
    let text = refusal("/figures/0/quartiles_ns", json!([5.0, 4.0]));
    assert!(text.contains("figure 1"), "{text}");
    let text = refusal("/figures/0/condition/threads", json!(0));
    assert!(text.contains("0 threads"), "{text}");
    let text = refusal("/provenance/seconds", json!(-3));
    assert!(text.contains("provenance"), "{text}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_method_or_parameter_beyond_the_machine_is_refused() {
    use bulkmem::machine::Features;

    let mut profile = sample();
    profile.rules[1].method = "nontemporal_avx512".to_owned();
    let mut machine = Machine::current().clone();
    machine.features |= Features::AVX512F;
    profile.check(&machine).unwrap();
    machine.features -= Features::AVX512F;
    let error = profile.check(&machine).unwrap_err();
    assert!(matches!(error, ProfileError::Method { .. }), "{error}");
    profile.rules[1].method = "nontemporal_streams_sse2".to_owned();
    profile.rules[1].parameters.streams = 17;
    let error = profile.check(&machine).unwrap_err();
    assert!(whole(&error).contains("streams from 2 to 16"), "{}", whole(&error));
}

#[test]
fn numbers_that_are_none_are_neither_read_nor_written() {
    let infinite = String::from_utf8(bytes(&sample())).unwrap().replace("81.5", "1e999");
    assert!(matches!(Profile::parse(infinite.as_bytes()), Err(ProfileError::Damaged { .. })));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    for time in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut profile = sample();
        profile.figures[0].median_ns = time;
        assert!(matches!(profile.save(&path), Err(ProfileError::Value { .. })));
        profile = sample();
        profile.provenance.seconds = time;
        assert!(matches!(profile.save(&path), Err(ProfileError::Value { .. })));
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn files_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    assert!(matches!(Profile::load(&path), Err(ProfileError::Missing)));
    assert!(matches!(Profile::load(&path.join("below")), Err(ProfileError::Missing)));
    assert!(matches!(Profile::load(folder.path()), Err(ProfileError::NotAFile)));
    assert!(matches!(Profile::load(Path::new("/dev/zero")), Err(ProfileError::NotAFile)));
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(matches!(Profile::load(&pipe), Err(ProfileError::NotAFile)), "does not wait for a writer");
    fs::File::create(&path).unwrap().set_len((16 << 20) + 1).unwrap();
    assert!(matches!(Profile::load(&path), Err(ProfileError::TooLarge { .. })));
    assert!(matches!(Profile::load(Path::new("/proc/self/status")), Err(ProfileError::NotAFile)), "size 0");
    assert!(matches!(Profile::parse(&vec![b' '; (16 << 20) + 1]), Err(ProfileError::TooLarge { .. })));
    let looped = folder.path().join("loop");
    std::os::unix::fs::symlink("loop", &looped).unwrap();
    assert!(matches!(Profile::load(&looped), Err(ProfileError::Unreadable(_))));
}

#[test]
fn what_cannot_be_written_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    let error = sample().save(&file.join("profile.json")).unwrap_err();
    assert!(matches!(&error, ProfileError::Unwritable { .. }), "{error}");
    assert!(error.source().is_some() && error.to_string().contains("profile.json"), "{error}");
    assert!(
        matches!(sample().save(folder.path()), Err(ProfileError::Unwritable { .. })),
        "a folder is no file"
    );
    assert!(sample().save(Path::new("/proc/bulkmem/profile.json")).is_err());
    assert_eq!(names(folder.path()), ["file"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}

#[test]
fn a_symbolic_link_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("kept/profile.json"), folder.path().join("link.json"));
    sample().save(&file).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let other = Profile { figures: Vec::new(), ..sample() };
    other.save(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(Profile::load(&file).unwrap(), other);
}

const CHILD: &str = "BULKMEM_TEST_FULL_DISK";

/// A full disk, by a limit on the size of files that a child process sets for itself: this test again.
#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    if let Some(path) = std::env::var_os(CHILD) {
        let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
        // SAFETY: the limit is a local that lives through the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        // SAFETY: ignoring a signal runs no handler; this process runs nothing else that would want it.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let error = sample().save(Path::new(&path)).unwrap_err();
        let ProfileError::Unwritable { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(libc::EFBIG));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    fs::write(&path, "old").unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_leaves_the_old_file_and_nothing_else", "--nocapture"])
        .env(CHILD, &path)
        .output()
        .unwrap();
    let [said, moaned] = [child.stdout, child.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(child.status.success() && said.contains("1 passed"), "{said}{moaned}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(folder.path()), ["profile.json"]);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Asserts the same as the fuzz target: bytes are refused, or give a policy that can be used.
fn feed(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(profile) = Profile::parse(bytes) else { return Ok(()) };
    let Ok(policy) = profile.policy(Machine::current()) else { return Ok(()) };
    usable(&policy)?;
    // The policy file says the same.
    let again = Policy::from_file_bytes(profile.policy_text().as_bytes(), Machine::current());
    prop_assert_eq!(rules(&again.unwrap()), rules(&policy));
    Ok(())
}

/// From which length on what is chosen.
fn rules(policy: &Policy) -> Vec<(usize, String)> {
    let all = Operation::ALL.into_iter().flat_map(|operation| Intent::ALL.map(|intent| (operation, intent)));
    all.flat_map(|(operation, intent)| policy.rules(operation, intent))
        .map(|rule| (rule.from, rule.choice.to_string()))
        .collect()
}

/// Any bytes as a policy file.
fn feed_policy(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Policy::from_file_bytes(bytes, Machine::current()) {
        Ok(policy) => usable(&policy),
        Err(_) => Ok(()),
    }
}

fn usable(policy: &Policy) -> Result<(), TestCaseError> {
    prop_assert!(policy.runs_here());
    for operation in Operation::ALL {
        for length in [0, 1, 4096, 1 << 30, usize::MAX] {
            prop_assert!((1..=Machine::current().processors).contains(&policy.threads(operation, length)));
            for intent in Intent::ALL {
                let Some(choice) = policy.choose(operation, length, intent) else { continue };
                let tunables = choice.method.tunables(operation);
                prop_assert!(
                    tunables.is_none_or(|tunables| choice.parameters.is_valid_for(tunables)),
                    "{choice}"
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_serve(bytes: Vec<u8>) {
        feed(&bytes)?;
        feed_policy(&bytes)?;
    }

    #[test]
    fn mutated_policy_files_are_refused_or_serve(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = sample().policy_text().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        feed_policy(&bytes)?;
    }

    #[test]
    fn mutated_profiles_are_refused_or_serve(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = bytes(&sample());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        feed(&bytes)?;
    }

    #[test]
    fn profiles_with_other_values_are_refused_or_serve(
        from in any::<[u64; 3]>(), threads in any::<u32>(), time in any::<f64>(), streams in any::<u32>(), at in 0usize..3,
    ) {
        let mut profile = sample();
        for (rule, from) in profile.rules.iter_mut().zip(from).skip(at) {
            rule.from = from;
        }
        profile.threads[0].threads = threads as usize;
        if streams % 2 == 0 {
            profile.figures[0].median_ns = time;
            profile.rules[at].parameters.streams = streams / 64;
        }
        feed(&bytes(&profile))?;
        // And without the disk between.
        if let Ok(policy) = profile.policy(Machine::current()) {
            prop_assert!(time.is_finite() || streams % 2 == 1);
            prop_assert!(policy.runs_here());
        }
    }
}

#[test]
fn a_profile_without_measurements_of_the_linux_module_is_read() {
    let mut json = serde_json::to_value(sample()).unwrap();
    json.as_object_mut().unwrap().remove("module").unwrap();
    let profile = Profile::parse(&serde_json::to_vec(&json).unwrap()).unwrap();
    profile.check(Machine::current()).unwrap();
    assert!(profile.module_times().is_empty());
}

#[test]
fn the_linux_module_gets_its_measurements_with_their_noise() {
    let mut profile = sample();
    let times = profile.module_times();
    let [time] = times.as_slice() else { panic!("{times:?}") };
    assert_eq!((time.method.name(), time.prefetch_distance), ("prefetchw", 4096));
    assert_eq!((time.extent, time.chunk, time.ns), (32 << 20, 2 << 20, 2.5e6));
    assert!((time.noise_ns - 157e3).abs() < 1.0, "1.57 × 0.3 ms ÷ √9: {time:?}");
    profile.module[0].samples = 4;
    assert!(profile.module_times()[0].noise_ns.is_infinite());
}

/// The example in the book is a profile, and the book names every field.
#[test]
fn the_book_describes_the_format() {
    let book = include_str!("../../../../docs/profile-format.md");
    let (_, rest) = book.split_once("```json\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let profile = Profile::parse(example.as_bytes()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(profile.looks.len(), 1);
    profile.save(&folder.path().join("profile.json")).unwrap();
    let mut all = sample();
    all.figures[0].disturbance_ns = Some(1.0);
    all.looks = profile.looks;
    let mut names = Vec::from(Parameters::NAMES.map(str::to_owned));
    fields(&serde_json::to_value(all).unwrap(), &mut names);
    assert!(names.len() > 30);
    for name in names {
        assert!(book.contains(&format!("`{name}`")), "{name} is not described");
    }
}

fn fields(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                names.push(name.clone());
                fields(value, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}
