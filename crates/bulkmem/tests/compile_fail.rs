//! What must not compile. Each file in `compile_fail/` says why, and the compiler's words stand beside it; where a new
//! compiler changes them, `TRYBUILD=overwrite cargo test -p bulkmem --test compile_fail` writes them anew.

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
