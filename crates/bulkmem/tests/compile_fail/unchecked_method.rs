//! A method cannot be forced past the checks.

use bulkmem::policy::Choice;
use bulkmem::{Bulk, Operation, method};

fn main() {
    let choice = Choice::of(method::by_name("portable").unwrap(), Operation::Clear);
    let bulk = Bulk { forced: Some((Operation::Clear, choice)), ..Bulk::new() };
    bulk.clear(&mut [1; 10]);
}
