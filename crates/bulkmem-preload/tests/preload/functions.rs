//! Every function, length and overlap against an oracle, with every method.

use crate::policy::{NON_TEMPORAL, aliased, by_length, every_method, reused, with_looks};
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
    for file in [by_length(), with_looks(), reused()] {
        let mut command = preloaded(functions());
        if file == reused() {
            command.env_remove("BULKMEM_FROM");
        }
        assert_eq!(
            run(command.env("BULKMEM_PROFILE", file).args(["long", "8388608"])),
            "right\n",
            "{file:?}"
        );
    }
}

/// By each of the methods that calibration compares, by forced methods, and by the C library.
#[test]
fn aliased_copies_write_the_right_bytes() {
    for method in ["store_8", "store_sse2", "store_avx", "store_avx512"] {
        let Some(file) = aliased(method) else { continue };
        for from in ["0", "1000000"] {
            let mut command = preloaded(functions());
            command.env("BULKMEM_PROFILE", file.as_os_str()).env("BULKMEM_FROM", from).arg("aliased");
            assert_eq!(run(&mut command), "right\n", "{method} from {from}");
        }
    }
    assert_eq!(run(preloaded(functions()).env("BULKMEM_METHOD", NON_TEMPORAL).arg("aliased")), "right\n");
    assert_eq!(
        run(preloaded(functions()).env("BULKMEM_METHOD", "clear:c_library").arg("aliased")),
        "right\n"
    );
}
