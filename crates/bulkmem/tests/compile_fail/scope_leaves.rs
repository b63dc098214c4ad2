//! The scope itself cannot be kept.

fn main() {
    let mut kept = None;
    bulkmem::fence_scope(|scope| kept = Some(scope));
    drop(kept);
}
