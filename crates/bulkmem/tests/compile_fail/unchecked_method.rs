//! A method cannot be forced past the checks.

use bulkmem::policy::Choice;
use bulkmem::{Operation, Options, method};

fn main() {
    let choice = Choice::of(method::by_name("portable").unwrap(), Operation::Clear);
    let options = Options { forced: Some((Operation::Clear, choice)), ..Options::new() };
    options.clear(&mut [1; 10]);
}
