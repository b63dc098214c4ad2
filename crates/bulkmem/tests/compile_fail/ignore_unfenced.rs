//! Ignoring what an operation in a scope returns is at least a warning, because it fences immediately.

#![deny(unused_must_use)]

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        scope.clear(&mut bytes);
    });
}
