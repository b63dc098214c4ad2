//! Loading and unloading the module, its parameters and counters.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PARAMETERS: &str = "/sys/module/bulkmem/parameters";
const LIVEPATCH: &str = "/sys/kernel/livepatch/bulkmem";
const COUNTERS: &str = "/sys/class/misc/bulkmem";
/// The longest wait: a livepatch waits for every task of the machine.
const TIMEOUT: Duration = Duration::from_secs(100);

/// All methods, available or not.
pub(crate) const METHODS: [&str; 6] = ["stock", "rep_stosb", "rep_stosq", "movnti", "clzero", "prefetchw"];
/// The methods that leave the cleared memory in the cache.
pub(crate) const CACHED: [&str; 4] = ["stock", "rep_stosb", "rep_stosq", "prefetchw"];

/// Returns the path of the module's file.
fn file() -> String {
    std::env::var("BULKMEM_MODULE").unwrap_or_else(|_| "/bulkmem.ko".to_owned())
}

/// Loads the module with these parameters, and waits until every task uses it.
pub(crate) fn load(parameters: &str) -> io::Result<()> {
    insert(&file(), parameters)?;
    settle()
}

/// Loads a module's file.
pub(crate) fn insert(file: &str, parameters: &str) -> io::Result<()> {
    let file = File::open(file)?;
    let parameters = CString::new(parameters)?;
    // SAFETY: an open file and a NUL-terminated string, both valid during the call.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for the end of the livepatch's transition.
pub(crate) fn settle() -> io::Result<()> {
    let file = format!("{LIVEPATCH}/transition");
    until("the livepatch is in transition", || {
        Ok(match fs::read_to_string(&file) {
            Ok(text) => text.trim() == "0",
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        })
    })
}

/// Waits until `done` returns true; on a timeout, the error contains `still`.
pub(crate) fn until(still: &str, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > TIMEOUT {
            return Err(io::Error::other(format!("after {TIMEOUT:?} {still} still")));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the first two numbers of the kernel's release.
pub(crate) fn kernel() -> io::Result<(u32, u32)> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split('.').map(|number| number.parse().map_err(io::Error::other));
    let mut next = || numbers.next().ok_or_else(|| io::Error::other(release.clone()))?;
    Ok((next()?, next()?))
}

/// True if the module is loaded.
pub(crate) fn is_loaded() -> bool {
    fs::read_to_string("/proc/modules")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("bulkmem ")))
}

/// Enables or disables the livepatch.
pub(crate) fn enable(on: bool) -> io::Result<()> {
    put(Path::new(LIVEPATCH).join("enabled").as_path(), if on { b"1" } else { b"0" })
}

/// Removes the module as `rmmod` does, without other steps.
pub(crate) fn remove() -> io::Result<()> {
    remove_named(c"bulkmem")
}

/// Removes a module.
pub(crate) fn remove_named(name: &CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated string; O_NONBLOCK as in rmmod.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unloads the module by the documented steps.
pub(crate) fn unload() -> io::Result<()> {
    settle()?;
    enable(false)?;
    until("the livepatch is there", || Ok(!Path::new(LIVEPATCH).exists()))?;
    // The last task may have left the patch before the kernel has freed it.
    until("the module is in use", || match remove() {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => Ok(false),
        Err(error) => Err(error),
    })
}

/// Unloads the module if it is loaded.
pub(crate) fn gone() -> io::Result<()> {
    if is_loaded() { unload() } else { Ok(()) }
}

/// Ensures that the module is loaded and its parameters are the defaults.
pub(crate) fn fresh() -> io::Result<()> {
    static DEFAULTS: OnceLock<Parameters> = OnceLock::new();
    // A module that another process loaded may have any parameters.
    if DEFAULTS.get().is_none() {
        gone()?;
    }
    if !is_loaded() {
        load("")?;
        DEFAULTS.set(Parameters::read()?).ok();
    }
    settle()?;
    DEFAULTS.get().map_or(Ok(()), Parameters::apply)
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // One write, because sysfs takes each for a complete value.
    let written = OpenOptions::new().write(true).open(path)?.write(bytes)?;
    if written == bytes.len() { Ok(()) } else { Err(io::Error::other(format!("{written} bytes were taken"))) }
}

/// Sets one parameter.
pub(crate) fn set(parameter: &str, value: impl AsRef<[u8]>) -> io::Result<()> {
    put(&Path::new(PARAMETERS).join(parameter), value.as_ref())
}

/// Reads one parameter.
pub(crate) fn get(parameter: &str) -> io::Result<String> {
    let text = fs::read_to_string(Path::new(PARAMETERS).join(parameter))?;
    Ok(text.trim_end().to_owned())
}

/// Returns the methods that this processor supports according to /proc/cpuinfo.
pub(crate) fn possible() -> Vec<&'static str> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag| flags.split_whitespace().any(|known| known == flag);
    let needs = |method| match method {
        "clzero" => has("clzero"),
        "prefetchw" => has("3dnowprefetch"),
        _ => true,
    };
    METHODS.into_iter().filter(|method| needs(method)).collect()
}

/// Returns the methods that this processor supports according to the module.
pub(crate) fn available() -> io::Result<Vec<String>> {
    Ok(get("available")?.split(' ').map(str::to_owned).collect())
}

/// Every parameter that can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) method: String,
    pub(crate) cached_method: String,
    pub(crate) threshold: u64,
    pub(crate) chunk: u64,
    pub(crate) prefetch_distance: u64,
    pub(crate) ignore_quirks: bool,
    pub(crate) copy_method: String,
    pub(crate) copy_cached_method: String,
    pub(crate) copy_threshold: u64,
    pub(crate) automatic: bool,
}

impl Parameters {
    /// Reads the parameters.
    pub(crate) fn read() -> io::Result<Parameters> {
        let number = |name: &str| get(name)?.parse::<u64>().map_err(io::Error::other);
        Ok(Parameters {
            method: get("method")?,
            cached_method: get("cached_method")?,
            threshold: number("threshold")?,
            chunk: number("chunk")?,
            prefetch_distance: number("prefetch_distance")?,
            ignore_quirks: get("ignore_quirks")? == "Y",
            copy_method: get("copy_method")?,
            copy_cached_method: get("copy_cached_method")?,
            copy_threshold: number("copy_threshold")?,
            automatic: get("automatic")? == "Y",
        })
    }

    /// Writes the parameters.
    pub(crate) fn apply(&self) -> io::Result<()> {
        // A method that a quirk forbids can only be set, or replaced, while quirks are ignored.
        set("ignore_quirks", "1")?;
        set("method", &self.method)?;
        set("cached_method", &self.cached_method)?;
        set("threshold", self.threshold.to_string())?;
        set("chunk", self.chunk.to_string())?;
        set("prefetch_distance", self.prefetch_distance.to_string())?;
        set("ignore_quirks", if self.ignore_quirks { "1" } else { "0" })?;
        set("copy_method", &self.copy_method)?;
        set("copy_cached_method", &self.copy_cached_method)?;
        set("copy_threshold", self.copy_threshold.to_string())?;
        set("automatic", if self.automatic { "1" } else { "0" })
    }
}

/// Reads one counter: `faults`, `movnti/ns`, …
pub(crate) fn counter(path: &str) -> io::Result<u64> {
    let text = fs::read_to_string(Path::new(COUNTERS).join(path))?;
    text.trim_end().parse().map_err(|error| io::Error::other(format!("{path}: {error}")))
}

/// Writes to a counter that can be written.
pub(crate) fn put_counter(path: &str, value: &str) -> io::Result<()> {
    put(&Path::new(COUNTERS).join(path), value.as_bytes())
}

/// The counters by path: `movnti/bytes`, `faults`, …
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Reads the counters.
    pub(crate) fn read() -> io::Result<Counters> {
        let mut names: Vec<String> = ["faults", "skipped", "hints"].map(str::to_owned).into();
        for method in METHODS {
            names
                .extend(["extents", "pages", "bytes", "hinted"].map(|counter| format!("{method}/{counter}")));
        }
        let mut counters = Counters::default();
        for name in names {
            let value = counter(&name)?;
            counters.0.insert(name, value);
        }
        Ok(counters)
    }

    /// Returns the increments since `before`, without those of 0.
    pub(crate) fn since(&self, before: &Counters) -> Counters {
        let changes = self.0.iter().map(|(name, now)| (name.clone(), now.wrapping_sub(before.get(name))));
        Counters(changes.filter(|(_, change)| *change != 0).collect())
    }

    /// Returns one counter.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    fn add(&mut self, name: String, value: u64) {
        if value != 0 {
            *self.0.entry(name).or_default() += value;
        }
    }

    /// Returns the bytes of all methods.
    pub(crate) fn bytes(&self) -> u64 {
        METHODS.iter().map(|method| self.get(&format!("{method}/bytes"))).sum()
    }
}

/// A page fault at `offset` of a huge page of `size` bytes, inside a hint of `hint` bytes (0: none).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) size: usize,
    pub(crate) offset: usize,
    pub(crate) hint: u64,
}

/// The number of hot pages on each side of the touched one.
const HOT: u64 = 2;

/// Returns what these faults must add to the counters, according to the documentation.
pub(crate) fn predict(parameters: &Parameters, faults: &[Fault]) -> Counters {
    let mut counters = Counters::default();
    for fault in faults {
        let size = fault.size as u64;
        let hinted = fault.hint > size;
        let large = size.max(fault.hint) >= parameters.threshold;
        let method = if large { &parameters.method } else { &parameters.cached_method };
        let mut count = |method: &str, extents: u64, pages: u64, hinted: bool| {
            counters.add(format!("{method}/extents"), extents);
            counters.add(format!("{method}/pages"), pages);
            counters.add(format!("{method}/bytes"), pages * 4096);
            counters.add(format!("{method}/hinted"), if hinted { extents } else { 0 });
        };
        let pages = size / 4096;
        if method == "stock" {
            count("stock", 1, pages, hinted);
        } else {
            let touched = fault.offset as u64 / 4096;
            let first = touched.saturating_sub(HOT);
            let end = (touched + HOT + 1).min(pages);
            let around = u64::from(first > 0) + u64::from(end < pages);
            count(method, around, pages - (end - first), hinted);
            count("stock", 1, end - first, false);
        }
        counters.add("faults".to_owned(), 1);
        counters.add("skipped".to_owned(), u64::from(!large));
    }
    counters
}

/// Runs `work` and checks that it adds to the counters what `faults` must.
pub(crate) fn counted<T>(
    faults: &[Fault],
    work: impl FnOnce() -> Result<T, libtest_mimic::Failed>,
) -> Result<T, libtest_mimic::Failed> {
    let parameters = Parameters::read()?;
    let before = Counters::read()?;
    let result = work()?;
    let counted = Counters::read()?.since(&before);
    let predicted = predict(&parameters, faults);
    if counted != predicted {
        return Err(format!("with {parameters:?}\n counted {counted:?}\nexpected {predicted:?}").into());
    }
    Ok(result)
}
