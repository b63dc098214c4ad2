//! Options must not outlive the workers that they use, because dropping those ends their threads.

use std::num::NonZeroUsize;

use bulkmem::{Options, Workers};

fn main() {
    let options = {
        let workers = Workers::new(NonZeroUsize::MIN).unwrap();
        Options::new().workers(&workers)
    };
    options.clear(&mut [1; 10]);
}
