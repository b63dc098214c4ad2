//! How much memory this process may still use, and which limit it meets first.

mod cgroup;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use bulkmem::machine::Machine;

use crate::engine::units;

/// Memory that this process may still use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLeft {
    /// Bytes.
    pub bytes: u64,
    /// The limit that is reached first.
    pub limit: MemoryLimit,
}

/// A limit on the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryLimit {
    /// The memory that the kernel calls available: free, or freed without swapping.
    Available,
    /// The memory that the kernel promises to all processes together, when it promises no more than it has
    /// (`vm.overcommit_memory` is 2).
    Commit,
    /// A control group, of this process or above it: the file with its limit.
    ControlGroup(PathBuf),
    /// The address space of this process: `ulimit -v`.
    AddressSpace,
    /// The private memory of this process: `ulimit -d`.
    Data,
}

impl MemoryLimit {
    /// The remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            MemoryLimit::Available => "free memory",
            _ => "raise that limit",
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLimit::Available => f.write_str("available on this machine"),
            MemoryLimit::Commit => {
                f.write_str("left by the kernel's commit limit (vm.overcommit_memory is 2)")
            }
            MemoryLimit::ControlGroup(file) => {
                write!(f, "left by the control group's limit ({})", file.display())
            }
            MemoryLimit::AddressSpace => f.write_str("left by the address space limit (ulimit -v)"),
            MemoryLimit::Data => f.write_str("left by the data size limit (ulimit -d)"),
        }
    }
}

impl fmt::Display for MemoryLeft {
    /// Such as `512 MiB left by the address space limit (ulimit -v)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", units::bytes(self.bytes), self.limit)
    }
}

/// Returns how much memory this process may still use, and which limit it meets first.
///
/// Considers the memory available on the machine, the limits of the control group and of every group above it
/// (versions 1 and 2; file cache that the kernel can drop counts as unused), `RLIMIT_AS` and `RLIMIT_DATA`, and the
/// commit limit where the kernel enforces it.
pub fn memory_left() -> MemoryLeft {
    MemoryLeft::below(Path::new("/"))
}

impl MemoryLeft {
    /// The same, with the files of `/proc` and `/sys` taken from below `root`.
    fn below(root: &Path) -> MemoryLeft {
        let text = |path: &str| text(root, Path::new(path));
        let meminfo = text("proc/meminfo");
        let available = kibibytes(&meminfo, "MemAvailable:").unwrap_or_else(|| Machine::current().memory / 2);
        let commit = (text("proc/sys/vm/overcommit_memory").trim() == "2")
            .then(|| less(kibibytes(&meminfo, "CommitLimit:"), kibibytes(&meminfo, "Committed_AS:")))
            .flatten();
        let (limits, status) = (text("proc/self/limits"), text("proc/self/status"));
        let own = |limit, used| less(process_limit(&limits, limit), kibibytes(&status, used));
        let candidates = [
            (Some(available), MemoryLimit::Available),
            (commit, MemoryLimit::Commit),
            (own("Max address space", "VmSize:"), MemoryLimit::AddressSpace),
            (own("Max data size", "VmData:"), MemoryLimit::Data),
        ];
        let known = candidates.into_iter().filter_map(|(bytes, limit)| Some((bytes?, limit)));
        let groups =
            cgroup::left(root).into_iter().map(|(bytes, file)| (bytes, MemoryLimit::ControlGroup(file)));
        let (bytes, limit) = known
            .chain(groups)
            .min_by_key(|(bytes, _)| *bytes)
            .expect("the machine's own limit is always there");
        MemoryLeft { bytes, limit }
    }

    /// The most that one measurement takes at a time: three quarters. The rest is for stacks, the results, and others.
    pub(crate) fn most(&self) -> u64 {
        self.bytes / 4 * 3
    }

    /// What results and output say when defaults had to be smaller than usual: only a limit that was set on purpose is
    /// named, and only if it is below what the largest defaults need.
    pub(crate) fn note(&self) -> Option<String> {
        /// Half of this, 4 GiB, is the largest default.
        const PLENTY: u64 = 8 << 30;
        let set = self.limit != MemoryLimit::Available && self.bytes < PLENTY;
        set.then(|| {
            format!("sizes that were not named are chosen to fit the {self}; what needs more is left out")
        })
    }
}

/// The text of a file below `root`; empty if it cannot be read.
fn text(root: &Path, path: &Path) -> String {
    let bytes = fs::read(root.join(path.strip_prefix("/").unwrap_or(path))).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn less(limit: Option<u64>, used: Option<u64>) -> Option<u64> {
    Some(limit?.saturating_sub(used?))
}

/// The default sizes that this process may use, each of which needs so much memory; at least the smallest.
pub(crate) fn defaults(sizes: impl IntoIterator<Item = u64>, needed: impl Fn(u64) -> u64) -> Vec<u64> {
    let most = memory_left().most();
    let mut sizes: Vec<u64> = sizes.into_iter().collect();
    let smallest = sizes.iter().min().copied();
    sizes.retain(|size| needed(*size) <= most || Some(*size) == smallest);
    sizes
}

/// The value of a line such as `VmSize:    1234 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit on a line of `/proc/self/limits`, in bytes; `None` if it is unlimited.
fn process_limit(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
