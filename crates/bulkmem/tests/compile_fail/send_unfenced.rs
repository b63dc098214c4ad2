//! Unfenced bytes cannot be sent to another thread: a fence there does not order this thread's stores.

fn send<T: Send>(_: T) {}

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| send(scope.clear(&mut bytes)));
}
