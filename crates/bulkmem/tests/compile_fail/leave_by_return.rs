//! Unfenced bytes cannot leave the scope as its result.

fn main() {
    let mut bytes = vec![1; 4096];
    let unfenced = bulkmem::fence_scope(|scope| scope.clear(&mut bytes));
    drop(unfenced);
}
