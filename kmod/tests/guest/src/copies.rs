//! Tests copy-on-write of private huge pages: every byte that parent and child see, wherever the write is, by each method;
//! that the counters are exact; and what happens if a page cannot be copied.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::huge::{GIGANTIC, HugeMapping, MIDDLE, SMALL, Source};
use crate::module;
use crate::process::{Child, End};
use crate::stress::seeded;

const METHODS: [&str; 3] = ["stock", "rep_movsb", "movnti"];
/// Each method with the parameter that selects it, and how many base pages lie between the written ones: 1 for the module's own
/// instructions; more for the kernel's functions, and for the same instructions selected in another way.
const CHOICES: [(&str, &str, usize); 4] =
    [("stock", "large", 7), ("rep_movsb", "large", 1), ("rep_movsb", "cached", 7), ("movnti", "large", 1)];

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("copies::the_default_is_stock", the_default_is_stock);
    suite.test("copies::parameters", parameters);
    for (method, size, step) in CHOICES {
        let name = if step == 1 { "every_place" } else { "places" };
        suite.test(&format!("copies::{name}::{method}::{size}"), move || places(method, size, step));
    }
    for method in METHODS {
        suite.test(&format!("copies::threads::{method}"), move || threads(method));
        suite.test(&format!("copies::chunks::{method}"), move || chunks(method));
        suite.test(&format!("gigantic_copies::{method}"), move || gigantic(method));
    }
    suite.test("copies::threshold", threshold);
    let name = "copies::pinned_pages_are_copied_by_fork";
    match module::kernel().is_ok_and(|kernel| kernel < (5, 13)) {
        true => suite.skip(name, "this kernel does not copy pinned pages of hugetlbfs at a fork"),
        false => suite.test(name, pinned_pages_are_copied_by_fork),
    }
    for method in ["rep_movsb", "movnti"] {
        suite.test(&format!("copies::an_exception_is_not_seen::{method}"), move || exception(method));
    }
    // Before 6.4, the kernel does not survive a broken page here.
    for method in METHODS {
        let name = format!("copies::a_broken_page_ends_in_sigbus::{method}");
        match module::kernel().is_ok_and(|kernel| kernel < (6, 4)) {
            true => suite.skip(&name, "this kernel's own copying is not machine-check-safe"),
            false => suite.test(&name, move || broken_page(method)),
        }
    }
    suite.test("copies::switched_under_copies", switched_under_copies);
    suite.test("fragile::only_stock", fragile_processors_have_only_stock);
    suite.test("copies_loading::refused_where_the_self_test_fails", refused_where_the_self_test_fails);
    suite.test("copies_loading::unloaded_under_copies", unloaded_under_copies);
}

/// Makes a method copy everything, as the one for large copies or for small ones.
fn choose(method: &str, size: &str) -> Result<(), Failed> {
    module::fresh()?;
    module::set("copy_method", if size == "large" { method } else { "stock" })?;
    module::set("copy_cached_method", if size == "large" { "stock" } else { method })?;
    module::set("copy_threshold", if size == "large" { 0 } else { u64::MAX }.to_string())?;
    Ok(())
}

/// The counters of copies.
type Counters = BTreeMap<String, u64>;

fn counters() -> Result<Counters, Failed> {
    let mut counters = Counters::new();
    for entry in fs::read_dir("/sys/class/misc/bulkmem/copies")? {
        let entry = entry?;
        let value = fs::read_to_string(entry.path())?.trim().parse()?;
        counters.insert(entry.file_name().to_string_lossy().into_owned(), value);
    }
    assert_eq!(counters.len(), 4 + 2 * METHODS.len(), "{counters:?}");
    Ok(counters)
}

/// Returns the increments since `before`, without those of 0.
fn since(before: &Counters) -> Result<Counters, Failed> {
    let mut now = counters()?;
    now.iter_mut().for_each(|(name, value)| *value -= before[name]);
    now.retain(|_, value| *value != 0);
    Ok(now)
}

/// Returns what copies of huge pages of `size` bytes, written at these offsets, must add to the counters.
fn predict(method: &str, size: usize, offsets: &[usize]) -> Result<Counters, Failed> {
    let mut counters = Counters::new();
    let below = (size as u64) < module::get("copy_threshold")?.parse::<u64>()?;
    let mut count = |name: String, value: usize| *counters.entry(name).or_default() += value as u64;
    for offset in offsets {
        let (pages, page) = (size / SMALL, offset % size / SMALL);
        // Two hot pages on each side of the written one.
        let hot = match method {
            "stock" => 0..pages,
            _ => page.saturating_sub(2)..(page + 3).min(pages),
        };
        count(format!("{method}_extents"), usize::from(hot.start > 0) + usize::from(hot.end < pages));
        count(format!("{method}_bytes"), (pages - hot.len()) * SMALL);
        count("stock_extents".to_owned(), 1);
        count("stock_bytes".to_owned(), hot.len() * SMALL);
        count("faults".to_owned(), 1);
        count("skipped".to_owned(), usize::from(below));
    }
    counters.retain(|_, value| *value != 0);
    Ok(counters)
}

/// A private mapping of 2 MiB pages, and what it must contain: no word twice.
struct Original {
    mapping: HugeMapping,
    content: Vec<u8>,
}

impl Original {
    fn new(pages: usize) -> Result<Original, Failed> {
        let words = (0..(pages * MIDDLE / 8) as u64).map(|at| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let content: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        let mut mapping = HugeMapping::new(Source::Pool2M, pages)?;
        mapping.bytes_mut().copy_from_slice(&content);
        Ok(Original { mapping, content })
    }

    /// Inverts the byte at each offset.
    fn write(&self, offsets: &[usize]) {
        for &offset in offsets {
            let byte = (self.mapping.address() + offset) as *mut u8;
            assert!(offset < self.mapping.length());
            // SAFETY: within the mapping. No reference to its bytes exists; threads write different bytes.
            unsafe { byte.write_volatile(!self.content[offset]) };
        }
    }

    /// Checks that exactly the bytes at these offsets are inverted.
    fn check(&self, who: &str, written: &[usize]) -> Result<(), Failed> {
        let bytes = self.mapping.bytes();
        let mut written = written.to_vec();
        written.sort_unstable();
        let mut from = 0;
        for at in written.iter().copied().chain([bytes.len()]) {
            if bytes[from..at] != self.content[from..at] {
                let wrong = (from..at).find(|&it| bytes[it] != self.content[it]).unwrap_or(from);
                let (page, inside) = (wrong / MIDDLE, wrong % MIDDLE);
                return Err(
                    format!("{who}: byte {inside:#x} of page {page} is wrong; written {written:x?}").into()
                );
            }
            if at < bytes.len() && bytes[at] != !self.content[at] {
                return Err(format!("{who}: the byte written at {at:#x} is not there").into());
            }
            from = at + 1;
        }
        Ok(())
    }

    /// Undoes `write`, in pages that this process shares with no other.
    fn restore(&mut self, offsets: &[usize]) {
        for &offset in offsets {
            self.mapping.bytes_mut()[offset] = self.content[offset];
        }
    }

    /// Overwrites the pages, which this process shares with no other, so that the next copy, into the same memory, cannot
    /// be right by chance.
    fn spoil(&self) {
        // SAFETY: the mapping, to whose bytes no reference exists.
        unsafe { std::ptr::write_bytes(self.mapping.address() as *mut u8, 0xa5, self.mapping.length()) };
    }

    /// Forks, writes in the child to each page, and checks both.
    fn child_writes(&self, offsets: &[usize]) -> Result<(), Failed> {
        Child::spawn(|| {
            self.write(offsets);
            self.check("the child, which wrote", offsets)?;
            self.spoil();
            Ok(())
        })?
        .succeed()?;
        self.check("the parent of a child that wrote", &[])
    }

    /// Forks, writes in the parent to each page, and checks both.
    fn parent_writes(&mut self, offsets: &[usize]) -> Result<(), Failed> {
        let (mut reader, mut writer) = io::pipe()?;
        let child = Child::spawn(|| {
            let mut word = [0];
            reader.read_exact(&mut word)?;
            self.check("the child of a parent that wrote", &[])?;
            self.spoil();
            Ok(())
        })?;
        self.write(offsets);
        self.check("the parent, which wrote", offsets)?;
        writer.write_all(&[1])?;
        child.succeed()?;
        self.restore(offsets);
        Ok(())
    }
}

fn the_default_is_stock() -> Result<(), Failed> {
    module::gone()?;
    module::load("")?;
    for (parameter, value) in
        [("copy_method", "stock"), ("copy_cached_method", "stock"), ("copy_threshold", "2097152")]
    {
        assert_eq!(module::get(parameter)?, value, "{parameter}");
    }
    let has = |flag: &str| {
        fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.split_whitespace().any(|word| word == flag))
    };
    let available = if has("erms") { "stock rep_movsb movnti" } else { "stock movnti" };
    assert_eq!(module::get("copy_available")?, available);
    let before = counters()?;
    let original = Original::new(1)?;
    original.child_writes(&[12345])?;
    assert_eq!(since(&before)?, predict("stock", MIDDLE, &[12345])?);
    Ok(())
}

fn parameters() -> Result<(), Failed> {
    choose("stock", "large")?;
    for method in METHODS {
        module::set("copy_method", method)?;
        assert_eq!(module::get("copy_method")?, method);
    }
    module::set("copy_cached_method", "rep_movsb\n")?;
    for threshold in [0, 4097, 1 << 30, u64::MAX] {
        module::set("copy_threshold", threshold.to_string())?;
        assert_eq!(module::get("copy_threshold")?, threshold.to_string());
    }
    for (parameter, value, error) in [
        ("copy_cached_method", "movnti", libc::EINVAL),
        ("copy_cached_method", "rep_stosb", libc::EINVAL),
        ("copy_method", "clzero", libc::EINVAL),
        ("copy_method", "movnti ", libc::EINVAL),
        ("copy_threshold", "-1", libc::EINVAL),
        ("copy_threshold", "18446744073709551616", libc::EINVAL),
        ("copy_threshold", "2M", libc::EINVAL),
        ("copy_available", "stock", libc::EACCES),
    ] {
        let before = module::get(parameter)?;
        match module::set(parameter, value).map_err(|error| error.raw_os_error()) {
            Err(Some(number)) if number == error || error == libc::EACCES => {}
            other => return Err(format!("{parameter}={value}: {other:?} in place of error {error}").into()),
        }
        assert_eq!(module::get(parameter)?, before, "{parameter}={value}");
    }
    Ok(())
}

/// Writes once to every base page of a huge page, or to one of `step`, 16 huge pages at a time.
fn places(method: &str, size: &str, step: usize) -> Result<(), Failed> {
    const PAGES: usize = 16;
    choose(method, size)?;
    let mut original = Original::new(PAGES)?;
    let before = counters()?;
    let mut all = Vec::new();
    // With a step, other base pages of each huge page, the first and the last among them.
    for round in
        (0..MIDDLE / SMALL / PAGES).filter(|round| round % step == 0 || round + 1 == MIDDLE / SMALL / PAGES)
    {
        let place =
            |page| (round + page * (MIDDLE / SMALL / PAGES)) * SMALL + (round * 509 + page * 1021) % SMALL;
        let offsets: Vec<usize> = (0..PAGES).map(|page| page * MIDDLE + place(page)).collect();
        match round % 2 {
            0 => original.child_writes(&offsets)?,
            _ => original.parent_writes(&offsets)?,
        }
        all.extend(offsets);
    }
    assert_eq!(since(&before)?, predict(method, MIDDLE, &all)?);
    Ok(())
}

/// Threads of parent and child write to the same pages at the same time, each to its own bytes.
fn threads(method: &str) -> Result<(), Failed> {
    const PAGES: usize = 6;
    const THREADS: usize = 3;
    choose(method, "large")?;
    let mut original = Original::new(PAGES)?;
    let before = counters()?;
    let rounds = 6;
    for round in 0..rounds {
        let offsets = |thread: usize| -> Vec<usize> {
            let place =
                |page| (page * 83 + thread * 171 + round * 7) % (MIDDLE / SMALL) * SMALL + thread * 8 + round;
            (0..PAGES).map(|page| (page + thread) % PAGES).map(|page| page * MIDDLE + place(page)).collect()
        };
        let all: Vec<usize> = (0..THREADS).flat_map(offsets).collect();
        let write = || {
            let barrier = Barrier::new(THREADS);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (barrier, original) = (&barrier, &original);
                    scope.spawn(move || {
                        barrier.wait();
                        original.write(&offsets(thread));
                    });
                }
            });
        };
        let child = Child::spawn(|| {
            write();
            original.check("the child, whose threads wrote", &all)?;
            original.spoil();
            Ok(())
        })?;
        write();
        original.check("the parent, whose threads wrote", &all)?;
        child.succeed()?;
        original.restore(&all);
    }
    let counted = since(&before)?;
    let (faults, bytes) =
        (counted["faults"], METHODS.map(|it| counted.get(&format!("{it}_bytes")).unwrap_or(&0)));
    assert_eq!(bytes.into_iter().sum::<u64>(), faults * MIDDLE as u64, "{counted:?}");
    assert!((rounds * PAGES..=2 * rounds * PAGES).contains(&(faults as usize)), "{counted:?}");
    assert!(!counted.contains_key("redone") && !counted.contains_key("failed"), "{counted:?}");
    Ok(())
}

fn chunks(method: &str) -> Result<(), Failed> {
    let offsets = [0, MIDDLE - 1].map(|offset| [offset, MIDDLE + 100 * SMALL]).concat();
    for chunk in [SMALL, 3 * SMALL, 511 * SMALL, GIGANTIC] {
        for distance in [64, 65536] {
            choose(method, "large")?;
            module::set("chunk", chunk.to_string())?;
            module::set("prefetch_distance", distance.to_string())?;
            let mut original = Original::new(2)?;
            original.child_writes(&offsets[..2])?;
            original.parent_writes(&offsets[2..])?;
        }
    }
    module::fresh().map_err(Failed::from)
}

/// Status of a child to which the fork did not pass the gigantic page on: a defect of some kernels, which the module does not
/// touch (docs/kernel/copies.md).
const LOST: i32 = 3;
/// So many forks are tried.
const FORKS: usize = 1000;

/// A write to a gigantic page, whose content repeats every 2 MiB except for a number in each base page, and is different
/// for each method, because the pages of the pool come again.
fn gigantic(method: &str) -> Result<(), Failed> {
    choose(method, "large")?;
    let offset = match method {
        "stock" => GIGANTIC / 2 + 17,
        "rep_movsb" => GIGANTIC - 1,
        _ => 3 * SMALL,
    };
    let block: Vec<u8> = (0..MIDDLE as u64 / 8)
        .flat_map(|at| (at ^ offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes())
        .collect();
    let mut mapping = HugeMapping::new(Source::Pool1G, 1)?;
    for (number, page) in mapping.bytes_mut().chunks_mut(SMALL).enumerate() {
        page.copy_from_slice(&block[number * SMALL % MIDDLE..][..SMALL]);
        page[8..16].copy_from_slice(&(number ^ offset).to_ne_bytes());
    }
    let check = |who: &str, mapping: &HugeMapping, written: Option<usize>| {
        for (number, page) in mapping.bytes().chunks(SMALL).enumerate() {
            let mut wanted = [0; SMALL];
            wanted.copy_from_slice(&block[number * SMALL % MIDDLE..][..SMALL]);
            wanted[8..16].copy_from_slice(&(number ^ offset).to_ne_bytes());
            if let Some(offset) = written.filter(|offset| offset / SMALL == number) {
                wanted[offset % SMALL] = !wanted[offset % SMALL];
            }
            if page != wanted {
                let wrong: Vec<usize> = (0..SMALL).filter(|at| page[*at] != wanted[*at]).collect();
                let (count, first, last) = (wrong.len(), wrong[0], wrong[wrong.len() - 1]);
                let (from, end) = (first & !7, (last | 7) + 1);
                let words = |page: &[u8]| format!("{:x?}", &page[from..end.min(from + 64)]);
                let (found, wanted) = (words(page), words(&wanted));
                return Err(Failed::from(format!(
                    "{who}: {count} bytes of base page {number} are wrong, {first:#x} to {last:#x}: {found} in place of {wanted}"
                )));
            }
        }
        Ok(())
    };
    check("the original", &mapping, None)?;
    let before = counters()?;
    let byte = (mapping.address() + offset) as *mut u8;
    for lost in 1.. {
        let child = Child::spawn(|| {
            if mapping.frames()? == [0] {
                // SAFETY: ends the child, as its end does otherwise.
                unsafe { libc::_exit(LOST) };
            }
            // SAFETY: the child's mapping, to which no reference exists.
            unsafe { byte.write_volatile(!byte.read_volatile()) };
            check("the child", &mapping, Some(offset))
        })?;
        match child.wait()? {
            End::Exit(0) => break,
            End::Exit(LOST) if lost < FORKS => {
                println!("{method}: the kernel's fork did not pass the gigantic page on, {lost} times");
            }
            end => return Err(format!("the child ended with {end:?}; what it said is above").into()),
        }
    }
    check("the parent", &mapping, None)?;
    assert_eq!(since(&before)?, predict(method, GIGANTIC, &[offset])?);
    Ok(())
}

fn threshold() -> Result<(), Failed> {
    for (threshold, method) in [(MIDDLE, "movnti"), (MIDDLE + 1, "rep_movsb")] {
        choose("movnti", "large")?;
        module::set("copy_cached_method", "rep_movsb")?;
        module::set("copy_threshold", threshold.to_string())?;
        let before = counters()?;
        Original::new(1)?.child_writes(&[MIDDLE / 2])?;
        assert_eq!(since(&before)?, predict(method, MIDDLE, &[MIDDLE / 2])?, "{threshold}");
    }
    Ok(())
}

/// A page whose memory is registered, so that a device may write to it, is copied by the fork and not by a fault.
fn pinned_pages_are_copied_by_fork() -> Result<(), Failed> {
    choose("movnti", "large")?;
    let original = Original::new(1)?;
    // A buffer of io_uring is pinned for long.
    let mut parameters = [0_u32; 30];
    // SAFETY: the size of struct io_uring_params is 120 bytes.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    if ring < 0 {
        return Err(io::Error::last_os_error().into());
    }
    let vector = libc::iovec { iov_base: original.mapping.address() as *mut _, iov_len: MIDDLE };
    // SAFETY: registers (0) one valid buffer.
    let registered = unsafe { libc::syscall(libc::SYS_io_uring_register, ring, 0, &raw const vector, 1) };
    let result = match registered {
        0 => {
            let before = counters()?;
            Child::spawn(|| original.check("the child", &[]))?.succeed()?;
            let counted = since(&before)?;
            match counted == predict("movnti", MIDDLE, &[0])? {
                true => original.check("the parent", &[]),
                false => Err(format!("counted {counted:?}").into()),
            }
        }
        _ => Err(io::Error::last_os_error().into()),
    };
    // SAFETY: the descriptor belongs to this function.
    unsafe { libc::close(ring as i32) };
    result
}

/// If a method stops, as at a machine check, the kernel's functions copy everything.
fn exception(method: &str) -> Result<(), Failed> {
    choose(method, "large")?;
    let mut original = Original::new(2)?;
    let before = counters()?;
    module::set("copy_fault", "1")?;
    let result = original
        .child_writes(&[7, 2 * MIDDLE - 1])
        .and_then(|()| original.parent_writes(&[MIDDLE / 2, MIDDLE]));
    module::set("copy_fault", "0")?;
    result?;
    let mut predicted = predict("stock", MIDDLE, &[0; 4])?;
    predicted.insert("redone".to_owned(), 4);
    assert_eq!(since(&before)?, predicted);
    Ok(())
}

/// If the kernel's functions cannot copy a page either, the writer gets SIGBUS, and the original stays.
fn broken_page(method: &str) -> Result<(), Failed> {
    choose(method, "large")?;
    let original = Original::new(1)?;
    let before = counters()?;
    for poison in [0, 255, 511] {
        module::set("copy_poison", poison.to_string())?;
        // A method with instructions of its own meets the error first.
        module::set("copy_fault", "1")?;
        let child = Child::spawn(|| {
            // The handler of Rust's runtime would return to the write, once.
            // SAFETY: the child's only thread.
            unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
            original.write(&[MIDDLE / 2]);
            Ok(())
        })?;
        let end = child.wait();
        module::set("copy_fault", "0")?;
        module::set("copy_poison", u64::MAX.to_string())?;
        assert_eq!(end?, End::Signal(libc::SIGBUS));
        original.check("the parent of a child that could not write", &[])?;
    }
    let counted = since(&before)?;
    assert_eq!((counted["faults"], counted["failed"]), (3, 3), "{counted:?}");
    // The page is whole in truth.
    original.child_writes(&[1])
}

/// Forks children that write, until the rounds are over.
fn work(rounds: usize, seed: u64) -> Result<(), Failed> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut original = Original::new(3)?;
    for _ in 0..rounds {
        let offsets: Vec<usize> = (0..3).map(|page| page * MIDDLE + rng.usize(..MIDDLE)).collect();
        match rng.bool() {
            true => original.child_writes(&offsets)?,
            false => original.parent_writes(&offsets)?,
        }
    }
    Ok(())
}

fn switch(rng: &mut fastrand::Rng) -> Result<(), Failed> {
    module::set("copy_method", METHODS[rng.usize(..3)])?;
    module::set("copy_cached_method", METHODS[rng.usize(..2)])?;
    module::set("copy_threshold", [0, MIDDLE as u64 + 1][rng.usize(..2)].to_string())?;
    module::set("chunk", (rng.u64(1..=1024) * 4096).to_string())?;
    module::set("prefetch_distance", (rng.u64(1..=1024) * 64).to_string())?;
    Ok(())
}

fn switched_under_copies() -> Result<(), Failed> {
    let mut rng = seeded("switched_under_copies");
    choose("movnti", "large")?;
    let before = counters()?;
    let seeds = [rng.u64(..), rng.u64(..)];
    let mut children = Vec::new();
    for seed in seeds {
        children.push(Child::spawn(move || work(12, seed))?);
    }
    for _ in 0..40 {
        switch(&mut rng)?;
        thread::sleep(Duration::from_millis(rng.u64(..40)));
    }
    children.into_iter().try_for_each(Child::succeed)?;
    let counted = since(&before)?;
    let bytes = METHODS.map(|it| counted.get(&format!("{it}_bytes")).copied().unwrap_or(0));
    assert_eq!(bytes.into_iter().sum::<u64>(), counted["faults"] * MIDDLE as u64, "{counted:?}");
    assert!(counted["faults"] >= 72, "{counted:?}");
    Ok(())
}

fn unloaded_under_copies() -> Result<(), Failed> {
    let mut rng = seeded("unloaded_under_copies");
    choose("movnti", "large")?;
    let seeds = [rng.u64(..), rng.u64(..)];
    let mut children = Vec::new();
    for seed in seeds {
        children.push(Child::spawn(move || work(40, seed))?);
    }
    for _ in 0..3 {
        switch(&mut rng)?;
        module::unload()?;
        thread::sleep(Duration::from_millis(rng.u64(..50)));
        module::load("copy_method=movnti copy_threshold=0")?;
    }
    children.into_iter().try_for_each(Child::succeed)?;
    assert_eq!(module::get("copy_method")?, "movnti");
    module::gone().map_err(Failed::from)
}

fn refused_where_the_self_test_fails() -> Result<(), Failed> {
    for method in ["rep_movsb", "movnti"] {
        module::gone()?;
        match module::load(&format!("selftest_copy_fault={method}")).map_err(|error| error.raw_os_error()) {
            Err(Some(libc::EIO)) => {}
            other => return Err(format!("{method}: {other:?}").into()),
        }
    }
    module::load("").map_err(Failed::from)
}

/// Run on a processor whose recovery from machine checks needs the kernel's own copying.
fn fragile_processors_have_only_stock() -> Result<(), Failed> {
    module::fresh()?;
    assert_eq!(module::get("copy_available")?, "stock");
    for (parameter, method) in
        [("copy_method", "movnti"), ("copy_method", "rep_movsb"), ("copy_cached_method", "rep_movsb")]
    {
        let refused = module::set(parameter, method).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::EOPNOTSUPP)), "{parameter}={method}");
    }
    Ok(())
}
