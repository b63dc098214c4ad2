//! A scope cannot be used from another thread: it fences on its own.

fn share<T: Sync>(_: &T) {}

fn main() {
    bulkmem::fence_scope(|scope| share(scope));
}
