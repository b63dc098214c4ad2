//! For every subset of the features, the policy chooses only available methods, which write the right bytes.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bulkmem::machine::{Caches, CpuIdentity, Features, Machine};
use bulkmem::method::{self, Method, Parameters};
use bulkmem::policy::{Choice, Policy, Rule};
use bulkmem::{Intent, Operation};
use libtest_mimic::Failed;
use testkit::case::Case;
use testkit::guard::{LINE, Place};
use testkit::harness::Suite;
use testkit::oracle::Oracle;
use testkit::table;

/// Processors that the policy knows, and one that it does not know.
const PROCESSORS: [(&str, u32, u32); 6] = [
    ("GenuineIntel", 6, 79),
    ("GenuineIntel", 6, 85),
    ("GenuineIntel", 6, 106),
    ("AuthenticAMD", 23, 49),
    ("AuthenticAMD", 25, 1),
    ("", 0, 0),
];

/// The parameters that are chosen for any machine, by operation and method.
type Chosen = BTreeMap<(Operation, &'static str), Vec<Parameters>>;

fn main() -> ExitCode {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    let mut chosen = Chosen::new();
    for (vendor, family, model) in PROCESSORS {
        let name = if vendor.is_empty() { "unknown" } else { vendor };
        // Evaluated before the tests run, because each method that is chosen for any machine is a test below.
        let result = every_subset(&machine(vendor, family, model), &mut chosen);
        suite.test(&format!("available::{name}_{family}_{model}"), move || result.map_err(Failed::from));
    }
    for ((operation, name), sets) in chosen {
        let method = method::by_name(name).expect("the policy chooses rows of the table");
        if method.does(operation) {
            suite.entry("chosen", (method, operation), move |method, operation| {
                gives_the_right_bytes(method, operation, &sets)
            });
        }
    }
    suite.test("forced_methods_are_refused_where_unavailable", forced_methods_are_refused_where_unavailable);
    suite.run()
}

fn machine(vendor: &str, family: u32, model: u32) -> Machine {
    let cpu = CpuIdentity { vendor: vendor.to_owned(), family, model, stepping: 0, name: String::new() };
    Machine { cpu, ..Machine::current().clone() }
}

/// Returns every set of features that includes those of the architecture.
fn subsets() -> impl Iterator<Item = Features> {
    let free = Features::OF_ARCHITECTURE.difference(Features::BASELINE);
    // The next subset of a set of bits, in rising order.
    let next = move |set: &u32| Some(set.wrapping_sub(free.bits()) & free.bits()).filter(|next| *next != 0);
    std::iter::successors(Some(0), next).map(|bits| Features::from_bits_truncate(bits) | Features::BASELINE)
}

fn every_subset(machine: &Machine, chosen: &mut Chosen) -> Result<(), String> {
    let mut count = 0;
    for features in subsets() {
        count += 1;
        for caches in [machine.caches, Caches::from([0; 3])] {
            let policy = Policy::defaults(&Machine { features, caches, ..machine.clone() });
            for operation in Operation::ALL {
                for intent in Intent::ALL {
                    for choice in choices(&policy, operation, intent) {
                        check(choice, operation, features)?;
                        let sets = chosen.entry((operation, choice.method.name)).or_default();
                        if !sets.contains(&choice.parameters) {
                            sets.push(choice.parameters);
                        }
                    }
                }
            }
        }
    }
    let free = Features::OF_ARCHITECTURE.difference(Features::BASELINE).bits().count_ones();
    if count == 1 << free { Ok(()) } else { Err(format!("{count} subsets of {free} features")) }
}

/// Returns all choices of a policy: at and before the start of every rule, and for parts of long totals.
fn choices(policy: &Policy, operation: Operation, intent: Intent) -> Vec<Choice> {
    let mut choices = Vec::new();
    for Rule { from, choice, .. } in policy.rules(operation, intent) {
        choices.push(choice);
        choices.extend(policy.choose(operation, from.saturating_sub(1), intent));
        choices.extend(policy.choose(operation, from, intent));
        choices.extend(policy.choose_part(operation, 4096.min(from), from, intent));
    }
    choices
}

fn check(choice: Choice, operation: Operation, features: Features) -> Result<(), String> {
    let Choice { method, parameters } = choice;
    let lacking = method.requires.difference(features);
    if !lacking.is_empty() {
        return Err(format!(
            "{operation}: {} is chosen with {features:?}: it lacks {lacking:?}",
            method.name
        ));
    }
    match method.tunables(operation) {
        Some(tunables) if parameters.is_valid_for(tunables) => Ok(()),
        Some(_) => Err(format!("{operation}: {} is chosen with ill-fitting {parameters:?}", method.name)),
        None => match method::all().find(|it| it.does(operation) && features.contains(it.requires)) {
            Some(other) => Err(format!("{operation}: {} cannot, but {} can", method.name, other.name)),
            None => Ok(()),
        },
    }
}

fn gives_the_right_bytes(
    method: &'static Method,
    operation: Operation,
    sets: &[Parameters],
) -> Result<(), Failed> {
    #[cfg(target_arch = "x86_64")]
    testkit::x86_64::emulate::install_handler();
    let mut oracle = Oracle::new(1 << 18);
    let mut count = 0;
    for parameters in sets {
        let units = table::unit_lengths(parameters, 1 << 18);
        for length in (0..=2 * LINE).chain(units) {
            count += 1;
            let case = Case {
                parameters: *parameters,
                length,
                offset: count * 37 % LINE,
                source_offset: count * 23 % LINE,
                place: if count % 2 == 0 { Place::Start } else { Place::End },
                byte: 0xa5,
                ..Case::new(method, operation)
            };
            oracle.check(&case)?;
        }
    }
    Ok(())
}

fn forced_methods_are_refused_where_unavailable() -> Result<(), Failed> {
    for features in subsets() {
        let base = Policy::defaults(&Machine { features, ..Machine::current().clone() });
        for (method, operation) in table::entries() {
            let forced = base.clone().force(&format!("{operation}:{}", method.name));
            if forced.is_ok() != features.contains(method.requires) {
                return Err(
                    format!("{operation}:{} forced with {features:?}: {forced:?}", method.name).into()
                );
            }
        }
    }
    Ok(())
}
