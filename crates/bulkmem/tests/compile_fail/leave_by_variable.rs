//! Unfenced bytes cannot leave the scope in a variable outside of it.

fn main() {
    let mut bytes = vec![1; 4096];
    let mut kept = None;
    bulkmem::fence_scope(|scope| kept = Some(scope.clear(&mut bytes)));
    drop(kept);
}
