//! `bulkmem prefault`: files, limits, interruption.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Stdio;

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{Home, assert_fits, limit_file_size};

/// A file on a tmpfs, removed when dropped.
struct Shared(PathBuf);

impl Shared {
    fn new(name: &str) -> Shared {
        Shared(PathBuf::from(format!("/dev/shm/bulkmem-test-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn allocated(&self) -> u64 {
        fs::metadata(&self.0).unwrap().blocks() * 512
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_is_created_filled_and_never_truncated() {
    let (home, file) = (Home::new(), Shared::new("create"));
    let text = home.text(&["prefault", file.path(), "--create", "--size", "8M", "--threads", "2"], 80);
    assert!(text.contains("8 MiB are ready") && text.contains("GB/s"), "{text}");
    assert_eq!(file.allocated(), 8 << 20);
    assert_eq!(fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
    fs::File::options().write(true).open(&file.0).unwrap().set_len(16 << 20).unwrap();
    // A part of a longer file, then all of it.
    home.text(&["prefault", file.path(), "--create", "--size", "9M"], 80);
    assert_eq!((fs::metadata(&file.0).unwrap().len(), file.allocated()), (16 << 20, 9 << 20));
    let found = home.json(&["prefault", file.path(), "--json", "--interleave", "--cpu-share", "90"]);
    assert_eq!(found["ready"], 16 << 20);
    assert_eq!((&found["complete"], &found["error"]), (&true.into(), &serde_json::Value::Null));
    assert!(found["seconds"].as_f64().unwrap() > 0.0 && found["page_size"].as_u64().unwrap() >= 4096);
    assert_eq!(file.allocated(), 16 << 20);
}

#[test]
fn errors_name_cause_and_remedy() {
    let (home, file) = (Home::new(), Shared::new("errors"));
    let fails = |arguments: &[&str], code: i32, words: [&str; 2]| {
        let assert = home.bulkmem().arg("prefault").args(arguments).assert().code(code);
        assert.stderr(contains(words[0]).and(contains(words[1])));
    };
    fails(&[file.path()], 1, ["No such file", "--create --size"]);
    fails(&[file.path(), "--create"], 2, ["--size", "required"]);
    let mut limited = home.spawnable();
    limit_file_size(&mut limited, 1 << 20);
    let output = limited.args(["prefault", file.path(), "--create", "--size", "2M"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot extend") && said.contains("give a size"), "{said}");
    assert!(!file.0.exists(), "no empty file stays");
    fs::write(&file.0, "").unwrap();
    fails(&[file.path()], 2, ["is empty", "--size"]);
    fs::write(&file.0, "kept").unwrap();
    fails(&[file.path(), "--size", "1M"], 1, ["0 B of 1 MiB are ready", "--create extends"]);
    assert_eq!(fs::read(&file.0).unwrap(), b"kept");
    fails(&[file.path(), "--node", "1000"], 1, ["NUMA node 1000 has no memory", "name some of those"]);
    fails(&[file.path(), "--cpu-share", "0"], 2, ["--cpu-share", "0"]);
    fails(&["/dev/null", "--size", "1M"], 1, ["not a regular file", "0 B of 1 MiB"]);
    // More than any machine has stays free; the page with the text exists.
    let arguments = [file.path(), "--create", "--size", "1M", "--keep-free", "100T"];
    fails(&arguments, 1, ["4 KiB of 1 MiB are ready", "stay free"]);
    let output = home.bulkmem().arg("prefault").args(arguments).arg("--json").assert().code(1);
    let found: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!((&found["complete"], &found["ready"]), (&false.into(), &4096.into()));
    assert!(found["error"].as_str().unwrap().contains("100 TiB stay free"), "{found}");
}

#[test]
fn an_interruption_says_how_much_is_ready() {
    let (home, file) = (Home::new(), Shared::new("interrupted"));
    let mut child = home
        .spawnable()
        .args(["prefault", file.path(), "--create", "--size", "64M", "--rate", "2M"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Until it works, and the progress is shown.
    let mut errors = child.stderr.take().unwrap();
    let mut said = vec![0; 1];
    errors.read_exact(&mut said).unwrap();
    // SAFETY: our own child, not waited for yet.
    assert_eq!(unsafe { libc::kill(child.id().try_into().unwrap(), libc::SIGINT) }, 0);
    errors.read_to_end(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let said = String::from_utf8(said).unwrap();
    assert!(said.starts_with("prefault: ") && said.contains("GB/s"), "{said}");
    assert!(said.contains("interrupted: ") && said.contains("of 64 MiB are ready"), "{said}");
    assert!(file.allocated() > 0 && file.allocated() < 64 << 20);
}

#[test]
fn help_says_what_it_does() {
    for columns in [80, 100] {
        let text = Home::new().text(&["prefault", "--help"], columns);
        assert_fits(&text, columns as usize);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in ["hugetlbfs", "Never truncates", "--keep-free", "docs/prefault.md"] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
}
