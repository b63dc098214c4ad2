//! Unfenced bytes cannot be taken out of their `Unfenced`.

fn main() {
    let mut bytes = vec![1; 4096];
    bulkmem::fence_scope(|scope| {
        let bulkmem::Unfenced { value, .. } = scope.clear(&mut bytes);
        value[0] = 1;
    });
}
