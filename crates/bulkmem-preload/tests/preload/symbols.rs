//! Exported symbols, and needed libraries.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::toolchain::{library, run};

/// The names in the map.
fn replaced() -> Vec<String> {
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("preload.map")).unwrap();
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    names
        .filter(|name| name.starts_with(|letter: char| letter == '_' || letter.is_ascii_lowercase()))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_functions_of_the_map_are_exported_without_a_version_and_nothing_else_is() {
    let printed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let exported: Vec<_> =
        printed.lines().filter_map(|line| line.split_once(' ')).map(|(_, symbol)| symbol).collect();
    let expected: Vec<_> = replaced().iter().map(|name| format!("T {name}")).collect();
    assert_eq!(expected.len(), 12);
    assert_eq!(exported, expected);
}

/// A call of memcpy by the library's own code would come back to the library, without end.
#[test]
fn the_library_does_not_call_the_functions_that_it_exports() {
    let relocations = run(Command::new("readelf").args(["-rW"]).arg(library()));
    assert!(relocations.contains("dlsym@GLIBC"), "{relocations}");
    for name in replaced() {
        let named = |line: &&str| {
            line.split_whitespace().any(|word| word == name || word.starts_with(&format!("{name}@")))
        };
        assert_eq!(relocations.lines().find(named), None);
    }
}

/// Another library could be missing in a program that has another C library.
#[test]
fn the_library_needs_the_c_library_only() {
    let headers = run(Command::new("objdump").arg("-p").arg(library()));
    let names = |kind: &str| -> Vec<String> {
        let lines = headers.lines().filter_map(|line| line.trim().strip_prefix(kind));
        lines.map(|name| name.trim().to_owned()).collect()
    };
    assert_eq!(names("SONAME "), ["libbulkmem_preload.so"]);
    assert_eq!(names("NEEDED "), ["libc.so.6"]);
}
