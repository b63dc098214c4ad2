//! The static libraries that cargo builds for tests of the C libraries.

use std::fs;
use std::path::PathBuf;

/// The static library of a crate, such as `bulkmem_c`, that cargo built for these tests: the newest, if there are several.
///
/// # Panics
/// If there is none.
pub fn archive(library: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let files = fs::read_dir(program.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let start = format!("lib{library}-");
    let archives = files.filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with(&start) && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds the static library for these tests").path()
}
