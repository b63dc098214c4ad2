//! Programs that must not compile. Each file in `compile_fail/` says why, and the expected message is next to it. If
//! a new compiler words it differently, `TRYBUILD=overwrite cargo test -p bulkmem --test compile_fail` updates the
//! files.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
