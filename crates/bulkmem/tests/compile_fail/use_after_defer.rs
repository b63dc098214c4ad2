//! Bytes with a deferred fence stay borrowed until the scope ends.

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        scope.clear(&mut bytes).defer();
        bytes[0] = 1;
    });
}
