//! The examples in examples/c find the library through pkg-config.

use std::fs;
use std::path::{Path, PathBuf};

use crate::toolchain::{SCRATCH, SOURCE, command, installed, run};

fn source() -> PathBuf {
    Path::new(SOURCE).join("../../examples/c")
}

/// An empty folder to build in.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(SCRATCH).join(name);
    _ = fs::remove_dir_all(&folder);
    folder
}

/// Runs the example.
fn check(program: &Path) {
    let printed = run(&mut command(program));
    assert!(printed.contains("8 snapshots"), "{printed}");
}

#[test]
fn cmake() {
    if installed("cmake", "the example for CMake") && installed("pkg-config", "the example for CMake") {
        let folder = folder("cmake");
        run(command("cmake").arg("-S").arg(source()).arg("-B").arg(&folder));
        run(command("cmake").arg("--build").arg(&folder));
        check(&folder.join("snapshots"));
    }
}

#[test]
fn meson() {
    if ["meson", "ninja", "pkg-config"].iter().all(|program| installed(program, "the example for Meson")) {
        let folder = folder("meson");
        run(command("meson").arg("setup").arg(&folder).arg(source()));
        run(command("ninja").arg("-C").arg(&folder));
        check(&folder.join("snapshots"));
    }
}
