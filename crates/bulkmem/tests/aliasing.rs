//! Copies that page aliasing slows down: the right bytes at every distance, by every form of the call; no look; and the
//! process-wide policy.
#![cfg(target_arch = "x86_64")]

use std::process::Command;
use std::sync::Mutex;
use std::{env, fs};

use bulkmem::machine::Machine;
use bulkmem::policy::{LineError, POLICY_FORMAT, POLICY_VERSION, Policy, PolicyFileError};
use bulkmem::{Operation, Options, look};

const PAGE: usize = 4096;

/// Held by tests whose copies look, because the looks of a process are counted together.
static LOOKS: Mutex<()> = Mutex::new(());

fn text(lines: &str) -> String {
    let cpu = &Machine::current().cpu;
    let cpu = format!("cpu {} {} {} {}", cpu.family, cpu.model, cpu.stepping, cpu.vendor);
    format!("{POLICY_FORMAT} {POLICY_VERSION}\n{cpu}\n{lines}end\n")
}

fn policy(lines: &str) -> Result<Policy, PolicyFileError> {
    Policy::from_file_bytes(text(lines).as_bytes(), Machine::current())
}

/// Copies `length` bytes to a place `distance` bytes after the source modulo the page size, by `copy`, and checks them and
/// the bytes around.
fn check(length: usize, distance: usize, copy: impl Fn(&mut [u8], &[u8])) {
    let source: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    let mut memory = vec![0xEE_u8; length + 3 * PAGE];
    let behind = source.as_ptr().addr().wrapping_sub(memory.as_ptr().addr()) % PAGE;
    let start = PAGE + (behind + distance) % PAGE;
    copy(&mut memory[start..start + length], &source);
    assert!(memory[start..start + length] == source, "{length} bytes at {distance}");
    let outside = memory[..start].iter().chain(&memory[start + length..]);
    assert!(outside.into_iter().all(|byte| *byte == 0xEE), "{length} bytes at {distance}: bytes outside");
}

const LENGTHS: [usize; 8] = [2047, 2048, 2049, 4096, 5001, 8191, 8192, 70_001];
const DISTANCES: [usize; 9] = [0, 1, 7, 15, 16, 31, 32, 100, 4095];

#[test]
fn the_bytes_are_right_by_every_form_of_the_call() {
    let _guard = LOOKS.lock();
    let rules =
        "rule copy throughput 0 c_library\nrule copy cached 0 c_library\nrule copy uncached 0 movnti\n";
    let policy =
        policy(&format!("{rules}look copy 8192 400 20000 c_library\naliasing copy 2048 65536 store_sse2\n"));
    let policy = policy.unwrap();
    let options = Options::new().policy(&policy).unwrap();
    for length in LENGTHS {
        for distance in DISTANCES {
            check(length, distance, |dst, src| options.copy(dst, src).unwrap());
            check(length, distance, |dst, src| {
                // SAFETY: slices, which do not overlap.
                unsafe { options.copy_raw(dst.as_mut_ptr(), src.as_ptr(), dst.len()) }
            });
            check(length, distance, |dst, src| {
                // SAFETY: slices, which do not overlap; fenced before they are read.
                unsafe { options.copy_unfenced(dst.as_mut_ptr(), src.as_ptr(), dst.len()) };
                bulkmem::method::fence();
            });
            check(length, distance, |dst, src| options.total_len(1 << 30).copy(dst, src).unwrap());
        }
    }
}

/// It has its method, whatever a look would find.
#[test]
fn an_aliased_copy_does_not_look() {
    let _guard = LOOKS.lock();
    let rules =
        "rule copy throughput 0 c_library\nrule copy cached 0 c_library\nrule copy uncached 0 movnti\n";
    let rules = format!("{rules}look copy 8192 400 20000 c_library\naliasing copy 2048 65536 store_sse2\n");
    let policy = policy(&rules).unwrap();
    let options = Options::new().policy(&policy).unwrap();
    let looks = |length, distance| {
        let count = || {
            let counts = look::counts(Operation::Copy);
            counts.cached + counts.uncached + counts.unmapped
        };
        let before = count();
        check(length, distance, |dst, src| options.copy(dst, src).unwrap());
        count() - before
    };
    assert_eq!((looks(16384, 8), looks(65535, 31)), (0, 0));
    assert_eq!((looks(16384, 0), looks(16384, 32), looks(65536, 8)), (1, 1, 1));
}

/// In a process of its own, with that policy file.
#[test]
fn the_plain_function_copies_right_by_the_process_wide_policy() {
    if env::var_os("BULKMEM_TEST_CHILD").is_some() {
        let policy = Policy::global();
        assert_eq!(policy.page_aliasing().map(|it| it.choice.method.name), Some("store_sse2"));
        // The first call finds out which lengths are short.
        for _ in 0..2 {
            for length in LENGTHS {
                for distance in DISTANCES {
                    check(length, distance, |dst, src| bulkmem::copy(dst, src).unwrap());
                }
            }
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.policy");
    fs::write(&file, text("rule copy throughput 0 c_library\naliasing copy 2048 65536 store_sse2\n"))
        .unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "the_plain_function_copies_right_by_the_process_wide_policy", "--nocapture"]);
    let output = command.env("BULKMEM_TEST_CHILD", "1").env("BULKMEM_PROFILE", &file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn lines_that_make_no_sense_are_refused() {
    let line = "aliasing copy 2048 65536 store_sse2\n";
    policy(line).unwrap();
    let refused = |lines: &str| match policy(lines) {
        Err(PolicyFileError::Line { error, .. }) => error,
        other => panic!("{lines}: {other:?}"),
    };
    for odd in [
        "aliasing",
        "aliasing copy 2048 65536",
        "aliasing copy 0 65536 store_sse2",
        "aliasing copy 65536 65536 store_sse2",
        "aliasing copy 2048 -1 store_sse2",
        "aliasing clear 2048 65536 store_sse2",
        "aliasing copy 2048 65536 store_sse2 store_sse2",
    ] {
        assert_eq!(refused(&format!("{odd}\n")), LineError::Fields, "{odd}");
    }
    for unknown in ["none", "clzero"] {
        assert_eq!(refused(&format!("aliasing copy 2048 65536 {unknown}\n")), LineError::Method, "{unknown}");
    }
    assert_eq!(refused(&line.repeat(2)), LineError::Order);
}
