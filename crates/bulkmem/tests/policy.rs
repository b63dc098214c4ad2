//! The policy chooses usable methods on any machine, and those that the user forces.

use bulkmem::machine::{Caches, CpuIdentity, Features, Machine};
use bulkmem::method::{self, CacheEffect};
use bulkmem::policy::{
    Basis, Choice, LineError, POLICY_FORMAT, POLICY_VERSION, Policy, PolicyError, PolicyFileError, Rule,
};
use bulkmem::{Durability, Intent, Operation};
use proptest::prelude::*;
use proptest::sample::select;

/// Known processors, and unknown ones.
fn cpus() -> impl Strategy<Value = CpuIdentity> {
    let known = [
        ("GenuineIntel", 6, 79),
        ("AuthenticAMD", 23, 49),
        ("GenuineIntel", 6, 85),
        ("GenuineIntel", 6, 106),
        ("AuthenticAMD", 25, 1),
    ];
    let known = select(known.to_vec()).prop_map(|(vendor, family, model)| (vendor.to_owned(), family, model));
    let any = (".{0,12}", any::<u32>(), any::<u32>());
    prop_oneof![known, any].prop_map(|(vendor, family, model)| CpuIdentity {
        vendor,
        family,
        model,
        stepping: 1,
        name: String::new(),
    })
}

fn cache_size() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        Just(1 << 60),
        any::<u64>(),
        0..(1u64 << 26),
        (10u32..40).prop_map(|bit| 1 << bit)
    ]
}

/// Machines, including impossible ones.
fn machines() -> impl Strategy<Value = Machine> {
    (cpus(), [cache_size(), cache_size(), cache_size()], any::<u32>(), 1usize..1024).prop_map(
        |(cpu, caches, features, processors)| Machine {
            cpu,
            microcode: String::new(),
            features: Features::from_bits_truncate(features) | Features::BASELINE,
            caches: Caches::from(caches),
            processors,
            nodes: 0,
            memory: 0,
            kernel: String::new(),
            page_size: 4096,
            huge_page_sizes: Vec::new(),
            transparent_huge_pages: None,
            hypervisor: None,
            emulator: None,
        },
    )
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        0usize..8192,
        any::<usize>(),
        (0u32..63, -2isize..3).prop_map(|(bit, off)| (1usize << bit).saturating_add_signed(off))
    ]
}

fn is_usable(machine: &Machine, operation: Operation, choice: Option<Choice>) -> Result<(), TestCaseError> {
    let Some(choice) = choice else {
        let able =
            method::all().any(|method| method.does(operation) && machine.features.contains(method.requires));
        prop_assert!(!able, "no method is chosen for {operation}, but there is one");
        return Ok(());
    };
    prop_assert!(machine.features.contains(choice.method.requires), "{choice} is not available");
    let tunables = choice.method.tunables(operation);
    let valid = tunables.is_some_and(|tunables| choice.parameters.is_valid_for(tunables));
    prop_assert!(valid, "{choice} does not support {operation}, or not with these parameters");
    Ok(())
}

proptest! {
    #[test]
    fn any_machine_and_length_gets_a_method_that_can(machine in machines(), length in lengths(), extent in lengths()) {
        let policy = Policy::defaults(&machine);
        for operation in Operation::ALL {
            for intent in Intent::ALL {
                is_usable(&machine, operation, policy.choose(operation, length, intent))?;
                is_usable(&machine, operation, policy.choose_part(operation, length, extent, intent))?;
            }
            prop_assert_eq!(policy.threads(operation, length), 1);
        }
    }

    #[test]
    fn rules_rise_from_0_and_are_what_choose_follows(machine in machines()) {
        let policy = Policy::defaults(&machine);
        for operation in Operation::ALL {
            for intent in Intent::ALL {
                let rules = policy.rules(operation, intent);
                prop_assert_eq!(rules[0].from, 0);
                prop_assert!(rules.len() <= 8, "choosing is a short scan");
                let chosen = |rule: &Rule| rule.choice.method.does(operation).then_some(rule.choice);
                for (at, rule) in rules.iter().enumerate() {
                    prop_assert!(!rule.reason.is_empty());
                    prop_assert_eq!(policy.choose(operation, rule.from, intent), chosen(rule));
                    if let Some(next) = rules.get(at + 1) {
                        prop_assert!(rule.from < next.from);
                        prop_assert_ne!(&rule.choice, &next.choice, "a rule that changes nothing");
                        prop_assert_eq!(policy.choose(operation, next.from - 1, intent), chosen(rule));
                    }
                }
            }
        }
    }

    #[test]
    fn intents_are_kept(machine in machines(), length in lengths()) {
        let policy = Policy::defaults(&machine);
        for operation in Operation::ALL {
            let Some(reuse) = policy.choose(operation, length, Intent::Reuse) else { continue };
            let reuse = reuse.method;
            let cached = method::all().any(|method| {
                method.does(operation) && method.effect != CacheEffect::Bypasses && machine.features.contains(method.requires)
            });
            prop_assert!(reuse.effect != CacheEffect::Bypasses || !cached, "{operation}: {}", reuse.name);
            let stream = policy.choose(operation, length, Intent::Stream).unwrap().method;
            if cfg!(target_arch = "x86_64") && length >= 4096 && operation != Operation::Persist {
                prop_assert_eq!(stream.effect, CacheEffect::Bypasses, "{}: {}", operation, stream.name);
            }
        }
    }

    #[test]
    fn short_lengths_go_to_the_c_library(machine in machines(), length in 0usize..4096) {
        let policy = Policy::defaults(&machine);
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
            for intent in Intent::ALL {
                let choice = policy.choose(operation, length, intent).unwrap();
                prop_assert_eq!(choice.method, method::c_library());
            }
        }
    }

    /// A call that is as long as the total length, or longer, stands alone.
    #[test]
    fn an_extent_no_longer_than_the_call_changes_nothing(machine in machines(), length in lengths(), less in lengths()) {
        let policy = Policy::defaults(&machine);
        for operation in Operation::ALL {
            for intent in Intent::ALL {
                let part = policy.choose_part(operation, length, length.min(less), intent);
                prop_assert_eq!(part, policy.choose(operation, length, intent));
            }
        }
    }

    #[test]
    fn no_forced_text_panics(text in "[a-z0-9_:,=\\[\\] ]{0,40}|.{0,40}") {
        let mut policy = here();
        if policy.force(&text).is_err() {
            prop_assert!(policy.origin().forced.is_empty());
        }
    }
}

fn here() -> Policy {
    Policy::defaults(Machine::current())
}

#[test]
fn the_policy_of_this_machine_runs_here() {
    assert!(here().runs_here());
    assert!(Policy::global().runs_here());
    let origin = serde_json::to_value(here().origin()).unwrap();
    // An author and a year.
    assert!(origin["basis"]["defaults"]["source"].as_str().unwrap().contains("20"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_described_machines_policy_does_not_run_where_its_instructions_lack() {
    let mut all = Machine::current().clone();
    all.features = Features::all();
    let mut policy = Policy::defaults(&all);
    policy.force("clear:clzero,copy:movdir64b").unwrap();
    assert_eq!(policy.runs_here(), bulkmem::machine::features().contains(Features::all()));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_policy_needs_the_instructions_of_the_method_of_a_look() {
    let mut all = Machine::current().clone();
    all.features = Features::all();
    let cpu = &all.cpu;
    let head = format!(
        "{POLICY_FORMAT} {POLICY_VERSION}\ncpu {} {} {} {}",
        cpu.family, cpu.model, cpu.stepping, cpu.vendor
    );
    let rules =
        "rule clear throughput 0 c_library\nrule clear cached 0 c_library\nrule clear uncached 0 c_library";
    for method in bulkmem::method::all().filter(|it| it.does(Operation::Clear)) {
        let text = format!("{head}\n{rules}\nlook clear 65536 400 20000 {}\nend\n", method.name);
        let policy = Policy::from_file_bytes(text.as_bytes(), &all).unwrap();
        let may = bulkmem::machine::features().contains(method.requires);
        assert!(may || !policy.runs_here(), "{}", method.name);
    }
}

#[test]
fn the_same_processor_with_other_caches_keeps_its_row() {
    let mut machine = Machine::current().clone();
    machine.cpu = CpuIdentity {
        vendor: "GenuineIntel".to_owned(),
        family: 6,
        model: 85,
        stepping: 7,
        name: String::new(),
    };
    for l3 in [0, 1, 36 << 20, u64::MAX] {
        machine.caches.l3 = l3;
        match &Policy::defaults(&machine).origin().basis {
            Basis::Defaults { microarchitecture, .. } => assert!(microarchitecture.contains("Cascade Lake")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_forced_method_holds_for_every_length_and_intent_of_its_operation_only() {
    let mut policy = here();
    policy.force("clear:portable, copy : portable").unwrap();
    for intent in Intent::ALL {
        for length in [0, 1, 4095, 1 << 20, usize::MAX] {
            for operation in [Operation::Clear, Operation::Copy] {
                let choice = policy.choose(operation, length, intent).unwrap();
                assert_eq!(choice.method.name, "portable");
                assert_eq!(policy.choose_part(operation, 1, length, intent), Some(choice));
            }
            assert_eq!(
                policy.choose(Operation::Fill, length, intent),
                here().choose(Operation::Fill, length, intent)
            );
        }
    }
    policy.force("clear:c_library").unwrap();
    let forced: Vec<_> = policy.origin().forced.iter().map(|(operation, _)| *operation).collect();
    assert_eq!(forced, [Operation::Copy, Operation::Clear], "the later one holds, once");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn forced_parameters_hold_and_others_are_the_defaults() {
    let mut policy = here();
    policy.force("copy:movnti[read_distance=1024,read_hint=1],clear:rep_stosb[]").unwrap();
    let choice = policy.choose(Operation::Copy, 1, Intent::Reuse).unwrap();
    assert_eq!(choice.to_string(), "movnti[read_distance=1024,read_hint=1]");
    let again = Choice::parse(&choice.to_string(), Operation::Copy, bulkmem::machine::features()).unwrap();
    assert_eq!(again, choice);
    let json = serde_json::to_value(choice).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"method": "movnti", "parameters": {"read_distance": 1024, "read_hint": 1}})
    );
}

/// Returns the error of a rejected text, and checks that it changed nothing.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "the texts name methods of x86-64"))]
fn refused(features: Features, spec: &str) -> (PolicyError, String) {
    let mut machine = Machine::current().clone();
    machine.features = features;
    let mut policy = Policy::defaults(&machine);
    let before = format!("{policy:?}");
    let error = policy.force(spec).expect_err(spec);
    assert_eq!(format!("{policy:?}"), before, "{spec}: a refused text changes nothing");
    let text = error.to_string();
    (error, text)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn what_cannot_be_forced_is_refused_with_the_reason_and_what_could() {
    let sse2 = Features::SSE2;
    for spec in [
        "",
        "clear",
        "clear:",
        ",",
        "clear:movnti,",
        "clear:movnti[",
        "copy:movnti[read_distance]",
        "clear:[x=1]",
    ] {
        let (error, text) = refused(sse2, spec);
        assert!(matches!(error, PolicyError::Grammar { .. }), "{spec}: {text}");
    }
    let (_, text) = refused(sse2, "erase:movnti");
    assert!(text.contains("`erase`") && text.contains("clear, fill, copy, fill_persist"), "{text}");
    let (_, text) = refused(sse2, "clear:movnti,copy:movntii");
    assert!(text.contains("`movntii`") && text.contains("`bulkmem methods` lists those for copy"), "{text}");
    let (_, text) = refused(sse2, "copy:rep_stosb");
    assert!(text.contains("does not support copy") && text.contains("clear, fill"), "{text}");
    let (error, text) = refused(sse2, "clear:write_prefetch_avx512");
    assert!(
        matches!(error, PolicyError::Unavailable { missing, .. } if missing == Features::AVX512F | Features::PREFETCHW)
    );
    assert!(text.contains("AVX512F, PREFETCHW"), "{text}");
    let (_, text) = refused(sse2, "copy:movnti[distance=5]");
    assert!(text.contains("`distance`") && text.contains("read_distance, read_hint"), "{text}");
    let (_, text) = refused(sse2, "clear:movnti[read_distance=64]");
    assert!(text.contains("it has: none"), "{text}");
    for value in ["65600", "-64", "x", "", "63", "99999999999"] {
        let (error, text) = refused(sse2, &format!("copy:movnti[read_distance={value}]"));
        assert!(matches!(error, PolicyError::OutOfRange { .. }), "{text}");
        assert!(text.contains("0 to 65536 in steps of 64"), "{text}");
    }
    let (_, text) = refused(sse2, "clear:movnti,clear:rep_stosb");
    assert!(text.contains("clear is given twice"), "{text}");
}

#[test]
fn a_policy_is_loaded_from_a_named_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some.policy");
    assert_eq!(Policy::from_file(&file).unwrap_err(), PolicyFileError::Missing);
    assert_eq!(Policy::from_file("with\0zero").unwrap_err(), PolicyFileError::Missing);
    assert_eq!(Policy::from_file(folder.path()).unwrap_err(), PolicyFileError::NotAFile);
    let cpu = &Machine::current().cpu;
    let lines = "durability caches-included\nrule clear throughput 0 portable";
    let (family, model, stepping, vendor) = (cpu.family, cpu.model, cpu.stepping, &cpu.vendor);
    let head = format!("{POLICY_FORMAT} {POLICY_VERSION}\ncpu {family} {model} {stepping} {vendor}");
    std::fs::write(&file, format!("{head}\n{lines}\n")).unwrap();
    assert_eq!(Policy::from_file(&file).unwrap_err(), PolicyFileError::Truncated);
    std::fs::write(&file, format!("{head}\n{lines}\nend\n")).unwrap();
    let policy = Policy::from_file(&file).unwrap();
    assert_eq!(policy.choose(Operation::Clear, 1, Intent::Throughput).unwrap().method.name, "portable");
    assert_eq!(policy.durability(), Durability::CachesIncluded);
    assert!(policy.runs_here());
    assert!(matches!(&policy.origin().basis, Basis::Profile { path: Some(path) } if *path == file));
}

#[test]
fn a_policy_file_names_the_emulator_that_it_was_measured_under() {
    let cpu = &Machine::current().cpu;
    let load = |line: &str| {
        let head = format!("{POLICY_FORMAT} {POLICY_VERSION}");
        let cpu = format!("cpu {} {} {} {}", cpu.family, cpu.model, cpu.stepping, cpu.vendor);
        Policy::from_file_bytes(format!("{head}\n{cpu}\n{line}\nend\n").as_bytes(), Machine::current())
    };
    assert!(load("emulator qemu-x86_64").is_ok());
    for line in ["emulator", "emulator "] {
        let error = load(line).unwrap_err();
        assert_eq!(error, PolicyFileError::Line { line: 3, error: LineError::Fields }, "{line:?}");
    }
}

/// Two lines may contradict each other, and a program that believes the wrong one loses data.
#[test]
fn a_policy_file_states_the_durability_once() {
    let machine = Machine::current();
    let cpu = &machine.cpu;
    let load = |lines: &str| {
        let head = format!("{POLICY_FORMAT} {POLICY_VERSION}");
        let cpu = format!("cpu {} {} {} {}", cpu.family, cpu.model, cpu.stepping, cpu.vendor);
        let text = format!("{head}\n{cpu}\n{lines}\nend\n");
        Policy::from_file_bytes(text.as_bytes(), machine).map(|policy| policy.durability())
    };
    assert_eq!(load("durability caches-included"), Ok(Durability::CachesIncluded));
    assert_eq!(load("durability flush-to-memory"), Ok(Durability::FlushToMemory));
    for value in ["", " ", " caches-included ", "  caches-included", " Caches-Included"] {
        let error = load(&format!("durability{value}"));
        assert_eq!(error, Err(PolicyFileError::Line { line: 3, error: LineError::Fields }), "{value:?}");
    }
    for (first, second) in [
        ("caches-included", "flush-to-memory"),
        ("flush-to-memory", "caches-included"),
        ("caches-included", "caches-included"),
    ] {
        let error = load(&format!("durability {first}\ndurability {second}"));
        assert_eq!(error, Err(PolicyFileError::Line { line: 4, error: LineError::Twice }));
    }
}
