//! Bytes of a region do not outlive it.

use bulkmem::{Pages, Region};

fn main() {
    let mut region = Region::new(4096, Pages::Base).unwrap();
    let bytes = &mut region[..];
    drop(region);
    bulkmem::clear(bytes);
}
