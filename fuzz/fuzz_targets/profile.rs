//! Any bytes are either refused as a profile, or give a policy whose every choice can run here.
#![no_main]

use std::sync::LazyLock;

use bulkmem::machine::{CpuIdentity, Machine};
use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::Profile;
use libfuzzer_sys::fuzz_target;

/// This machine with the processor that the seeds name, which a fuzzer would not guess.
static MACHINE: LazyLock<Machine> = LazyLock::new(|| Machine {
    cpu: CpuIdentity { vendor: "Fuzz".to_owned(), family: 1, model: 2, stepping: 3, name: String::new() },
    ..Machine::current().clone()
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(profile) = Profile::parse(bytes) else { return };
    let Ok(policy) = profile.policy(&MACHINE) else { return };
    assert!(policy.runs_here());
    for operation in Operation::ALL {
        let lengths = profile.rules.iter().flat_map(|rule| [rule.from, rule.from.saturating_sub(1)]);
        for length in lengths.chain([0, u64::MAX]).map(|length| length as usize) {
            assert!((1..=MACHINE.processors).contains(&policy.threads(operation, length)));
            for intent in Intent::ALL {
                check(policy.choose(operation, length, intent), operation);
                check(policy.choose_part(operation, 64, length, intent), operation);
            }
        }
    }
    let again = serde_json::to_vec(&profile).expect("a checked profile can be written");
    assert_eq!(Profile::parse(&again).expect("a written profile can be read"), profile);
});

fn check(choice: Option<Choice>, operation: Operation) {
    // Every operation has a method on x86-64.
    let choice = choice.expect("a method");
    assert!(MACHINE.features.contains(choice.method.requires));
    let tunables = choice.method.tunables(operation).expect("the method supports the operation");
    assert!(choice.parameters.is_valid_for(tunables), "{choice}");
}
