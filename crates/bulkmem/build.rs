//! Sets `cfg(avx512)` if the compiler has AVX-512, which is stable from Rust 1.89 on.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(avx512)");
    if minor_version().is_none_or(|minor| minor >= 89) {
        println!("cargo::rustc-cfg=avx512");
    }
}

/// The second number of the compiler's version; `None` if the compiler does not say.
fn minor_version() -> Option<u32> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1)?.split('.').nth(1)?.parse().ok()
}
