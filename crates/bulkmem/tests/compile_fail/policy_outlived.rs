//! Options must not outlive the policy that they use.

use bulkmem::Options;
use bulkmem::machine::Machine;
use bulkmem::policy::Policy;

fn main() {
    let options = {
        let policy = Policy::defaults(Machine::current());
        Options::new().policy(&policy).unwrap()
    };
    options.clear(&mut [1; 10]);
}
