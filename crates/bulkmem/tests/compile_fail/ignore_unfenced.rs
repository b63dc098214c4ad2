//! Ignoring what a scope gives back is at least warned of: it fences at once.

#![deny(unused_must_use)]

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        scope.clear(&mut bytes);
    });
}
