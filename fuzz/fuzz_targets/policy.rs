//! Any bytes are either refused as a policy file, or give a policy whose every answer can be carried out here.
#![no_main]

use std::sync::LazyLock;

use bulkmem::machine::Machine;
use bulkmem::policy::{CpuIdentity, Policy};
use bulkmem::{Intent, Operation};
use libfuzzer_sys::fuzz_target;

/// This machine, with the processor that the seeds name: a fuzzer does not guess one.
static MACHINE: LazyLock<Machine> = LazyLock::new(|| Machine {
    cpu: CpuIdentity { vendor: "Fuzz".to_owned(), family: 1, model: 2, stepping: 3, name: String::new() },
    ..Machine::current().clone()
});

fuzz_target!(|bytes: &[u8]| {
    let policy = match Policy::from_file_bytes(bytes, &MACHINE) {
        Ok(policy) => policy,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(policy.runs_here());
    for operation in Operation::ALL {
        for intent in Intent::ALL {
            let rules = policy.rules(operation, intent);
            assert!(
                rules.is_sorted_by(|(one, ..), (other, ..)| one < other),
                "{operation} {intent}: {rules:?}"
            );
            let lengths = rules.iter().flat_map(|(from, ..)| [*from, from.saturating_sub(1)]);
            for length in lengths.chain([0, usize::MAX]) {
                assert!((1..=MACHINE.processors).contains(&policy.threads(operation, length)));
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
});
