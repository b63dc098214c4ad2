//! A `Bulk` does not outlive the policy it asks.

use bulkmem::Bulk;
use bulkmem::machine::Machine;
use bulkmem::policy::Policy;

fn main() {
    let bulk = {
        let policy = Policy::defaults(Machine::current());
        Bulk::new().policy(&policy).unwrap()
    };
    bulk.clear(&mut [1; 10]);
}
