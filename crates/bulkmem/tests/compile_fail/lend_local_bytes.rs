//! Bytes that are dropped before the scope ends cannot be lent to it: the fence would come too late.

fn main() {
    bulkmem::fence_scope(|scope| {
        let mut bytes = vec![1; 4096];
        scope.clear(&mut bytes).defer();
    });
}
