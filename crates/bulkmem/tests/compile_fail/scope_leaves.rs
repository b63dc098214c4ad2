//! The scope itself cannot be kept after it has ended.

fn main() {
    let mut kept = None;
    bulkmem::fence_scope(|scope| kept = Some(scope));
    drop(kept);
}
