//! A `Options` does not outlive the policy it asks.

use bulkmem::Options;
use bulkmem::machine::Machine;
use bulkmem::policy::Policy;

fn main() {
    let bulk = {
        let policy = Policy::defaults(Machine::current());
        Options::new().policy(&policy).unwrap()
    };
    bulk.clear(&mut [1; 10]);
}
