//! Tests the library and the command on persistent memory: files on DAX, mapped with MAP_SYNC.
//!
//! `kmod/tests/pmem.sh` boots a machine with persistent memory, formatted with ext4 and mounted at `/pmem`. The tests named
//! `bench_` also run where the kernel emulates that memory (`memmap=`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use bulkmem::method::Method;
use bulkmem::policy::Choice;
use bulkmem::{Error, Operation};
use libtest_mimic::Failed;
use rustix::io::Errno;
use testkit::guard::LINE;
use testkit::harness::Suite;

pub(crate) use map::Map;
use methods::{copy_persist_by, forced, methods, persist_by};

mod map;
mod methods;

const FOLDER: &str = "/pmem";
const PAGE: usize = 4096;

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("pmem::the_platform_keeps_what_reached_the_memory_controller", the_platform_keeps);
    suite.test("pmem::the_file_system_is_on_dax", the_file_system_is_on_dax);
    suite.test("pmem::map_sync_holds", map_sync_holds);
    suite.test("pmem::map_sync_is_refused_in_the_page_cache", map_sync_is_refused_in_the_page_cache);
    suite.test("pmem::every_method_writes_what_the_file_then_has", every_method_writes);
    suite.test("pmem::bench_persist_says_durable_and_runs_every_method", bench_persist);
    suite.test("pmem::bench_persist_says_page_cache_where_it_is", bench_persist_elsewhere);
    suite.test("pmem::bench_iops_says_durable", bench_iops);
    suite.test("pmem::a_write_cache_says_durable_and_runs_every_method", || bench_application("writecache"));
    suite.test("pmem::a_log_says_durable_and_runs_every_method", || bench_application("log"));
    suite.test("pmem::bench_takes_ram_a_file_and_a_device_together", bench_targets);
}

/// A file that is removed when dropped.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
}

impl Scratch {
    pub(crate) fn new(folder: &str, name: &str, length: usize) -> Result<Scratch, Failed> {
        let path = Path::new(folder).join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        file.set_len(length as u64)?;
        Ok(Scratch { path, file })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A remaining file does no harm.
        _ = fs::remove_file(&self.path);
    }
}

/// Checks what `docs/kernel/persistent-memory.md` tells users to check.
fn the_platform_keeps() -> Result<(), Failed> {
    let domain = fs::read_to_string("/sys/bus/nd/devices/region0/persistence_domain")?;
    assert_eq!(domain.trim(), "memory_controller");
    Ok(())
}

fn the_file_system_is_on_dax() -> Result<(), Failed> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let options = mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[1] == FOLDER).then(|| format!("{} {}", words[2], words[3]))
    });
    match options {
        Some(options) if options.starts_with("ext4 ") && options.contains("dax=always") => {}
        other => return Err(format!("{FOLDER} is mounted as {other:?}").into()),
    }
    let scratch = Scratch::new(FOLDER, "dax", PAGE)?;
    // SAFETY: a statx of zeros is valid, and the file is open.
    let (result, found) = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let empty = c"".as_ptr();
        let result = libc::statx(
            scratch.file.as_raw_fd(),
            empty,
            libc::AT_EMPTY_PATH,
            libc::STATX_BASIC_STATS,
            &mut found,
        );
        (result, found)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    let dax = libc::STATX_ATTR_DAX as u64;
    assert_eq!(found.stx_attributes & dax, dax, "the file is not on DAX");
    Ok(())
}

/// Returns the flags in `/proc/self/smaps` of the mapping at `start`.
pub(crate) fn smaps_flags(start: usize) -> Result<Vec<String>, Failed> {
    let smaps = fs::read_to_string("/proc/self/smaps")?;
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
    let flags =
        lines.find_map(|line| line.strip_prefix("VmFlags: ")).ok_or("smaps does not show the mapping")?;
    Ok(flags.split_whitespace().map(str::to_owned).collect())
}

fn map_sync_holds() -> Result<(), Failed> {
    let scratch = Scratch::new(FOLDER, "sync", PAGE)?;
    let flags_of = |mut map: Map| smaps_flags(map.bytes_mut().as_ptr().addr());
    let synchronous = flags_of(Map::synchronous(&scratch.file, PAGE)?)?;
    assert!(synchronous.iter().any(|flag| flag == "sf"), "{synchronous:?}");
    let ordinary = flags_of(Map::ordinary(&scratch.file, PAGE)?)?;
    assert!(!ordinary.iter().any(|flag| flag == "sf"), "{ordinary:?}");
    Ok(())
}

fn map_sync_is_refused_in_the_page_cache() -> Result<(), Failed> {
    let scratch = Scratch::new("/tmp", "refused", PAGE)?;
    assert_eq!(Map::synchronous(&scratch.file, PAGE).err(), Some(Errno::OPNOTSUPP));
    assert!(Map::ordinary(&scratch.file, PAGE).is_ok());
    Ok(())
}

/// Fills and persists by one of [`methods()`], as [`copy_persist_by`].
fn fill_persist_by(method: &'static Method, bytes: &mut [u8], byte: u8) -> Result<(), Error> {
    let choice = Choice::of(method, Operation::FillPersist);
    if method.available() {
        return forced(Operation::FillPersist, choice)?.fill_persist(bytes, byte);
    }
    let entry = method.code().fill_persist.expect("`methods` returned it for this operation");
    // SAFETY: a slice; the processor misses nothing but PREFETCHW, which is a no-op.
    unsafe { (entry.fenced)(bytes.as_mut_ptr(), bytes.len(), byte, &choice.parameters) }
    Ok(())
}

fn every_method_writes() -> Result<(), Failed> {
    const LENGTHS: [usize; 9] = [1, 8, 63, 64, 65, 200, 1000, PAGE, 3 * PAGE + 17];
    let persisting = methods(Operation::CopyPersist);
    // TCG supports SSE2, AVX, CLWB, CLFLUSHOPT and CLFLUSH: 4 methods bypass the cache, 9 use it.
    assert!(persisting.len() >= 13, "{persisting:?}");
    assert_eq!(methods(Operation::Persist).len(), 3);

    let scratch = Scratch::new(FOLDER, "methods", 1 << 20)?;
    let mut map = Map::synchronous(&scratch.file, 1 << 20)?;
    let mut random = fastrand::Rng::with_seed(4);
    let mut expected = vec![0; 1 << 20];
    for (method, length) in persisting.into_iter().flat_map(|method| LENGTHS.map(|length| (method, length))) {
        for offset in [0, 1, 37, LINE - 1] {
            let at = random.usize(..expected.len() / LINE - 300) * LINE + offset;
            random.fill(&mut expected[at..at + length]);
            copy_persist_by(method, &mut map.bytes_mut()[at..at + length], &expected[at..at + length])?;
        }
        if fs::read(&scratch.path)? != expected {
            return Err(format!("after {} of {length} bytes the file differs", method.name).into());
        }
    }
    let filling = methods(Operation::FillPersist);
    assert!(!filling.is_empty());
    for (method, byte) in filling.into_iter().zip(1..) {
        let range = 37..37 + 3 * PAGE + 17;
        expected[range.clone()].fill(byte);
        fill_persist_by(method, &mut map.bytes_mut()[range], byte)?;
        assert!(fs::read(&scratch.path)? == expected, "{}", method.name);
    }
    for method in methods(Operation::Persist) {
        random.fill(&mut expected);
        map.bytes_mut().copy_from_slice(&expected);
        persist_by(method, map.bytes_mut())?;
        assert!(fs::read(&scratch.path)? == expected, "{}", method.name);
    }
    Ok(())
}

/// Runs the command, which must succeed, and returns its tables and notes.
fn bulkmem(arguments: &[&str]) -> Result<String, Failed> {
    let output = Command::new("/bin/bulkmem").args(arguments).env("NO_COLOR", "1").output()?;
    let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
    if !output.status.success() {
        return Err(format!("bulkmem {}: {}\n{text}", arguments.join(" "), output.status).into());
    }
    Ok(text)
}

/// Returns the note on persistent memory: whether it is durable or emulated.
fn durable() -> Result<&'static str, Failed> {
    Ok(match fs::read_to_string("/proc/cmdline")?.contains("memmap=") {
        true => "mapped with MAP_SYNC, but emulated in ordinary memory (memmap=)",
        false => "mapped with MAP_SYNC: persisted bytes are durable",
    })
}

fn says(text: &str, what: &str) -> Result<(), Failed> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.join(" ").contains(what) { Ok(()) } else { Err(format!("no {what:?} in:\n{text}").into()) }
}

/// Returns the names in the rows of a CSV.
fn names(csv: &str) -> BTreeSet<&str> {
    csv.lines().filter_map(|line| line.split(',').nth(2)).collect()
}

/// Checks that the rows of a CSV have every method that persists here, and the policy's choice.
fn has_every_method(csv: &str) -> Result<(), Failed> {
    let measured = methods(Operation::CopyPersist).into_iter().filter(|method| method.available());
    for name in measured.map(|method| method.name).chain(["policy"]) {
        if !names(csv).contains(name) {
            return Err(format!("no row of {name}:\n{csv}").into());
        }
    }
    Ok(())
}

fn bench_application(name: &str) -> Result<(), Failed> {
    let target = ["--target", "/pmem/bench", "--size", "8M", "--time", "2ms", "--group", "8", "--runs", "1"];
    let arguments = [&["bench", name, "--peers", "none"], &target[..]].concat();
    says(&bulkmem(&arguments)?, durable()?)?;
    has_every_method(&bulkmem(&[&arguments[..], &["--method", "all", "--csv", "-"]].concat())?)?;
    assert!(!Path::new("/pmem/bench").exists(), "the file made goes away");
    Ok(())
}

fn bench_persist() -> Result<(), Failed> {
    let target =
        ["--target", "/pmem/bench", "--size", "64K", "--pattern", "sequential,random", "--runs", "1"];
    let arguments = [&["bench", "persist"], &target[..]].concat();
    let text = bulkmem(&arguments)?;
    says(&text, durable()?)?;
    let csv = bulkmem(&[&arguments[..], &["--csv", "-"]].concat())?;
    for pattern in ["sequential", "random"] {
        let rows: Vec<&str> = csv.lines().filter(|line| line.contains(pattern)).collect();
        has_every_method(&rows.join("\n"))?;
    }
    assert!(!Path::new("/pmem/bench").exists(), "the file made goes away");
    Ok(())
}

/// Ordinary memory, a file on DAX and device DAX in one run: each has the same rows, and only emulated memory, here or below
/// the file, is not durable.
fn bench_targets() -> Result<(), Failed> {
    const DEVICE: &str = "/dev/dax1.0";
    let targets = ["ram", "/pmem/bench", DEVICE];
    let list = targets.join(",");
    let methods = ["--method", "movnti,nontemporal_sse2", "--peers", "none", "--runs", "1", "--json"];
    let common = [&["--target", &list, "--overwrite"], &methods[..]].concat();
    let is_durable = durable()?.ends_with("durable");
    for (measurement, options) in [
        ("persist", &["--size", "2M"][..]),
        ("pollution", &["--op", "copy_persist", "--list", "4K", "--size", "64K", "--walks", "1"]),
    ] {
        let output =
            Command::new("/bin/bulkmem").args(["bench", measurement]).args(options).args(&common).output()?;
        assert!(output.status.success(), "{measurement}: {}", String::from_utf8_lossy(&output.stderr));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let rows = found["rows"].as_array().ok_or("no rows")?;
        // What the source alone evicts is measured once, in ordinary memory.
        let rows: Vec<_> = rows.iter().filter(|row| row["config"]["side"] != "source").collect();
        let of = |target: &str| -> Vec<&serde_json::Value> {
            rows.iter().copied().filter(|row| row["config"]["target"] == target).collect()
        };
        let names = |rows: &[&serde_json::Value]| -> Vec<String> {
            rows.iter().map(|row| row["candidate"]["name"].to_string()).collect()
        };
        let ordinary = of("ram");
        assert!(!ordinary.is_empty() && rows.len() == 3 * ordinary.len(), "{measurement}: {rows:?}");
        for target in targets {
            let own = of(target);
            assert_eq!(names(&own), names(&ordinary), "{measurement} of {target}");
            let expected = is_durable && target != "ram";
            assert!(
                own.iter().all(|row| (row["config"]["durable"] == true) == expected),
                "{target}: {own:?}"
            );
        }
    }
    assert!(!Path::new("/pmem/bench").exists(), "the file made goes away");
    // Later tests expect zeros at the start of the device.
    let size: usize = fs::read_to_string("/sys/bus/dax/devices/dax1.0/size")?.trim().parse()?;
    Map::ordinary(&File::options().read(true).write(true).open(DEVICE)?, size)?.bytes_mut()[..2 << 20]
        .fill(0);
    Ok(())
}

fn bench_persist_elsewhere() -> Result<(), Failed> {
    let text = bulkmem(&[
        "bench",
        "persist",
        "--target",
        "/tmp/bench",
        "--size",
        "64K",
        "--method",
        "movnti",
        "--runs",
        "1",
    ])?;
    says(&text, "MAP_SYNC was refused")?;
    assert!(!text.contains("are durable"), "{text}");
    Ok(())
}

fn bench_iops() -> Result<(), Failed> {
    let target = ["--target", "/pmem/bench", "--working-set", "256K", "--threads", "1", "--runs", "1"];
    let methods = ["--direction", "write", "--method", "c_library,movnti"];
    let arguments = [&["bench", "iops"], &target[..], &methods[..]].concat();
    let text = bulkmem(&arguments)?;
    for name in ["c_library", "movnti"] {
        let row = |line: &str| line.starts_with(name) && line.contains('±');
        assert!(text.lines().any(row), "no row of {name}:\n{text}");
    }
    says(&text, durable()?)
}
