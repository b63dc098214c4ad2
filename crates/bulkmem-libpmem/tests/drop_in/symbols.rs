//! The exported symbols with their versions.

use std::path::Path;
use std::process::Command;

use crate::toolchain::{debians, ours, run};

/// Kind and name with version of each symbol, without addresses.
fn exported(library: &Path) -> Vec<String> {
    let printed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let mut symbols: Vec<_> = printed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, symbol)| symbol.to_owned())
        .collect();
    symbols.sort();
    symbols
}

#[test]
fn the_functions_are_exported_with_pmdks_version_and_nothing_else_is() {
    let exported = exported(&ours().join("libpmem.so.1"));
    let (functions, others): (Vec<_>, Vec<_>) = exported.iter().partition(|symbol| symbol.starts_with("T "));
    assert_eq!(functions.len(), 23, "{functions:?}");
    let right = |symbol: &&String| symbol.starts_with("T pmem_") && symbol.ends_with("@@LIBPMEM_1.0");
    assert!(functions.iter().all(right), "{functions:?}");
    assert_eq!(others, ["A LIBPMEM_1.0"]);
}

#[test]
fn the_symbols_are_those_of_debians_library() {
    if let Some(debians) = debians() {
        assert_eq!(exported(&ours().join("libpmem.so.1")), exported(debians));
    }
}

#[test]
fn the_name_in_the_library_is_pmdks() {
    let headers = run(Command::new("objdump").arg("-p").arg(ours().join("libpmem.so.1")));
    let names = |kind: &str| -> Vec<String> {
        let lines = headers.lines().filter_map(|line| line.trim().strip_prefix(kind));
        lines.map(|name| name.trim().to_owned()).collect()
    };
    assert_eq!(names("SONAME "), ["libpmem.so.1"]);
    let needed = names("NEEDED ");
    assert!(
        needed.iter().all(|name| name.starts_with("libc.")
            || name.starts_with("libgcc_s.")
            || name.starts_with("ld-linux")),
        "{needed:?}"
    );
}
