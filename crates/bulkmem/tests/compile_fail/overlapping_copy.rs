//! Source and destination cannot overlap.

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::copy(&mut bytes[..100], &bytes[50..150]).unwrap();
    bulkmem::copy_persist(&mut bytes[..100], &bytes[50..150]).unwrap();
}
