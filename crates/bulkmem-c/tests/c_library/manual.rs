//! The manual pages and the book: every function has a page, and the code in them works.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::header;
use crate::toolchain::{Linkage, SCRATCH, SOURCE, command, compile, prefix, run};

/// The pages, by path, and their lines.
fn pages() -> Vec<(PathBuf, Vec<String>)> {
    let files = fs::read_dir(Path::new(SOURCE).join("man")).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: &Path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
    files.map(|path| (path.clone(), read(&path))).collect()
}

#[test]
fn every_function_is_in_one_page() {
    let mut named = BTreeMap::new();
    for (path, lines) in pages() {
        let names = lines.iter().take_while(|line| !line.starts_with(".Sh SYNOPSIS"));
        for name in names.filter_map(|line| line.strip_prefix(".Nm ")) {
            let name = name.trim_end_matches([',', ' ']).to_owned();
            assert!(prefix().join("share/man/man3").join(format!("{name}.3")).is_file(), "{name}");
            assert_eq!(named.insert(name, path.clone()), None, "{path:?}");
        }
    }
    for function in header::declared() {
        let page = named.remove(&function).unwrap_or_else(|| panic!("{function} is in no page"));
        let declares = |line: &str| line.starts_with(&format!(".Fn {function} "));
        let lines = fs::read_to_string(&page).unwrap();
        let long = format!(".Fo {function}");
        assert!(lines.lines().any(|line| declares(line) || line == long), "{function} in {page:?}");
    }
    assert_eq!(named.keys().collect::<Vec<_>>(), ["bulkmem", "bulkmem_options"], "no function has that name");
}

/// Constants of enums, flags, and members of the structs whose members programs use.
#[test]
fn every_constant_and_member_is_in_a_page() {
    let pages: String = pages().into_iter().flat_map(|(_, lines)| lines).map(|line| line + "\n").collect();
    let named = |name: &str| {
        pages.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == name)
    };
    // `Ok` has the number 0, which the pages use.
    let unnamed = ["BULKMEM_ERROR_OK", "BULKMEM_ERROR_INTERNAL", "BULKMEM_MUST_USE", "BULKMEM_H"];
    let header = fs::read_to_string(Path::new(SOURCE).join("include/bulkmem.h")).unwrap();
    let code = header.lines().filter(|line| !line.starts_with("//") && !line.starts_with(" *"));
    for line in code.filter(|line| line.starts_with("#define BULKMEM_") || line.starts_with("    ")) {
        let name = match line.strip_prefix("#define ") {
            Some(define) => define.split_whitespace().next(),
            None if line.trim_start().starts_with("//") => None,
            None => line.split(" = ").next().unwrap().split_whitespace().last(),
        };
        if let Some(name) = name.map(|name| name.trim_matches([';', '*'])) {
            assert!(named(name) || unnamed.contains(&name), "{name}");
        }
    }
}

#[test]
fn examples_work() {
    for (path, lines) in pages() {
        let from = lines.iter().position(|line| line == ".Sh EXAMPLES").expect("each page has an example");
        let example = lines[from..].iter().skip_while(|line| !line.starts_with(".Bd -literal"));
        let code: Vec<&str> = example.skip(1).take_while(|line| *line != ".Ed").map(String::as_str).collect();
        // How mdoc writes a backslash; no other escapes are used.
        let code: Vec<String> = code.iter().map(|line| line.replace("\\e", "\u{1}")).collect();
        for line in &code {
            assert!(!line.contains('\\') && !line.starts_with('.'), "{path:?} has another escape: {line}");
        }
        let name = path.with_extension("example.c");
        try_out(name.file_name().unwrap().to_str().unwrap(), &code.join("\n").replace('\u{1}', "\\"));
    }
}

/// man(1) indents it by 11 columns of 80.
#[test]
fn code_fits_a_terminal() {
    for (path, lines) in pages() {
        for block in lines.split(|line| line.starts_with(".Bd -literal")).skip(1) {
            let code = block.iter().take_while(|line| *line != ".Ed").map(|line| line.replace("\\e", "\\"));
            for line in code {
                assert!(line.chars().count() <= 69, "{path:?}: {line}");
            }
        }
    }
}

/// What code in the book stands in, if it is not a program.
const BEFORE: &str = "#include <bulkmem.h>
#include <stdio.h>
char memory[8 << 20], image[8 << 20], record[64], bytes[64], chunk[2 << 20];
int main(void)
{
    size_t length = sizeof memory;
    int error;
";
const AFTER: &str = "    return error;\n}";

#[test]
fn code_in_the_book_works() {
    for page in ["README.md", "docs/c.md", "docs/prefault.md", "docs/pool.md", "crates/bulkmem-c/README.md"] {
        let text = fs::read_to_string(Path::new(SOURCE).join("../..").join(page)).unwrap();
        let blocks = text.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        assert!(blocks.clone().count() > 0, "{page} has no code in C");
        for (number, code) in blocks.enumerate() {
            let program =
                if code.contains("main(") { code.to_owned() } else { format!("{BEFORE}{code}{AFTER}") };
            try_out(&format!("{}-{number}.c", page.replace('/', "-")), &program);
        }
    }
}

/// Compiles and runs a program.
fn try_out(name: &str, code: &str) {
    let source = Path::new(SCRATCH).join(name);
    fs::write(&source, format!("{code}\n")).unwrap();
    run(&mut command(compile(&["cc", "-std=c11"], &source, Linkage::Shared)));
}
