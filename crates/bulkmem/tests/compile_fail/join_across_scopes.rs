//! Parts of different scopes cannot be joined: each scope fences only its own.

fn main() {
    let mut outer = vec![1; 4096];
    let mut inner = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        let first = scope.clear(&mut outer);
        bulkmem::fence_scope(|within| within.clear(&mut inner).join(first).defer());
    });
}
