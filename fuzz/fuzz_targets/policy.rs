//! Any bytes are either refused as a policy file, or give a policy whose every choice can run here.
#![no_main]

use std::sync::LazyLock;

use bulkmem::machine::{CpuIdentity, Machine};
use bulkmem::policy::{Choice, Policy};
use bulkmem::{Intent, Operation};
use libfuzzer_sys::fuzz_target;

/// This machine with the processor that the seeds name, which a fuzzer would not guess.
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
                rules.is_sorted_by(|one, other| one.from < other.from),
                "{operation} {intent}: {rules:?}"
            );
            let lengths = rules.iter().flat_map(|rule| [rule.from, rule.from.saturating_sub(1)]);
            for length in lengths.chain([0, usize::MAX]) {
                assert!((1..=MACHINE.processors).contains(&policy.threads(operation, length)));
                check(policy.choose(operation, length, intent), operation);
                check(policy.choose_part(operation, 64, length, intent), operation);
            }
        }
    }
});

fn check(choice: Option<Choice>, operation: Operation) {
    // Every operation has a method on x86-64.
    let choice = choice.expect("a method");
    assert!(MACHINE.features.contains(choice.method.requires));
    let tunables = choice.method.tunables(operation).expect("the method supports the operation");
    assert!(choice.parameters.is_valid_for(tunables), "{choice}");
}
