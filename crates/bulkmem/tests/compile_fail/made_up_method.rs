//! A method that is not in the table cannot be made, so it cannot claim to need no instructions.

use bulkmem::machine::Features;
use bulkmem::method::{self, Method};

fn main() {
    let portable = method::by_name("portable").unwrap();
    let _ = Method { requires: Features::empty(), ..*portable };
}
