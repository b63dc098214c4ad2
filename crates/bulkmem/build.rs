//! Sets `cfg(with_methods)` for architectures that have a folder in `src/method/`, and `cfg(avx512)` if the compiler has
//! AVX-512, which is stable from Rust 1.89 on.

use std::process::Command;

/// Architectures with methods of their own, and the operating systems on which their instructions are detected.
const WITH_METHODS: [(&str, Option<&str>); 3] =
    [("x86_64", None), ("aarch64", Some("linux")), ("riscv64", Some("linux"))];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CARGO_CFG_MIRI");
    println!("cargo::rustc-check-cfg=cfg(avx512, with_methods)");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let (architecture, system) = (target("ARCH"), target("OS"));
    let known = WITH_METHODS.iter().find(|(name, _)| *name == architecture);
    // Miri cannot run assembly.
    if known.is_some_and(|(_, only)| only.is_none_or(|it| it == system))
        && std::env::var_os("CARGO_CFG_MIRI").is_none()
    {
        println!("cargo::rustc-cfg=with_methods");
    }
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
