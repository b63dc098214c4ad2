//! Bytes that end before the scope does cannot be lent to it: the fence would come after their end.

fn main() {
    bulkmem::fence_scope(|scope| {
        let mut bytes = vec![1; 4096];
        scope.clear(&mut bytes).defer();
    });
}
