//! Tests the replacement of `__memcpy_flushcache()`: every byte, by each method, for all lengths and places; which bytes a
//! power failure would lose, by executing single instructions; and the parameters and counters. `bulkmem_steps.c` calls the
//! kernel's function.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::command::{json, text};
use crate::loading::{logged, refused};
use crate::module;

const METHODS: [&str; 4] = ["stock", "movnti", "clwb", "clflushopt"];
const LINE: u64 = 64;
/// In `/sys/kernel/livepatch`, if the function is replaced.
const REPLACED: &str = "/sys/kernel/livepatch/bulkmem/vmlinux/__memcpy_flushcache,1";

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("flushcache::off_by_default", off_by_default);
    suite.test("flushcache::parameters", parameters);
    suite.test("flushcache::threshold", threshold);
    for method in METHODS {
        suite.test(&format!("flushcache::every_length_and_place::{method}"), move || every_place(method));
        suite.test(&format!("flushcache::nothing_is_lost::{method}"), move || nothing_is_lost(method));
    }
    suite.test("flushcache::stock_is_the_kernels", stock_is_the_kernels);
    suite.test("flushcache::switched_under_copies", switched_under_copies);
    suite.test("flushcache_module::refused_where_the_self_test_fails", refused_where_the_self_test_fails);
    suite.test("flushcache_module::unloaded_under_copies", unloaded_under_copies);
    suite.test("command::status_tells_of_copies_to_persistent_memory", shown_by_the_command);
    // For a processor without CLWB and CLFLUSHOPT.
    suite.test("flushless::methods_that_need_instructions_are_refused", without_instructions);
}

/// `struct request` of `bulkmem_steps.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Request {
    to: u64,
    from: u64,
    length: u64,
    last: u64,
    how: u64,
    wrong: u64,
    lost: u64,
    movnti: u64,
    clwb: u64,
    clflushopt: u64,
    clflush: u64,
    sfence: u64,
}

const COMPARE: u64 = 0;
const STEP: u64 = 1;
const AT_END: u64 = 2;

/// The device that calls the kernel's function.
#[derive(Debug)]
struct Steps(File);

impl Steps {
    fn open() -> io::Result<Steps> {
        const FILE: &str = "/dev/bulkmem_steps";
        if !fs::exists(FILE)? {
            module::insert("/bulkmem_steps.ko", "")?;
        }
        Ok(Steps(File::open(FILE)?))
    }

    fn call(&self, mut request: Request) -> io::Result<Request> {
        // _IOWR('b', 0x70, struct request)
        const BULKMEM_STEPS: libc::Ioctl =
            (3 << 30 | size_of::<Request>() << 16 | (b'b' as usize) << 8 | 0x70) as libc::Ioctl;
        // SAFETY: the request is as long as its number says, and lives during the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), BULKMEM_STEPS, &raw mut request) };
        if result == 0 { Ok(request) } else { Err(io::Error::last_os_error()) }
    }

    /// Copies `length` bytes to the second byte of a line.
    fn copy(length: u64) -> Result<(), Failed> {
        Steps::open()?.compare(COMPARE, 1, 0, length, length)
    }

    /// Copies every length from `length` to `last`, and compares.
    fn compare(&self, how: u64, to: u64, from: u64, length: u64, last: u64) -> Result<(), Failed> {
        let answer = self.call(Request { to, from, length, last, how, ..Request::default() })?;
        match answer.wrong {
            0 => Ok(()),
            _ => Err(format!("wrong bytes: {answer:?}").into()),
        }
    }

    /// Executes a copy instruction by instruction.
    fn step(&self, to: u64, from: u64, length: u64) -> Result<Request, Failed> {
        let answer =
            self.call(Request { to, from, length, last: length, how: STEP, ..Request::default() })?;
        if answer.wrong != 0 || answer.lost != 0 {
            return Err(format!("wrong bytes, or bytes that a power failure would lose: {answer:?}").into());
        }
        Ok(answer)
    }
}

/// True if /proc/cpuinfo has the flag.
fn processor_has(flag: &str) -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|known| known == flag)
}

/// Loads the module with the function replaced, unless it is, and makes a method copy everything.
fn choose(method: &str) -> Result<Steps, Failed> {
    // A module that another process loaded may be another one.
    static OURS: AtomicBool = AtomicBool::new(false);
    if !OURS.swap(true, Ordering::Relaxed) || !Path::new(REPLACED).exists() {
        module::gone()?;
        module::load("flushcache=1")?;
    }
    assert!(Path::new(REPLACED).exists(), "flushcache=1 does not replace the function");
    // A copy by the other parameter would be seen in the counters.
    module::set("flushcache_small_method", if method == "stock" { "movnti" } else { "stock" })?;
    module::set("flushcache_method", method)?;
    module::set("flushcache_threshold", "0")?;
    Ok(Steps::open()?)
}

type Counters = BTreeMap<String, u64>;

fn counters() -> Result<Counters, Failed> {
    let mut counters = Counters::new();
    for entry in fs::read_dir("/sys/class/misc/bulkmem/flushcache")? {
        let entry = entry?;
        let value = fs::read_to_string(entry.path())?.trim().parse()?;
        counters.insert(entry.file_name().to_string_lossy().into_owned(), value);
    }
    assert_eq!(counters.len(), 2 * METHODS.len(), "{counters:?}");
    Ok(counters)
}

/// Checks that `work` adds these calls and bytes to the counters of the methods, and nothing else.
fn counted(expected: &[(&str, u64, u64)], work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    let before = counters()?;
    work()?;
    let mut now = counters()?;
    now.iter_mut().for_each(|(name, value)| *value -= before[name]);
    now.retain(|_, value| *value != 0);
    let mut wanted = Counters::new();
    for (method, calls, bytes) in expected {
        wanted.insert(format!("{method}_calls"), *calls);
        wanted.insert(format!("{method}_bytes"), *bytes);
    }
    wanted.retain(|_, value| *value != 0);
    if now == wanted { Ok(()) } else { Err(format!("counted {now:?} in place of {wanted:?}").into()) }
}

fn off_by_default() -> Result<(), Failed> {
    module::gone()?;
    module::load("")?;
    assert!(!Path::new(REPLACED).exists(), "the function is replaced without flushcache=1");
    assert_eq!(module::get("flushcache")?, "N");
    let steps = Steps::open()?;
    counted(&[], || steps.compare(COMPARE, 1, 2, 0, 300))?;
    for parameter in ["flushcache_method", "flushcache_small_method"] {
        assert_eq!(module::get(parameter)?, "stock");
        module::set(parameter, "stock")?;
        match module::set(parameter, "movnti").map_err(|error| error.raw_os_error()) {
            Err(Some(libc::EOPNOTSUPP)) => {}
            other => return Err(format!("{parameter}: {other:?}").into()),
        }
        let text = logged(|| refused(&format!("{parameter}=movnti"), libc::EINVAL))?;
        assert!(
            text.contains("bulkmem: flushcache_method and flushcache_small_method need flushcache=1"),
            "{text}"
        );
        module::load("")?;
    }
    module::gone()?;
    // In any order.
    module::load(
        "flushcache_method=movnti flushcache_threshold=4096 flushcache=1 flushcache_small_method=stock",
    )?;
    assert_eq!(module::get("flushcache")?, "Y");
    assert_eq!(module::get("flushcache_method")?, "movnti");
    assert_eq!(module::get("flushcache_threshold")?, "4096");
    counted(&[("movnti", 1, 4096), ("stock", 2, 4094 + 4095)], || steps.compare(COMPARE, 0, 0, 4094, 4096))
}

fn parameters() -> Result<(), Failed> {
    choose("stock")?;
    let available: Vec<&str> = METHODS
        .into_iter()
        .filter(|method| match *method {
            "clwb" | "clflushopt" => processor_has(method),
            _ => true,
        })
        .collect();
    assert_eq!(module::get("flushcache_available")?, available.join(" "));
    for parameter in ["flushcache_method", "flushcache_small_method"] {
        for method in &available {
            module::set(parameter, format!("{method}\n"))?;
            assert_eq!(module::get(parameter)?, *method);
        }
    }
    for threshold in [0, 1, 4097, u64::MAX] {
        module::set("flushcache_threshold", threshold.to_string())?;
        assert_eq!(module::get("flushcache_threshold")?, threshold.to_string());
    }
    for (parameter, value, error) in [
        ("flushcache_method", "rep_movsb", libc::EINVAL),
        ("flushcache_method", "clwb ", libc::EINVAL),
        ("flushcache_small_method", "clzero", libc::EINVAL),
        ("flushcache_threshold", "-1", libc::EINVAL),
        ("flushcache_threshold", "4K", libc::EINVAL),
        ("flushcache_threshold", "18446744073709551616", libc::EINVAL),
        ("flushcache_available", "stock", libc::EACCES),
        ("flushcache", "0", libc::EACCES),
    ] {
        let before = module::get(parameter)?;
        match module::set(parameter, value).map_err(|error| error.raw_os_error()) {
            // Root is refused by the missing function and not by the permissions.
            Err(Some(number)) if number == error || error == libc::EACCES => {}
            other => return Err(format!("{parameter}={value}: {other:?} in place of error {error}").into()),
        }
        assert_eq!(module::get(parameter)?, before, "{parameter}={value}");
    }
    Ok(())
}

fn threshold() -> Result<(), Failed> {
    let steps = choose("movnti")?;
    for threshold in [1, 100, 768, 4096] {
        module::set("flushcache_threshold", threshold.to_string())?;
        let below = threshold - 1;
        counted(&[("stock", 1, below), ("movnti", 2, 2 * threshold + 1)], || {
            steps.compare(COMPARE, 3, 5, below, threshold + 1)
        })?;
    }
    Ok(())
}

/// Copies all lengths up to some lines, from and to each place in a line; pages; and to and from the end of mapped memory.
fn every_place(method: &str) -> Result<(), Failed> {
    const LENGTHS: u64 = 4 * LINE + 9;
    let steps = choose(method)?;
    let calls = LINE * LINE * (LENGTHS + 1);
    counted(&[(method, calls, LINE * LINE * (LENGTHS * (LENGTHS + 1) / 2))], || {
        for to in 0..LINE {
            for from in 0..LINE {
                steps.compare(COMPARE, to, from, 0, LENGTHS)?;
            }
        }
        Ok(())
    })?;
    for place in 0..LINE {
        let length = 2 * 4096 + 37 * place;
        counted(&[(method, 1, length)], || steps.compare(COMPARE, place, place * 7 % LINE, length, length))?;
    }
    counted(&[(method, 1001, 1000 * 1001 / 2)], || steps.compare(AT_END, 0, 0, 0, 1000))
}

/// The instructions that a copy must execute, according to the documentation.
fn expected(method: &str, to: u64, length: u64) -> (u64, u64) {
    let (mut movnti, mut flushed) = (0, 0);
    if length == 0 {
        return (0, 0);
    }
    if method == "clwb" || method == "clflushopt" {
        return (0, (to + length).div_ceil(LINE) - to / LINE);
    }
    // Up to the first whole word, by words, by four bytes, and the rest: both methods execute as many instructions.
    let head = length.min(to.wrapping_neg() % 8);
    let rest = length - head;
    flushed += u64::from(head != 0);
    movnti += rest / 8 + u64::from(rest % 8 >= 4);
    flushed += u64::from(!rest.is_multiple_of(4));
    (movnti, flushed)
}

fn nothing_is_lost(method: &str) -> Result<(), Failed> {
    let steps = choose(method)?;
    let before = counters()?;
    let lengths: Vec<u64> =
        (1..=40).chain([63, 64, 65, 71, 96, 127, 128, 129, 191, 200, 256, 512, 768, 1024]).collect();
    let mut total = Request::default();
    let mut copies = 0;
    for to in [0, 1, 3, 4, 7, 8, 12, 29, 32, 33, 56, 59, 60, 61, 63] {
        for &length in &lengths {
            let answer = steps.step(to, (to * 5 + length) % LINE, length)?;
            let (movnti, flushed) = expected(method, to, length);
            // The parts of words are written back by the kernel's function.
            let best = match method {
                "clwb" | "clflushopt" => method,
                _ if processor_has("clwb") => "clwb",
                _ if processor_has("clflushopt") => "clflushopt",
                _ => "clflush",
            };
            let mut wanted = Request { movnti, wrong: 0, lost: 0, ..answer };
            (wanted.clwb, wanted.clflushopt, wanted.clflush, wanted.sfence) = (0, 0, 0, 0);
            match best {
                "clwb" => wanted.clwb = flushed,
                "clflushopt" => wanted.clflushopt = flushed,
                _ => wanted.clflush = flushed,
            }
            if answer != wanted {
                return Err(format!("{method} executed {answer:?}\n in place of {wanted:?}").into());
            }
            total.movnti += answer.movnti;
            total.clwb += answer.clwb;
            total.clflushopt += answer.clflushopt;
            total.clflush += answer.clflush;
            copies += 1;
        }
    }
    println!("{method}: {copies} copies executed {total:?}");
    assert_eq!(counters()?[&format!("{method}_calls")] - before[&format!("{method}_calls")], copies);
    Ok(())
}

/// The kernel's own function loses nothing either, which shows that the test is right, and executes as many instructions.
fn stock_is_the_kernels() -> Result<(), Failed> {
    let steps = Steps::open()?;
    let lengths = [1, 3, 4, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 255, 512];
    let copy_all = || -> Result<Vec<Request>, Failed> {
        let places = (0..LINE).step_by(3).flat_map(|to| lengths.map(|length| (to, length)));
        places.map(|(to, length)| steps.step(to, to * 5 % LINE, length)).collect()
    };
    choose("stock")?;
    let ours = copy_all()?;
    module::gone()?;
    let kernels = copy_all()?;
    assert_eq!(ours, kernels);
    Ok(())
}

/// Copies on another processor while `work` runs; fails if a byte was wrong.
fn under_copies(work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    let steps = Steps::open()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let copier = scope.spawn(|| {
            let mut rounds = 0_u64;
            while !done.load(Ordering::Relaxed) {
                steps
                    .compare(COMPARE, rounds % LINE, rounds * 7 % LINE, 0, 300)
                    .map_err(|error| format!("{error:?}"))?;
                rounds += 1;
            }
            Ok::<u64, String>(rounds)
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        let rounds = copier.join().map_err(|_| "the copier panicked")??;
        assert!(rounds > 0, "nothing was copied");
        result
    })
}

fn switched_under_copies() -> Result<(), Failed> {
    choose("stock")?;
    let available = module::get("flushcache_available")?;
    let before = counters()?;
    under_copies(|| {
        for round in 0..200 {
            for method in available.split(' ') {
                module::set(
                    if round % 2 == 0 { "flushcache_method" } else { "flushcache_small_method" },
                    method,
                )?;
                thread::sleep(std::time::Duration::from_millis(2));
            }
            module::set("flushcache_threshold", (round % 5 * 64).to_string())?;
        }
        Ok(())
    })?;
    let after = counters()?;
    for method in available.split(' ') {
        let name = format!("{method}_calls");
        assert!(after[&name] > before[&name], "{method} copied nothing: {after:?}");
    }
    Ok(())
}

fn unloaded_under_copies() -> Result<(), Failed> {
    let available = module::get("flushcache_available").unwrap_or_else(|_| "stock movnti".to_owned());
    module::gone()?;
    under_copies(|| {
        for method in available.split(' ') {
            module::load(&format!("flushcache=1 flushcache_method={method} flushcache_threshold=0"))?;
            assert!(Path::new(REPLACED).exists());
            thread::sleep(std::time::Duration::from_millis(100));
            assert!(counters()?[&format!("{method}_calls")] > 0, "{method} copied nothing");
            module::unload()?;
        }
        Ok(())
    })
}

fn refused_where_the_self_test_fails() -> Result<(), Failed> {
    for method in METHODS {
        if ["clwb", "clflushopt"].contains(&method) && !processor_has(method) {
            continue;
        }
        let text = logged(|| refused(&format!("selftest_flushcache_fault={method}"), libc::EIO))?;
        let said =
            text.lines().any(|line| line.contains(&format!("bulkmem: self-test of flushcache: {method}: ")));
        assert!(said, "the log does not say which method failed: {text}");
    }
    module::load("").map_err(Failed::from)
}

fn without_instructions() -> Result<(), Failed> {
    assert!(!processor_has("clwb") && !processor_has("clflushopt"), "this test is for another processor");
    choose("stock")?;
    assert_eq!(module::get("flushcache_available")?, "stock movnti");
    for method in ["clwb", "clflushopt"] {
        match module::set("flushcache_method", method).map_err(|error| error.raw_os_error()) {
            Err(Some(libc::EOPNOTSUPP)) => {}
            other => return Err(format!("{method}: {other:?}").into()),
        }
        refused(&format!("flushcache=1 flushcache_method={method}"), libc::EOPNOTSUPP)?;
        choose("stock")?;
    }
    // Here the kernel writes parts of words back by CLFLUSH.
    for method in ["stock", "movnti"] {
        nothing_is_lost(method)?;
    }
    Ok(())
}

fn shown_by_the_command() -> Result<(), Failed> {
    const SECTION: &str = "Copies to persistent memory";
    module::fresh()?;
    assert_eq!(json(&["kmod", "status", "--json"])?["flushcache"]["replaced"], false);
    assert!(!text(&["kmod", "status"])?.contains(SECTION));
    assert!(!text(&["kmod", "status", "--prometheus"])?.contains("flushcache"));
    module::gone()?;
    module::load("flushcache=1 flushcache_method=clwb flushcache_threshold=1000")?;
    Steps::copy(999)?;
    Steps::copy(1000)?;
    Steps::copy(2000)?;
    let found = json(&["kmod", "status", "--json"])?["flushcache"].clone();
    assert_eq!(
        (&found["replaced"], &found["method"], &found["small_method"], &found["threshold"]),
        (&true.into(), &"clwb".into(), &"stock".into(), &1000.into())
    );
    let counted = |at: usize| {
        let of = &found["methods"][at];
        (of["method"].as_str(), of["calls"].as_u64(), of["bytes"].as_u64())
    };
    assert_eq!(counted(0), (Some("stock"), Some(1), Some(999)));
    assert_eq!(counted(2), (Some("clwb"), Some(2), Some(3000)));
    let shown = text(&["kmod", "status"])?;
    assert!(shown.contains(SECTION) && shown.contains("Copies of 1000 bytes and more"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let shown = testkit::prometheus::parse(&text(&["kmod", "status", "--prometheus"])?)?.samples;
    assert_eq!(shown["bulkmem_flushcache_calls_total{method=\"clwb\"}"], 2.0);
    assert_eq!(shown["bulkmem_flushcache_bytes_total{method=\"clwb\"}"], 3000.0);
    module::gone()?;
    Ok(())
}
