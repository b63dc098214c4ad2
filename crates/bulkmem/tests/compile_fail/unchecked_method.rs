//! A method cannot be forced past the checks.

use bulkmem::policy::Choice;
use bulkmem::{Options, Operation, method};

fn main() {
    let choice = Choice::of(method::by_name("portable").unwrap(), Operation::Clear);
    let bulk = Options { forced: Some((Operation::Clear, choice)), ..Options::new() };
    bulk.clear(&mut [1; 10]);
}
