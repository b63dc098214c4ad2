//! Bytes of a region do not outlive it.

use bulkmem::{Pages, Mapping};

fn main() {
    let mut region = Mapping::new(4096, Pages::Base).unwrap();
    let bytes = &mut region[..];
    drop(region);
    bulkmem::clear(bytes);
}
