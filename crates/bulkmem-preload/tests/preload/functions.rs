//! Every function, length and overlap against an oracle, with every method.

use crate::policy::{NON_TEMPORAL, by_length, every_method, with_looks};
use crate::toolchain::{functions, preloaded, run};

#[test]
fn short_calls_write_the_right_bytes() {
    assert_eq!(run(preloaded(functions()).arg("short")), "right\n");
    assert_eq!(run(preloaded(functions()).env("BULKMEM_METHOD", NON_TEMPORAL).arg("short")), "right\n");
}

#[test]
fn long_calls_write_the_right_bytes_with_every_method() {
    for method in every_method() {
        let mut command = preloaded(functions());
        assert_eq!(
            run(command.env("BULKMEM_METHOD", &method).args(["long", "262144"])),
            "right\n",
            "{method}"
        );
    }
}

#[test]
fn long_calls_write_the_right_bytes_by_a_policy_file() {
    for file in [by_length(), with_looks()] {
        let mut command = preloaded(functions());
        assert_eq!(
            run(command.env("BULKMEM_PROFILE", file).args(["long", "8388608"])),
            "right\n",
            "{file:?}"
        );
    }
}
