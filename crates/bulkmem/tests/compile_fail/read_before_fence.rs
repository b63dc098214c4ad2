//! Unfenced bytes cannot be read.

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        let unfenced = scope.clear(&mut bytes);
        assert_eq!(unfenced[0], 0);
    });
}
