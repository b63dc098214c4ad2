//! Bytes of a forgotten `Unfenced` stay borrowed until the scope ends.

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        std::mem::forget(scope.clear(&mut bytes));
        assert_eq!(bytes[0], 0);
    });
}
