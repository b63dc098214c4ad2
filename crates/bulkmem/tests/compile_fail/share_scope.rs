//! A scope cannot be used from another thread, because it fences only the thread that made it.

fn share<T: Sync>(_: &T) {}

fn main() {
    bulkmem::fence_scope(|scope| share(scope));
}
