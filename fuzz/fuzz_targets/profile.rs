//! Any bytes are either refused as a profile, or give a policy whose every answer can be carried out here.
#![no_main]

use std::sync::LazyLock;

use bulkmem::machine::Machine;
use bulkmem::policy::{CpuIdentity, Policy};
use bulkmem_measure::calibration::{Profile};
use bulkmem::{Intent, Operation};
use libfuzzer_sys::fuzz_target;

/// This machine, under the name that the seeds bear: a fuzzer does not guess a processor.
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
                for choice in [
                    policy.choose(operation, length, intent),
                    policy.choose_part(operation, 64, length, intent),
                ] {
                    assert!(MACHINE.features.contains(choice.method.requires));
                    let tunables = choice.method.tunables(operation);
                    assert!(tunables.is_none_or(|tunables| choice.parameters.is_valid_for(tunables)), "{choice}");
                }
            }
        }
    }
    // What is read can be written, and reads the same.
    let again = serde_json::to_vec(&profile).expect("a checked profile can be written");
    assert_eq!(Profile::parse(&again).expect("what was written can be read"), profile);
});
