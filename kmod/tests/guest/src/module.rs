//! The module: loaded and unloaded, its parameters and counters.

use std::collections::BTreeMap;
use std::ffi::CString;
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
/// A livepatch waits for every task of the machine; where that takes longer than this, something is stuck.
const PATIENCE: Duration = Duration::from_secs(100);

/// All methods, available or not.
pub(crate) const METHODS: [&str; 5] = ["stock", "rep_stosb", "movnti", "clzero", "prefetchw"];
/// Those that leave in the cache what they cleared.
pub(crate) const CACHED: [&str; 3] = ["stock", "rep_stosb", "prefetchw"];

/// What `insmod` would take.
fn file() -> String {
    std::env::var("BULKMEM_MODULE").unwrap_or_else(|_| "/bulkmem.ko".to_owned())
}

/// Loads it with these parameters, and waits until every task uses it.
pub(crate) fn load(parameters: &str) -> io::Result<()> {
    let file = File::open(file())?;
    let parameters = CString::new(parameters)?;
    // SAFETY: an open file and a string that ends with NUL, both alive during the call.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    settle()
}

/// Waits until the livepatch's transition is over.
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

/// Waits until this is true; an error says what was still so.
pub(crate) fn until(still: &str, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("after {PATIENCE:?} {still} still")));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether it is loaded.
pub(crate) fn is_loaded() -> bool {
    fs::read_to_string("/proc/modules")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("bulkmem ")))
}

/// Writes to the livepatch's switch.
pub(crate) fn enable(on: bool) -> io::Result<()> {
    put(Path::new(LIVEPATCH).join("enabled").as_path(), if on { b"1" } else { b"0" })
}

/// `rmmod`, no more.
pub(crate) fn remove() -> io::Result<()> {
    // SAFETY: a string that ends with NUL; O_NONBLOCK as rmmod has it.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, c"bulkmem".as_ptr(), libc::O_NONBLOCK) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unloads it by the documented steps.
pub(crate) fn unload() -> io::Result<()> {
    settle()?;
    enable(false)?;
    until("the livepatch is there", || Ok(!Path::new(LIVEPATCH).exists()))?;
    // The last task may have left it, and the kernel's work that frees it not yet have run.
    until("the module is in use", || match remove() {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => Ok(false),
        Err(error) => Err(error),
    })
}

/// Unloads it where it is loaded.
pub(crate) fn gone() -> io::Result<()> {
    if is_loaded() { unload() } else { Ok(()) }
}

/// It is loaded, and its parameters are the defaults.
pub(crate) fn fresh() -> io::Result<()> {
    static DEFAULTS: OnceLock<Parameters> = OnceLock::new();
    // Who loaded it, and with what, only this process knows of itself.
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
    // One write: what sysfs takes as one value.
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

/// The methods that this processor can run, by what /proc/cpuinfo says of it.
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

/// The methods that this processor can run, by what the module says.
pub(crate) fn available() -> io::Result<Vec<String>> {
    Ok(get("available")?.split(' ').map(str::to_owned).collect())
}

/// All parameters that can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) method: String,
    pub(crate) cached_method: String,
    pub(crate) threshold: u64,
    pub(crate) chunk: u64,
    pub(crate) prefetch_distance: u64,
    pub(crate) ignore_quirks: bool,
}

impl Parameters {
    /// What is active.
    pub(crate) fn read() -> io::Result<Parameters> {
        let number = |name: &str| get(name)?.parse::<u64>().map_err(io::Error::other);
        Ok(Parameters {
            method: get("method")?,
            cached_method: get("cached_method")?,
            threshold: number("threshold")?,
            chunk: number("chunk")?,
            prefetch_distance: number("prefetch_distance")?,
            ignore_quirks: get("ignore_quirks")? == "Y",
        })
    }

    /// Makes them active.
    pub(crate) fn apply(&self) -> io::Result<()> {
        // A method that a quirk forbids can only be left or set while quirks are ignored.
        set("ignore_quirks", "1")?;
        set("method", &self.method)?;
        set("cached_method", &self.cached_method)?;
        set("threshold", self.threshold.to_string())?;
        set("chunk", self.chunk.to_string())?;
        set("prefetch_distance", self.prefetch_distance.to_string())?;
        set("ignore_quirks", if self.ignore_quirks { "1" } else { "0" })
    }
}

/// The counters, by their paths: `movnti/bytes`, `faults`, …
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// As they are now.
    pub(crate) fn read() -> io::Result<Counters> {
        let mut names: Vec<String> = ["faults", "skipped", "hints"].map(str::to_owned).into();
        for method in METHODS {
            names
                .extend(["extents", "pages", "bytes", "hinted"].map(|counter| format!("{method}/{counter}")));
        }
        let mut counters = Counters::default();
        for name in names {
            let text = fs::read_to_string(Path::new(COUNTERS).join(&name))?;
            let value =
                text.trim_end().parse().map_err(|error| io::Error::other(format!("{name}: {error}")))?;
            counters.0.insert(name, value);
        }
        Ok(counters)
    }

    /// What came to them since `before`; only what changed.
    pub(crate) fn since(&self, before: &Counters) -> Counters {
        let changes = self.0.iter().map(|(name, now)| (name.clone(), now.wrapping_sub(before.get(name))));
        Counters(changes.filter(|(_, change)| *change != 0).collect())
    }

    /// One of them.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    fn add(&mut self, name: String, value: u64) {
        if value != 0 {
            *self.0.entry(name).or_default() += value;
        }
    }

    /// The bytes of all methods.
    pub(crate) fn bytes(&self) -> u64 {
        METHODS.iter().map(|method| self.get(&format!("{method}/bytes"))).sum()
    }
}

/// A huge page of `size` bytes that is cleared because of a touch at `offset`, inside a hint of `hint` bytes (0: none).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) size: usize,
    pub(crate) offset: usize,
    pub(crate) hint: u64,
}

/// Ordinary pages on each side of the touched one that are cleared with it.
const HOT: u64 = 2;

/// What the documentation says that these faults add to the counters.
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

/// Runs `work` and compares what it added to the counters with what `faults` had to.
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
