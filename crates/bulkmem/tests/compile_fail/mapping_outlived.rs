//! A slice of a mapping must not outlive it.

use bulkmem::{Mapping, Pages};

fn main() {
    let mut mapping = Mapping::new(4096, Pages::Base).unwrap();
    let bytes = &mut mapping[..];
    drop(mapping);
    bulkmem::clear(bytes);
}
