//! Situations that programs bring about, and other C libraries.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use bulkmem::pointers;

use crate::policy::{
    NON_TEMPORAL, REUSED_FROM, aliased, by_length, every_method, reused, reused_from, unmapped, with_looks,
};
use crate::toolchain::{SCRATCH, compile, library, output, preloaded, run, situations};

/// Runs a situation with long calls by forced methods, by length, and with looks, and with aliased copies by AVX stores.
#[track_caller]
fn situation(name: &str) {
    let mut variables = vec![("BULKMEM_METHOD", NON_TEMPORAL.as_ref())];
    let aliased = aliased("store_avx");
    variables.extend(aliased.as_ref().map(|file| ("BULKMEM_PROFILE", file.as_os_str())));
    variables.extend([by_length(), with_looks(), reused()].map(|file| ("BULKMEM_PROFILE", file.as_os_str())));
    for (variable, value) in variables {
        let mut command = preloaded(situations());
        if value == reused().as_os_str() {
            command.env_remove("BULKMEM_FROM");
        }
        let printed = run(command.env(variable, value).args(name.split(' ')));
        if let Some(why) = printed.strip_prefix("skipped: ") {
            print!("skipped: the preloaded library and {name}: {why}");
        }
    }
}

/// Runs a situation with calls that have the kernel map pages, because each look finds none.
#[track_caller]
fn populating(name: &str) -> String {
    let mut command = preloaded(situations());
    command.env_remove("BULKMEM_FROM").env("BULKMEM_PROFILE", unmapped()).env("BULKMEM_POPULATE", "on");
    run(command.arg(name))
}

/// Another library's IFUNC resolver and constructor, in either order of libraries.
#[test]
fn functions_work_before_main() {
    situation("early");
    let early = Path::new(SCRATCH).join("preload-c/libearly.so");
    let [ours, early] = [library(), &early].map(|path| path.display());
    for libraries in [format!("{ours}:{early}"), format!("{early}:{ours}")] {
        let mut command = Command::new(situations());
        run(command.env("LD_PRELOAD", libraries).env("BULKMEM_METHOD", NON_TEMPORAL).arg("early"));
    }
}

#[test]
fn functions_work_in_signal_handlers() {
    situation("signals");
    situation("small_stack");
    populating("signals");
    populating("small_stack");
}

#[test]
fn functions_work_in_forked_children() {
    situation("forks");
    populating("forks");
}

#[test]
fn functions_work_in_several_threads() {
    situation("threads");
    populating("threads");
}

#[test]
fn no_call_makes_a_system_call() {
    situation("strict");
    situation("filter");
}

#[test]
fn functions_work_when_the_clock_must_not_be_read() {
    situation("no_clock");
    situation("bad_prctl");
}

#[test]
fn functions_leave_the_vector_registers_clean() {
    situation("vectors");
}

#[test]
fn functions_do_not_depend_on_the_callers_stack() {
    situation("stack");
}

#[test]
fn a_length_beyond_memory_faults() {
    for function in ["memset", "bzero", "explicit_bzero", "memcpy", "memmove", "mempcpy"] {
        situation(&format!("endless {function}"));
    }
}

#[test]
fn a_null_pointer_faults() {
    for function in ["memset", "bzero", "explicit_bzero", "memcpy", "memmove", "mempcpy", "source"] {
        for length in [64, 4 << 20] {
            situation(&format!("null {function} {length}"));
        }
    }
}

#[test]
fn a_destination_that_is_too_short_ends_the_program_as_in_the_c_library() {
    for function in ["memcpy", "memmove", "mempcpy", "memset", "explicit_bzero"] {
        let [ours, theirs] = [preloaded(situations()), Command::new(situations())]
            .map(|mut command| output(command.args(["overflow", function])));
        assert_eq!(ours.status.signal(), Some(libc::SIGABRT), "{function}");
        assert_eq!(ours, theirs, "{function}");
    }
}

#[test]
fn exceptions_of_signal_handlers_pass_through() {
    let program =
        compile("g++", "exception.cpp", &["-O1", "-fnon-call-exceptions", "-fno-builtin"], "exception");
    for method in every_method() {
        for call in ["zero", "fill", "copy", "source"] {
            for readable in ["0", "4194304"] {
                let mut command = preloaded(&program);
                command.env("BULKMEM_METHOD", &method);
                assert_eq!(run(command.args([call, readable])), "fault\n", "{method} {call} {readable}");
            }
        }
    }
}

/// The library whose code a call runs.
#[track_caller]
fn who(variable: &str, value: impl AsRef<OsStr>, function: &str, length: usize) -> String {
    let mut command = preloaded(situations());
    run(command.env(variable, value).args(["who", function, &length.to_string()]))
}

const OURS: &str = "libbulkmem_preload.so\n";
const THEIRS: &str = "libc.so.6\n";

#[test]
fn long_calls_are_the_policys_and_short_and_overlapping_ones_the_c_librarys() {
    for function in [
        "memset",
        "bzero",
        "explicit_bzero",
        "memcpy",
        "old_memcpy",
        "memmove",
        "mempcpy",
        "__memcpy_chk",
        "__memmove_chk",
        "__mempcpy_chk",
        "__memset_chk",
        "__explicit_bzero_chk",
    ] {
        for (length, whose) in [(600, THEIRS), (16383, THEIRS), (16384, OURS), (3 << 20, OURS)] {
            let found = who("BULKMEM_METHOD", NON_TEMPORAL, function, length);
            assert_eq!(found, whose, "{function} of {length} bytes, forced");
            let found = who("BULKMEM_PROFILE", by_length(), function, length);
            assert_eq!(found, whose, "{function} of {length} bytes");
        }
    }
    assert_eq!(who("BULKMEM_METHOD", NON_TEMPORAL, "overlap", 3 << 20), THEIRS);
    // A method for one operation leaves the others to the C library.
    assert_eq!(who("BULKMEM_METHOD", "clear:nontemporal_sse2", "bzero", 1 << 20), OURS);
    assert_eq!(who("BULKMEM_METHOD", "clear:nontemporal_sse2", "memset", 1 << 20), THEIRS);
    assert_eq!(who("BULKMEM_METHOD", "clear:nontemporal_sse2", "memcpy", 1 << 20), THEIRS);
}

#[test]
fn a_measured_policy_leaves_calls_to_the_c_library_that_are_shorter_than_a_quarter_of_the_last_level_cache() {
    let whose = |(variable, value): (&str, &OsStr), from: Option<&str>, length: usize| {
        let mut command = preloaded(situations());
        command.env_remove("BULKMEM_FROM").envs(from.map(|from| ("BULKMEM_FROM", from)));
        run(command.env(variable, value).args(["who", "memcpy", &length.to_string()]))
    };
    let measured = ("BULKMEM_PROFILE", by_length().as_os_str());
    let quarter = pointers::quarter_of_last_level_cache();
    assert_eq!(whose(measured, None, quarter - 1), THEIRS);
    assert_eq!(whose(measured, None, quarter), OURS);
    assert_eq!(whose(("BULKMEM_METHOD", NON_TEMPORAL.as_ref()), None, 16384), OURS, "forced");
    for (from, length, expected) in
        [("20000", 19999, THEIRS), ("20000", 20000, OURS), ("", quarter - 1, THEIRS)]
    {
        assert_eq!(whose(measured, Some(from), length), expected, "{length} bytes from {from}");
    }
    for invalid in ["64K", "-1", "x", "99999999999999999999"] {
        assert_eq!(whose(measured, Some(invalid), quarter), THEIRS, "{invalid}");
    }
}

#[test]
fn shorter_calls_are_the_policys_where_bypassing_the_cache_pays_although_the_bytes_are_used_next() {
    let whose = |variables: &[(&str, &str)], function: &str, length: usize| {
        let mut command = preloaded(situations());
        command.env_remove("BULKMEM_FROM").env("BULKMEM_PROFILE", reused());
        command.envs(variables.iter().copied());
        run(command.args(["who", function, &length.to_string()]))
    };
    assert!(REUSED_FROM < pointers::quarter_of_last_level_cache());
    for function in ["memcpy", "memset", "bzero"] {
        assert_eq!(whose(&[], function, REUSED_FROM - 1), THEIRS, "{function}");
        assert_eq!(whose(&[], function, REUSED_FROM), OURS, "{function}");
    }
    for (variable, value) in [("BULKMEM_LOOK", "off"), ("BULKMEM_FROM", "1000000"), ("BULKMEM_FROM", "x")] {
        assert_eq!(whose(&[(variable, value)], "memcpy", REUSED_FROM), THEIRS, "{variable}={value}");
    }
    assert_eq!(whose(&[("BULKMEM_FROM", "20000")], "memcpy", REUSED_FROM), OURS);
}

#[test]
fn calls_make_a_system_call_only_if_a_variable_allows_it() {
    assert_eq!(populating("populates"), "2, 1\n");
    let mut command = preloaded(situations());
    command.env_remove("BULKMEM_FROM").env("BULKMEM_PROFILE", unmapped());
    assert_eq!(run(command.arg("populates")), "0, 0\n");
}

#[test]
fn calls_from_128_kib_on_are_the_policys_if_the_kernel_may_map_pages() {
    const FROM: usize = 128 << 10;
    let file = reused_from(1_000_000);
    let whose = |variables: &[(&str, &str)], function: &str, length: usize| {
        let mut command = preloaded(situations());
        command.env_remove("BULKMEM_FROM").env("BULKMEM_PROFILE", &file).envs(variables.iter().copied());
        run(command.args(["who", function, &length.to_string()]))
    };
    let on = ("BULKMEM_POPULATE", "on");
    assert!(FROM < pointers::quarter_of_last_level_cache());
    for function in ["memcpy", "memset", "bzero"] {
        assert_eq!(whose(&[], function, FROM), THEIRS, "{function}");
        assert_eq!(whose(&[on], function, FROM - 1), THEIRS, "{function}");
        assert_eq!(whose(&[on], function, FROM), OURS, "{function}");
        assert_eq!(whose(&[on], function, 1 << 20), OURS, "{function}");
    }
    for others in [("BULKMEM_LOOK", "off"), ("BULKMEM_FROM", "1000000")] {
        assert_eq!(whose(&[on, others], "memcpy", FROM), THEIRS, "{others:?}");
    }
    let sooner = ("BULKMEM_PROFILE", reused().to_str().unwrap());
    assert_eq!(whose(&[on, sooner], "memcpy", REUSED_FROM), OURS);
    for value in ["", "off", "1", "ON"] {
        assert_eq!(whose(&[("BULKMEM_POPULATE", value)], "memcpy", FROM), THEIRS, "{value}");
    }
}

/// The destination of `who` begins `1 - length` bytes after the source modulo 4096.
#[test]
fn a_copy_that_page_aliasing_slows_down_is_the_policys_and_others_of_its_length_the_c_librarys() {
    let file = aliased("store_sse2").expect("every x86-64 processor has SSE2");
    let whose = |variables: &[(&str, &OsStr)], function: &str, length: usize| {
        let mut command = preloaded(situations());
        command.env_remove("BULKMEM_FROM").env("BULKMEM_PROFILE", &file).envs(variables.iter().copied());
        run(command.args(["who", function, &length.to_string()]))
    };
    for function in ["memcpy", "old_memcpy"] {
        for (length, expected) in [
            (4096, OURS),
            (4097, THEIRS),
            (4098, THEIRS),
            (4066, OURS),
            (4065, THEIRS),
            (2048 + 2018, OURS),
            (2018, THEIRS),
            (61440, OURS),
            (65536, THEIRS),
            (1 << 20, THEIRS),
        ] {
            assert_eq!(whose(&[], function, length), expected, "{function} of {length} bytes");
        }
    }
    assert_eq!(whose(&[], "overlap", 4096), THEIRS, "1 byte after the source, and in it");
    assert_eq!(whose(&[], "memset", 4096), THEIRS);
    let long: &OsStr = "1048576".as_ref();
    assert_eq!(whose(&[("BULKMEM_FROM", long)], "memcpy", 4096), OURS, "whatever the threshold");
    for (variable, value) in [("BULKMEM_FROM", "x"), ("BULKMEM_METHOD", "copy:c_library")] {
        assert_eq!(whose(&[(variable, value.as_ref())], "memcpy", 4096), THEIRS, "{variable}={value}");
    }
}

#[test]
fn without_a_policy_file_that_can_be_used_everything_is_the_c_librarys() {
    let text = fs::read_to_string(by_length()).unwrap();
    let damaged = [
        String::new(),
        text[..text.len() / 2].to_owned(),
        text.replace("portable", "nosuch"),
        "\0\u{ff}\n".repeat(9999),
    ];
    let file = |(at, text): (usize, &String)| {
        let path = Path::new(SCRATCH).join(format!("damaged-{at}.policy"));
        fs::write(&path, text).unwrap();
        path.into_os_string()
    };
    let mut files: Vec<_> = damaged.iter().enumerate().map(file).collect();
    files.extend(["/nonexistent/file", "/", "relative", "/dev/null"].map(Into::into));
    for path in files {
        for function in ["memset", "bzero", "memcpy"] {
            assert_eq!(who("BULKMEM_PROFILE", &path, function, 8 << 20), THEIRS, "{function} with {path:?}");
        }
    }
    for value in ["", "nonsense", "clear:nosuch", "clear"] {
        assert_eq!(who("BULKMEM_METHOD", value, "bzero", 8 << 20), THEIRS, "{value}");
    }
}

/// Checks that a program prints the same with the library, and no message.
#[track_caller]
fn prints_the_same(program: &Path) {
    let alone = run(&mut Command::new(program));
    assert_eq!(run(preloaded(program).env("BULKMEM_METHOD", NON_TEMPORAL)), alone);
}

#[test]
fn programs_with_musl_start_and_print_the_same() {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        println!(
            "skipped: a program with another C library: not installed; remedy: apt-get install musl-tools"
        );
        return;
    }
    let program = compile("musl-gcc", "portable.c", &["-O1"], "portable-musl");
    prints_the_same(&program);
    // musl says nothing of a library that it does not load.
    let loaded = run(preloaded(&program).arg("maps"));
    assert!(loaded.contains(&library().display().to_string()), "{loaded}");
}

#[test]
fn static_programs_print_the_same() {
    prints_the_same(&compile("cc", "portable.c", &["-O1", "-static"], "portable-static"));
}
