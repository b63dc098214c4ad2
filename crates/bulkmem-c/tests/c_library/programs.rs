//! Programs in C and C++, by two compilers, with the shared and the static library, sanitizers and Valgrind.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::huge_pages::HugePages;

use crate::toolchain::{Linkage, SOURCE, command, compile, installed, prefix, run, run_silently};

fn source(name: &str) -> PathBuf {
    Path::new(SOURCE).join("tests/c").join(name)
}

/// Runs programs with the libraries of each kind, if the compiler is installed.
fn programs(compiler: &[&str], names: &[&str]) {
    if !installed(compiler[0], &format!("programs by {}", compiler.join(" "))) {
        return;
    }
    for linkage in Linkage::ALL {
        for name in names {
            let program = compile(compiler, &source(name), linkage);
            run_silently(&mut command(&program));
            if *name == "signals.c" {
                run_silently(command(&program).arg("init"));
            }
        }
    }
}

const EVERY: [&str; 9] = [
    "operations.c",
    "policies.c",
    "prefault.c",
    "pool.c",
    "signals.c",
    "forks.c",
    "threads.c",
    "exhausted.c",
    "sudden.c",
];
/// Those that are C++, too.
const CPP: [&str; 6] = ["operations.c", "policies.c", "prefault.c", "pool.c", "forks.c", "threads.c"];

#[test]
fn c11_by_gcc() {
    programs(&["gcc", "-std=c11"], &EVERY);
}

#[test]
fn c11_by_clang() {
    programs(&["clang", "-std=c11"], &EVERY);
}

#[test]
fn cpp17_by_gcc() {
    programs(&["g++", "-std=c++17", "-x", "c++"], &CPP);
}

#[test]
fn cpp17_by_clang() {
    // It has no C++ library of its own.
    if installed("g++", "programs by clang++") {
        programs(&["clang++", "-std=c++17", "-x", "c++"], &CPP);
    }
}

#[test]
fn address_sanitizer() {
    // Its own locks are not released in the child of a fork.
    programs(
        &["gcc", "-std=c11", "-fsanitize=address"],
        &["operations.c", "policies.c", "prefault.c", "pool.c", "threads.c"],
    );
}

#[test]
fn undefined_behavior_sanitizer() {
    let compiler = ["gcc", "-std=c11", "-fsanitize=undefined", "-fno-sanitize-recover=all"];
    programs(&compiler, &CPP);
}

/// Of the program alone. `scripts/thread-sanitizer.sh` has the library built for it, too.
#[test]
fn thread_sanitizer() {
    if installed("gcc", "a program with ThreadSanitizer") {
        let compiler = ["gcc", "-std=c11", "-fsanitize=thread"];
        let program = compile(&compiler, &source("threads.c"), Linkage::Shared);
        // It sees the library's calls of malloc and free, but not the atomic instructions that order them.
        run_silently(command(program).env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1"));
    }
}

/// Not of prefault.c: Valgrind 3.19 does not know the system call mlock2. Nor of policies.c: it shows programs another processor, so
/// that policies of this one are refused.
#[test]
fn valgrind() {
    if installed("valgrind", "the C library under Valgrind") {
        let program = compile(&["cc", "-std=gnu11"], &source("operations.c"), Linkage::Shared);
        run(command("valgrind")
            .args(["-q", "--leak-check=full", "--errors-for-leak-kinds=definite", "--error-exitcode=9"])
            .arg(program));
    }
}

#[test]
fn the_library_can_be_closed_while_it_is_in_use() {
    for compiler in ["gcc", "clang"] {
        if installed(compiler, "a program that loads and closes the library") {
            let program = compile(&[compiler, "-std=c11"], &source("unload.c"), Linkage::Loaded);
            run_silently(&mut command(program));
        }
    }
}

#[test]
fn problems_have_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bulkmem/profile.policy");
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, "{}\n").unwrap();
    for linkage in Linkage::ALL {
        let program = compile(&["cc", "-std=gnu17"], &source("policies.c"), linkage);
        let problems = |variables: &[(&str, &Path)]| {
            run(command(&program).arg("problems").envs(variables.iter().copied()))
        };
        assert_eq!(problems(&[]), "");
        let refused = format!("{} is not used: it has the content of a profile", file.display());
        let printed = problems(&[("XDG_CONFIG_HOME", folder.path())]);
        assert!(printed.starts_with(&refused) && printed.lines().count() == 1, "{printed}");
        let odd = Path::new("clear:nonsense");
        let printed = problems(&[("BULKMEM_PROFILE", &file), ("BULKMEM_METHOD", odd), ("BULKMEM_LOOK", odd)]);
        let lines: Vec<&str> = printed.lines().collect();
        assert!(lines.len() == 3 && lines[0].starts_with(&refused), "{printed}");
        assert!(lines[1].starts_with("BULKMEM_METHOD") && lines[2].starts_with("BULKMEM_LOOK"), "{printed}");
    }
}

/// The constructor runs in both libraries: it copies the variables.
#[test]
fn an_invalid_variable_is_an_error_with_a_text() {
    for linkage in Linkage::ALL {
        let program = compile(&["cc", "-std=gnu17"], &source("operations.c"), linkage);
        assert_eq!(run(command(&program).arg("init")), "0 \n");
        let printed = run(command(&program).arg("init").env("BULKMEM_METHOD", "clear:nonsense"));
        assert!(
            printed.starts_with("-9 BULKMEM_METHOD") && printed.contains("unknown method `nonsense`"),
            "{printed}"
        );
    }
}

#[test]
fn memory_in_explicit_huge_pages() {
    for linkage in Linkage::ALL {
        let program = compile(&["cc", "-std=gnu11"], &source("operations.c"), linkage);
        let map = |pages: &str| run(command(&program).args(["huge", pages]));
        match HugePages::reserve(2) {
            Ok(_pages) => assert_eq!(map("2"), "0 \n"),
            Err(why) => println!("skipped: memory in reserved huge pages: {why}"),
        }
        let refused = map("1000000");
        assert!(refused.starts_with('-') && refused.contains("huge pages"), "{refused}");
    }
}

#[test]
fn pkg_config_says_how_to_link() {
    if installed("pkg-config", "the pkg-config file") {
        let ask = |arguments: &[&str]| run(command("pkg-config").args(arguments).arg("bulkmem"));
        let prefix = prefix().display();
        let shared = format!("-I{prefix}/include -L{prefix}/lib -lbulkmem");
        assert_eq!(ask(&["--cflags", "--libs"]).trim(), shared);
        assert_eq!(ask(&["--static", "--cflags", "--libs"]).trim(), format!("{shared} -pthread -ldl -lm"));
        assert_eq!(ask(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    }
}
