//! Finds out whether the processor of this process is emulated, so that times say nothing about a processor.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Number of this architecture in ELF files; `None` if this module does not know it.
const ARCHITECTURE: Option<u16> = if cfg!(target_arch = "x86_64") {
    Some(62)
} else if cfg!(target_arch = "aarch64") {
    Some(183)
} else if cfg!(target_arch = "riscv64") {
    Some(243)
} else {
    None
};

/// The name of the program that emulates a processor for this process; `None` if there is none.
///
/// The kernel knows which file it executes: in `/proc/thread-self/exe`, which QEMU does not replace, as it does
/// `/proc/self/exe`, by the emulated program. If that file is a program of another architecture, it is an emulator. QEMU for
/// the same architecture is known by its name.
pub(super) fn of_process(root: &Path) -> Option<String> {
    let path = root.join("proc/thread-self/exe");
    let mut executed = File::open(&path).ok()?;
    let mut head = [0; 20];
    executed.read_exact(&mut head).ok()?;
    let name = fs::read_link(&path).ok()?.file_name()?.to_string_lossy().into_owned();
    let foreign = architecture(&head)? != ARCHITECTURE?;
    let another = || {
        let place = |file: &File| file.metadata().ok().map(|about| (about.dev(), about.ino()));
        let shown = File::open(root.join("proc/self/exe")).ok();
        shown.is_some_and(|shown| place(&shown) != place(&executed))
    };
    (foreign || name.starts_with("qemu-") && another()).then_some(name)
}

/// The architecture of an ELF file by its first bytes; `None` if it is none.
fn architecture(head: &[u8; 20]) -> Option<u16> {
    let number = [head[18], head[19]];
    match head {
        [0x7f, b'E', b'L', b'F', _, 1, ..] => Some(u16::from_le_bytes(number)),
        [0x7f, b'E', b'L', b'F', _, 2, ..] => Some(u16::from_be_bytes(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The first bytes of a program for an architecture.
    fn program(architecture: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(architecture.to_le_bytes());
        bytes
    }

    /// What is found if the kernel executes one file and `/proc/self/exe` is another, each with a name and content.
    fn found(executed: (&str, &[u8]), shown: (&str, &[u8])) -> Option<String> {
        let root = tempfile::tempdir().unwrap();
        for (folder, (name, bytes)) in [("thread-self", executed), ("self", shown)] {
            fs::write(root.path().join(name), bytes).unwrap();
            let folder = root.path().join("proc").join(folder);
            fs::create_dir_all(&folder).unwrap();
            symlink(root.path().join(name), folder.join("exe")).unwrap();
        }
        of_process(root.path())
    }

    #[test]
    fn a_program_of_another_architecture_is_an_emulator() {
        let own = program(ARCHITECTURE.unwrap());
        let other = program(20);
        assert_eq!(found(("qemu-new", &other), ("program", &own)).as_deref(), Some("qemu-new"));
        assert_eq!(found(("translator", &other), ("program", &own)).as_deref(), Some("translator"));
        assert_eq!(found(("program", &own), ("program", &own)), None);
    }

    #[test]
    fn qemu_for_the_same_architecture_is_known_unless_it_is_the_program_itself() {
        let own = program(ARCHITECTURE.unwrap());
        assert_eq!(found(("qemu-same", &own), ("program", &own)).as_deref(), Some("qemu-same"));
        assert_eq!(found(("qemu-system", &own), ("qemu-system", &own)), None);
        assert_eq!(
            found(("loader", &own), ("program", &own)),
            None,
            "the loader of a program is no emulator"
        );
    }

    #[test]
    fn what_cannot_be_read_is_no_emulator() {
        assert_eq!(of_process(Path::new("/nonexistent")), None);
        for damaged in [&b""[..], b"#!/bin/sh\nexit 0\n# long enough", &program(20)[..19]] {
            assert_eq!(found(("qemu-new", damaged), ("program", damaged)), None);
        }
    }

    /// `scripts/test-arch.sh` runs this test under an emulator too.
    #[test]
    fn the_emulator_of_the_tests_is_found() {
        let emulated = std::env::var_os("BULKMEM_TEST_EMULATOR").is_some();
        let found = of_process(Path::new("/"));
        assert_eq!(found.as_ref().is_some_and(|name| name.starts_with("qemu-")), emulated, "{found:?}");
    }
}
