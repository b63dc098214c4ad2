//! The header is the one that cbindgen generates, and the version script exports what it declares.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::toolchain::{SCRATCH, SOURCE, prefix, run};

#[test]
fn is_the_one_that_cbindgen_generates() {
    let source = Path::new(SOURCE);
    let generated = Path::new(SCRATCH).join("bulkmem.h");
    let stored = source.join("include/bulkmem.h");
    cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(source.join("cbindgen.toml")).unwrap())
        .with_src(source.join("src/lib.rs"))
        .generate()
        .unwrap()
        .write_to_file(&generated);
    let differ = fs::read(&generated).unwrap() != fs::read(&stored).unwrap_or_default();
    assert!(
        !differ,
        "the header is out of date: review the change of the interface, and run `cp {} {}`",
        generated.display(),
        stored.display()
    );
}

/// The functions that the header declares.
pub(crate) fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(Path::new(SOURCE).join("include/bulkmem.h")).unwrap();
    let code = header.lines().filter(|line| !line.starts_with("//") && !line.starts_with(" *"));
    let declarations =
        code.filter_map(|line| Some(line[line.find("bulkmem_")?..].split_once('(')?.0.to_owned()));
    declarations
        .filter(|name| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'))
        .collect()
}

/// The functions that the header calls async-signal-safe are called in a signal handler.
#[test]
fn async_signal_safe_functions_are_tested() {
    let header = fs::read_to_string(Path::new(SOURCE).join("include/bulkmem.h")).unwrap();
    let program = fs::read_to_string(Path::new(SOURCE).join("tests/c/signals.c")).unwrap();
    let handler = program.split_once("static void every_safe_call").unwrap().1;
    let handler = handler.split_once("\n}\n").unwrap().0;
    for function in declared() {
        let declares = |line: &str| !line.starts_with("//") && line.contains(&format!("{function}("));
        let block = header.split("\n\n").find(|block| block.lines().any(declares)).unwrap();
        let safe = block.contains("\n// Async-signal-safe");
        assert!(safe || block.contains("\n// Not async-signal-safe"), "{function}");
        assert!(!safe || handler.contains(&format!("{function}(")), "{function}");
    }
}

/// Every function is called by several threads at the same time, and by the child of a process with threads.
#[test]
fn functions_are_tested_in_threads_and_in_forked_children() {
    let read = |name: &str| fs::read_to_string(Path::new(SOURCE).join("tests/c").join(name)).unwrap();
    let shared = read("every_call.h");
    for program in ["threads.c", "forks.c"] {
        let own = read(program);
        for function in declared() {
            let call = format!("{function}(");
            assert!(shared.contains(&call) || own.contains(&call), "{program}: {function}");
        }
    }
}

#[test]
fn the_library_exports_what_it_declares_and_nothing_else() {
    let declared = declared();
    let map = fs::read_to_string(Path::new(SOURCE).join("libbulkmem.map")).unwrap();
    let listed: BTreeSet<String> =
        map.lines().filter_map(|line| line.trim().strip_suffix(';')).map(str::to_owned).collect();
    let listed: BTreeSet<String> = listed.into_iter().filter(|name| name != "*" && name != "}").collect();
    assert_eq!(listed, declared, "the version script");

    let library = prefix().join("lib/libbulkmem.so.0");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let exported: BTreeSet<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let expected: BTreeSet<String> = declared.iter().map(|name| format!("{name}@@BULKMEM_0")).collect();
    let mut expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    expected.insert("BULKMEM_0");
    assert_eq!(exported, expected, "the shared library");

    let symbols =
        run(Command::new("nm").args(["-g", "--defined-only"]).arg(prefix().join("lib/libbulkmem.a")));
    let global: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    assert_eq!(global, declared, "the static library");

    let dynamic = run(Command::new("readelf").arg("-d").arg(library));
    assert!(dynamic.contains("soname: [libbulkmem.so.0]") && dynamic.contains("NODELETE"), "{dynamic}");
}
