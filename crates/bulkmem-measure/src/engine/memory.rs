//! How much memory this process may still use, and which limit it meets first.

use std::fs;
use std::path::{Component, Path, PathBuf};

use bulkmem::machine::Machine;

use crate::engine::numa::left_on_bound_nodes;
use crate::engine::units;

/// Memory that this process may still use: `512 MiB left by the address space limit (ulimit -v)`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {limit}", units::bytes(*bytes))]
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
    /// The remedy.
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
        // The value of a line such as `VmSize:    1234 kB`, in bytes.
        let kibibytes = |text: &str, name: &str| number(text, name)?.checked_mul(1024);
        let meminfo = text("proc/meminfo");
        let available = kibibytes(&meminfo, "MemAvailable:").unwrap_or_else(|| Machine::current().memory / 2);
        let (limits, status) = (text("proc/self/limits"), text("proc/self/status"));
        let less = |limit: Option<u64>, used: Option<u64>| Some(limit?.saturating_sub(used?));
        let own = |limit, used| less(number(&limits, limit), kibibytes(&status, used));
        let mut known = control_groups(root);
        known.extend(own("Max address space", "VmSize:").map(|bytes| (bytes, MemoryLimit::AddressSpace)));
        known.extend(own("Max data size", "VmData:").map(|bytes| (bytes, MemoryLimit::Data)));
        if text("proc/sys/vm/overcommit_memory").trim() == "2" {
            let left = less(kibibytes(&meminfo, "CommitLimit:"), kibibytes(&meminfo, "Committed_AS:"));
            known.extend(left.map(|bytes| (bytes, MemoryLimit::Commit)));
        }
        let least = known.into_iter().min_by_key(|(bytes, _)| *bytes);
        let (bytes, limit) =
            least.filter(|(bytes, _)| *bytes < available).unwrap_or((available, MemoryLimit::Available));
        MemoryLeft { bytes, limit }
    }

    /// The most that one measurement takes at a time: three quarters. The rest is for stacks, the results, and others.
    pub(crate) fn most(&self) -> u64 {
        self.bytes / 4 * 3
    }

    /// The note in results and output when defaults had to be smaller than usual: only a limit that was set on purpose is
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

/// The default sizes that this process may use, each of which needs so much memory; at least the smallest.
pub(crate) fn defaults(sizes: impl IntoIterator<Item = u64>, needed: impl Fn(u64) -> u64) -> Vec<u64> {
    let most = memory_left().most();
    let mut sizes: Vec<u64> = sizes.into_iter().collect();
    let smallest = sizes.iter().min().copied();
    sizes.retain(|size| needed(*size) <= most || Some(*size) == smallest);
    sizes
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

/// In place of a controller in `/proc/self/cgroup`: the one hierarchy of version 2. Version 1 has one for `memory`.
const VERSION_2: &str = "";

/// The bytes that each limited control group leaves, and the file with its limit. The files of `/proc` and `/sys` are taken
/// from below `root`; the paths returned are those within it.
fn control_groups(root: &Path) -> Vec<(u64, MemoryLimit)> {
    let text = |path| text(root, Path::new(path));
    let (mounts, groups) = (text("proc/self/mountinfo"), text("proc/self/cgroup"));
    let mut found = Vec::new();
    for (controller, mount, point) in mounts.lines().filter_map(mounted) {
        // The path of this process's group, from a line: number, controllers, path.
        let path = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let ours = controllers.split(',').any(|name| name == controller);
            ours.then(|| below(&mount, path))?
        };
        for inner in groups.lines().filter_map(path) {
            // The group and those above it, up to the mount point.
            let depth = inner.components().count();
            for folder in point.join(inner).ancestors().take(depth + 1) {
                found.extend(left(root, controller, folder));
            }
        }
    }
    found
}

/// Reads a line of `/proc/self/mountinfo`: number, parent, device, root, mount point, options, optional fields, a dash,
/// type, source, options of the file system. Returns the controller of the hierarchy of control groups that is mounted, the
/// group that the mount point shows, relative to the root of this process's control group namespace, and the mount point.
fn mounted(line: &str) -> Option<(&'static str, PathBuf, PathBuf)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3).map(unescape);
    let mut system = system.split(' ');
    let controller = match (system.next()?, system.nth(1)?) {
        ("cgroup2", _) => VERSION_2,
        ("cgroup", options) if options.split(',').any(|option| option == "memory") => "memory",
        _ => return None,
    };
    Some((controller, mount.next()?.into(), mount.next()?.into()))
}

/// Replaces the octal codes that the kernel writes for blanks and backslashes.
fn unescape(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.into_iter().fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

/// The bytes that the limits of the group in a folder leave.
fn left(root: &Path, controller: &str, folder: &Path) -> Vec<(u64, MemoryLimit)> {
    // The file with the usage, the lines of `memory.stat` with what the kernel can drop, and files with limits and lines
    // in them.
    let (usage, cache, limits) = match controller {
        VERSION_2 => {
            ("memory.current", ["active_file ", "inactive_file "], [("memory.max", ""), ("memory.high", "")])
        }
        _ => (
            "memory.usage_in_bytes",
            ["total_active_file ", "total_inactive_file "],
            // The second covers groups above the mount point, too.
            [("memory.limit_in_bytes", ""), ("memory.stat", "hierarchical_memory_limit ")],
        ),
    };
    let of = |file, line| number(&text(root, &folder.join(file)), line);
    let Some(usage) = of(usage, "") else { return Vec::new() };
    let cache = cache.into_iter().filter_map(|line| of("memory.stat", line)).fold(0, u64::saturating_add);
    let used = usage.saturating_sub(cache);
    let left = |(file, line)| {
        Some((of(file, line)?.saturating_sub(used), MemoryLimit::ControlGroup(folder.join(file))))
    };
    limits.into_iter().filter_map(left).collect()
}

/// The path from a mount's root to a group; both are relative to the root of the control group namespace. Empty if the
/// mount shows a group above the namespace, whose children's names cannot be known from here: its own limits hold all
/// the same. `None` if the group is not below the mount.
fn below(mount: &Path, group: &str) -> Option<PathBuf> {
    let group = Path::new(group);
    let up = |part: Component<'_>| part == Component::ParentDir;
    if let Ok(inner) = group.strip_prefix(mount) {
        return (!inner.components().any(up)).then(|| inner.to_owned());
    }
    let common = mount.components().zip(group.components()).take_while(|(a, b)| a == b).count();
    let above = mount.components().skip(common).all(up) && !group.components().skip(common).any(up);
    above.then(PathBuf::new)
}

#[cfg(test)]
mod tests;
