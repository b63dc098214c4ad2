//! The same bytes cannot be written twice in one scope without a fence in between.

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        let first = scope.clear(&mut bytes);
        let second = scope.fill(&mut bytes, 1);
        first.join(second).defer();
    });
}
