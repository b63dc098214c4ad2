//! `BULKMEM_METHOD`: any text is either refused and changes nothing, or forces exactly what it says, which can run here and
//! reads the same when it is written again.
#![no_main]

use std::sync::LazyLock;

use bulkmem::machine::Machine;
use bulkmem::policy::{Choice, Policy};
use bulkmem::{Intent, Operation};
use libfuzzer_sys::fuzz_target;

static DEFAULTS: LazyLock<Policy> = LazyLock::new(|| Policy::defaults(Machine::current()));

const LENGTHS: [usize; 4] = [0, 4096, 1 << 30, usize::MAX];

fuzz_target!(|text: &str| {
    let features = Machine::current().features;
    for operation in Operation::ALL {
        if let Ok(choice) = Choice::parse(text, operation, features) {
            check(&choice, operation);
        }
    }

    let mut policy = DEFAULTS.clone();
    let forced = policy.force(text);
    assert!(policy.runs_here());
    if let Err(error) = forced {
        assert!(!error.to_string().is_empty());
        assert!(policy.origin().forced.is_empty());
    }
    for operation in Operation::ALL {
        let mut forced = policy.origin().forced.iter().filter(|(other, _)| *other == operation);
        let choice = forced.next().map(|(_, choice)| *choice);
        assert!(forced.next().is_none(), "{operation} is forced twice");
        for (length, intent) in
            LENGTHS.into_iter().flat_map(|length| Intent::ALL.map(|intent| (length, intent)))
        {
            let expected = choice.or_else(|| DEFAULTS.choose(operation, length, intent));
            assert_eq!(policy.choose(operation, length, intent), expected, "{operation} {length} {intent}");
        }
        if let Some(choice) = choice {
            check(&choice, operation);
        }
    }
});

fn check(choice: &Choice, operation: Operation) {
    let features = Machine::current().features;
    assert!(features.contains(choice.method.requires));
    let tunables = choice.method.tunables(operation).expect("the method supports the operation");
    assert!(choice.parameters.is_valid_for(tunables), "{choice}");
    let again = Choice::parse(&choice.to_string(), operation, features);
    assert_eq!(again.expect("a written choice can be read"), *choice);
}
