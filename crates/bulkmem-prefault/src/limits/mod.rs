//! How much memory this process may still use, and which limit it meets first.

mod groups;

use std::fs;
use std::path::{Path, PathBuf};

use bulkmem::machine::Machine;

use crate::numa::left_on_bound_nodes;
use crate::text::size;

pub(crate) use groups::Group;

/// Memory that this process may still use: `512 MiB left by the address space limit (ulimit -v)`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {limit}", size(*bytes))]
pub struct MemoryLeft {
    /// Bytes.
    pub bytes: u64,
    /// The limit that is reached first.
    pub limit: MemoryLimit,
}

/// A limit on the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryLimit {
    /// The memory that the kernel calls available: free, or freed without swapping.
    #[error("available on this machine")]
    Available,
    /// The memory that the kernel promises to all processes together (if `vm.overcommit_memory` is 2).
    #[error("left by the kernel's commit limit (vm.overcommit_memory is 2)")]
    Commit,
    /// A control group, of this process or above it: the file with its limit.
    #[error("left by the control group's limit ({0})")]
    ControlGroup(PathBuf),
    /// The address space of this process: `ulimit -v`.
    #[error("left by the address space limit (ulimit -v)")]
    AddressSpace,
    /// The private memory of this process: `ulimit -d`.
    #[error("left by the data size limit (ulimit -d)")]
    Data,
    /// The memory of the NUMA nodes that memory is bound to.
    #[error("available on the NUMA nodes that memory is bound to (--node)")]
    Nodes,
}

impl MemoryLimit {
    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            MemoryLimit::Available => "free memory",
            MemoryLimit::Nodes => "free memory there",
            _ => "raise that limit",
        }
    }
}

/// Returns how much memory this process may still use, and which limit it meets first.
///
/// Considers the memory available on the machine, the limits of the control group and of every group above it
/// (versions 1 and 2; file cache that the kernel can drop counts as unused), `RLIMIT_AS` and `RLIMIT_DATA`, and the
/// commit limit where the kernel enforces it. If memory is bound to NUMA nodes, it counts only what these have.
pub fn memory_left() -> MemoryLeft {
    let left = MemoryLeft::below(Path::new("/"));
    match left_on_bound_nodes() {
        Some(bytes) if bytes < left.bytes => MemoryLeft { bytes, limit: MemoryLimit::Nodes },
        _ => left,
    }
}

impl MemoryLeft {
    /// The same, with the files of `/proc` and `/sys` taken from below `root`.
    fn below(root: &Path) -> MemoryLeft {
        let text = |path| text(root, Path::new(path));
        let meminfo = text("proc/meminfo");
        let (limits, status) = (text("proc/self/limits"), text("proc/self/status"));
        let less = |limit: Option<u64>, used: Option<u64>| Some(limit?.saturating_sub(used?));
        let own = |limit, used| less(number(&limits, limit), kibibytes(&status, used));
        let groups = Group::of_process(root).into_iter().filter_map(|group| group.left(true));
        let mut known: Vec<_> =
            groups.map(|(bytes, file)| (bytes, MemoryLimit::ControlGroup(file))).collect();
        known.extend(own("Max address space", "VmSize:").map(|bytes| (bytes, MemoryLimit::AddressSpace)));
        known.extend(own("Max data size", "VmData:").map(|bytes| (bytes, MemoryLimit::Data)));
        if text("proc/sys/vm/overcommit_memory").trim() == "2" {
            let left = less(kibibytes(&meminfo, "CommitLimit:"), kibibytes(&meminfo, "Committed_AS:"));
            known.extend(left.map(|bytes| (bytes, MemoryLimit::Commit)));
        }
        let available = available(&meminfo);
        let least = known.into_iter().min_by_key(|(bytes, _)| *bytes);
        let (bytes, limit) =
            least.filter(|(bytes, _)| *bytes < available).unwrap_or((available, MemoryLimit::Available));
        MemoryLeft { bytes, limit }
    }
}

/// The memory that the kernel calls available, bytes, from `/proc/meminfo`; half of all if the kernel does not report it.
fn available(meminfo: &str) -> u64 {
    kibibytes(meminfo, "MemAvailable:").unwrap_or_else(|| Machine::current().memory / 2)
}

/// Returns the memory that the kernel calls available, bytes.
pub(crate) fn available_now() -> u64 {
    available(&text(Path::new("/"), Path::new("proc/meminfo")))
}

/// Returns the memory that this process has locked, bytes.
pub(crate) fn locked() -> u64 {
    kibibytes(&text(Path::new("/"), Path::new("proc/self/status")), "VmLck:").unwrap_or(0)
}

/// The text of a file below `root`; empty if it cannot be read.
fn text(root: &Path, path: &Path) -> String {
    let bytes = fs::read(root.join(path.strip_prefix("/").unwrap_or(path))).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The number that follows a name at the start of a line; the first number where the name is empty.
fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The value of a line such as `VmSize:    1234 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    number(text, name)?.checked_mul(1024)
}

#[cfg(test)]
mod tests;
