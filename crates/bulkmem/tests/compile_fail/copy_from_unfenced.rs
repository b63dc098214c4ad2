//! Unfenced bytes cannot be a source.

fn main() {
    let mut bytes = vec![1; 4096];
    let mut other = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        let first = scope.clear(&mut bytes);
        let second = scope.copy(&mut other, &bytes).unwrap();
        first.join(second).defer();
    });
}
