//! What is unfenced cannot go to another thread: a fence there orders nothing here.

fn send<T: Send>(_: T) {}

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| send(scope.clear(&mut bytes)));
}
