//! `bulkmem bench vm`, and what becomes of the huge pages that it reserves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::home::{HUGE_PAGES, Home, assert_fits, keys};

const SMALL: [&str; 12] = [
    "bench",
    "vm",
    "--size",
    "8M",
    "--page-size",
    "4K",
    "--method",
    "portable",
    "--runs",
    "2",
    "--threads",
    "1,2",
];

#[test]
fn the_table_fits_and_shows_fresh_and_reused_memory() {
    for columns in [80, 160] {
        let text = Home::new().text(&SMALL, columns);
        assert_fits(&text, columns as usize);
        for word in [
            "vm, 8 MiB in 4K pages, fresh memory",
            "vm, 8 MiB in 4K pages, reused memory",
            "kernel: prefault",
            "bulkmem prefault",
            "kernel: fallocate",
            "(independent processes)",
            "QEMU's preallocation: not measured",
            "the policy's choice",
            "portable",
            "bytes/ns",
            "prefault",
            "(release)",
            "±",
            "*",
            "KVM",
        ] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
}

#[test]
fn json_has_the_phases() {
    let found = Home::new().json(&[&SMALL[..], &["--json"]].concat());
    let rows = found["rows"].as_array().unwrap();
    let fresh = rows.iter().find(|row| row["candidate"]["name"] == "prefault").unwrap();
    assert_eq!((&fresh["config"]["memory"], &fresh["metric"]), (&"fresh".into(), &"seconds".into()));
    for key in ["bytes_per_ns", "first_s", "prefault_s", "release_s", "reserve_s"] {
        assert!(keys(&fresh["also"]).contains(&key), "{key}");
    }
    assert!(rows.iter().any(|row| row["candidate"]["name"] == "policy" && row["config"]["threads"] == 2));
}

#[test]
fn bad_arguments_name_cause_and_remedy() {
    let home = Home::new();
    for (arguments, message) in [
        (&["--size", "5000"][..], "not a whole number of"),
        (&["--size", "100T"], "available"),
        (&["--page-size", "8K"], "it has 4K"),
        (&["--threads", "0"], "--threads"),
        (&["--threads", "9999"], "--threads: 9999 is not from 1 to 1024"),
        (&["--method", "nosuch"], "unknown method `nosuch`"),
    ] {
        let assert = home.bulkmem().args(["bench", "vm"]).args(arguments).assert().failure();
        assert.stderr(contains(message)).stdout("");
    }
}

#[test]
fn help_says_what_it_shows_and_where_it_comes_from() {
    let home = Home::new();
    let assert = home.bulkmem().args(["bench", "vm", "--help"]).assert().success();
    assert.stdout(contains("Ankur Arora").and(contains("QEMU")).and(contains("prefault_s")));
}

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

fn reserved() -> Option<u64> {
    fs::read_to_string(POOL).ok()?.trim().parse().ok()
}

/// More bytes than the free huge pages, so that it must reserve some.
fn more_than_free() -> String {
    let file = POOL.replace("nr_hugepages", "free_hugepages");
    let free: u64 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    ((free + 16) << 21).to_string()
}

/// Returns true if huge pages can be reserved here; prints why not.
fn can_reserve() -> bool {
    match fs::File::options().write(true).open(POOL) {
        Ok(_) => true,
        Err(error) => {
            println!("skipped: huge pages released after an interruption: {POOL}: {error}");
            false
        }
    }
}

/// A long measurement in huge pages that it had to reserve; `None` if the kernel does not have them.
fn measuring(home: &Home, before: u64) -> Option<Child> {
    let mut child = home
        .spawnable()
        .args([
            "bench",
            "vm",
            "--size",
            &more_than_free(),
            "--page-size",
            "2M",
            "--runs",
            "10000",
            "--method",
            "portable",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    for _ in 0..1000 {
        if reserved() > Some(before) {
            // Nothing reads the rest; writing to it must not stop the command.
            thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
            return Some(child);
        }
        if child.try_wait().unwrap().is_some() {
            let said: Vec<String> = errors.lines().map_while(Result::ok).collect();
            assert!(said.iter().any(|line| line.contains("huge pages of 2M are needed")), "{said:?}");
            println!("skipped: huge pages released after an interruption: {said:?}");
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("it reserves no huge pages");
}

/// One test, as all of it changes one number of the machine's.
#[test]
fn huge_pages_are_given_back_however_it_ends() {
    let _guard = HUGE_PAGES.lock();
    if !can_reserve() {
        return;
    }
    let home = Home::new();
    for signals in [&[libc::SIGINT][..], &[libc::SIGTERM], &[libc::SIGINT, libc::SIGINT], &[libc::SIGKILL]] {
        let before = reserved().unwrap();
        let Some(mut child) = measuring(&home, before) else { return };
        for signal in signals {
            // SAFETY: our own child, not waited for yet.
            assert_eq!(unsafe { libc::kill(child.id().try_into().unwrap(), *signal) }, 0);
        }
        let status = child.wait().unwrap();
        assert!(!status.success(), "{signals:?}");
        for attempt in 0.. {
            match reserved().unwrap() {
                now if now == before => break,
                now => assert!(attempt < 1000, "{signals:?}: {now} pages are reserved, {before} were"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_hint_is_measured_beside_none_or_said_to_be_not_available() {
    let text = Home::new().text(&[&SMALL[..], &["--hint"]].concat(), 80);
    assert_fits(&text, 80);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match bulkmem_kmod::BulkHint::available() {
        Ok(()) => assert!(words.contains("kernel: prefault, hinted"), "{text}"),
        Err(error) => {
            println!("skipped: a hint beside none: {error}");
            assert!(words.contains("with a bulk hint: not available"), "{text}");
            assert!(words.contains("docs/kernel/README.md"), "{text}");
        }
    }
}
