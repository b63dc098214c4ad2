//! Processors and NUMA nodes: those of the machine, those that this process is restricted to, and the node of memory.
//!
//! Bulkmem's measuring crate uses the same functions.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_long, c_ulong};
use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::path::Path;
use std::ptr::null;
use std::str::FromStr;

use bulkmem::machine::Machine;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Numbers of processors or nodes, as the kernel writes them: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberList(
    /// The numbers.
    pub BTreeSet<usize>,
);

impl FromStr for NumberList {
    type Err = String;

    fn from_str(text: &str) -> Result<NumberList, String> {
        let mut numbers = BTreeSet::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<u16>(), last.parse::<u16>()) {
                (Ok(first), Ok(last)) if first <= last => numbers.extend((first..=last).map(usize::from)),
                _ => return Err(format!("`{text}` is not a list of numbers: write 0, 0-3 or 0-3,8")),
            }
        }
        Ok(NumberList(numbers))
    }
}

impl Display for NumberList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<[usize; 2]> = Vec::new();
        for &number in &self.0 {
            match ranges.last_mut() {
                Some([_, last]) if *last + 1 == number => *last = number,
                _ => ranges.push([number, number]),
            }
        }
        let text = |&[first, last]: &[usize; 2]| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        f.write_str(&ranges.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

impl NumberList {
    /// Reads the list in a file below `root`; `None` if there is no such file, or it is empty.
    pub fn read(root: &Path, path: &str) -> Option<NumberList> {
        fs::read_to_string(root.join(path)).ok()?.parse().ok()
    }

    fn and(&self, other: &NumberList) -> NumberList {
        NumberList(&self.0 & &other.0)
    }

    /// Returns the processors of this list as a set.
    pub fn cpu_set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        self.0.iter().filter(|it| **it < CpuSet::MAX_CPU).for_each(|it| set.set(*it));
        set
    }
}

/// Returns the processors that the calling thread may run on; none if the kernel does not report them.
pub fn processors() -> NumberList {
    let set = sched_getaffinity(None).unwrap_or_default();
    NumberList((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Returns the processors that this process may run on if these are not all, from the files below `root`.
pub fn restricted_processors(root: &Path) -> Option<NumberList> {
    let online = NumberList::read(root, ONLINE_PROCESSORS)?;
    Some(processors()).filter(|allowed| !allowed.0.is_empty() && online.and(allowed) != online)
}

/// The file with the processors that are online, below the root folder.
pub const ONLINE_PROCESSORS: &str = "sys/devices/system/cpu/online";
const NODES: &str = "sys/devices/system/node";

/// The NUMA nodes of this machine.
#[derive(Debug, PartialEq)]
pub struct Topology {
    /// All nodes; 0 alone if the kernel lists none.
    pub online: NumberList,
    /// The nodes that have memory.
    pub with_memory: NumberList,
    /// The nodes whose memory the control group allows.
    pub allowed: NumberList,
    /// The processors of each node that this process may run on; nodes without any are left out.
    pub processors: BTreeMap<usize, NumberList>,
}

impl Topology {
    /// Returns the nodes of this machine.
    pub fn current() -> Topology {
        Topology::below(Path::new("/"), processors())
    }

    /// The same, with the files of `/proc` and `/sys` taken from below `root`, and the processors that may be used.
    fn below(root: &Path, usable: NumberList) -> Topology {
        let online = NumberList::read(root, &format!("{NODES}/online"));
        let online = online.unwrap_or_else(|| NumberList([0].into()));
        // One node has everything: the other files need not be read.
        if let (1, Some(&node)) = (online.0.len(), online.0.first()) {
            let processors = [(node, usable)].into();
            return Topology { with_memory: online.clone(), allowed: online.clone(), online, processors };
        }
        let of_node = |&node: &usize| {
            let own = NumberList::read(root, &format!("{NODES}/node{node}/cpulist"))?.and(&usable);
            (!own.0.is_empty()).then_some((node, own))
        };
        let processors = online.0.iter().filter_map(of_node).collect();
        let with_memory = NumberList::read(root, &format!("{NODES}/has_memory"));
        let with_memory = with_memory.unwrap_or_else(|| online.clone());
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")?.parse().ok());
        let allowed = allowed.map_or_else(|| with_memory.clone(), |it| with_memory.and(&it));
        Topology { online, with_memory, allowed, processors }
    }

    /// Returns the nodes whose memory this process may use.
    pub fn memory(&self) -> NumberList {
        bound_nodes().map_or_else(|| self.allowed.clone(), |bound| bound.and(&self.allowed))
    }
}

/// As many nodes as the kernel can be built for.
const MOST_NODES: usize = 1024;
const WORD: usize = c_ulong::BITS as usize;
type Mask = [c_ulong; MOST_NODES / WORD];
/// The kernel takes one bit less than it is given.
const MASK_BITS: usize = MOST_NODES + 1;
const NO_FLAGS: c_ulong = 0;
/// `MPOL_F_ADDR`, which libc does not have.
const AT_ADDRESS: c_ulong = 2;

fn mask(nodes: &NumberList) -> Mask {
    let mut mask = [0; MOST_NODES / WORD];
    for node in nodes.0.iter().filter(|it| **it < MOST_NODES) {
        mask[node / WORD] |= 1 << (node % WORD);
    }
    mask
}

/// The nodes that the memory of the calling thread, and of threads and processes that it starts, comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MemoryPolicy {
    mode: c_int,
    nodes: Mask,
}

impl MemoryPolicy {
    fn current() -> io::Result<MemoryPolicy> {
        MemoryPolicy::read(null(), NO_FLAGS)
    }

    /// The policy of the calling thread, or with [`AT_ADDRESS`] that of the mapping at an address.
    fn read(address: *const u8, flags: c_ulong) -> io::Result<MemoryPolicy> {
        let mut policy = MemoryPolicy { mode: libc::MPOL_DEFAULT, nodes: mask(&NumberList::default()) };
        let (mode, nodes) = (&raw mut policy.mode, policy.nodes.as_mut_ptr());
        // SAFETY: the mode and the mask are valid for writes, the mask has MASK_BITS - 1 bits, and the kernel checks the
        // address.
        checked(unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, nodes, MASK_BITS, address, flags) })?;
        Ok(policy)
    }

    /// The nodes, if memory comes from no others.
    fn bound(&self) -> Option<NumberList> {
        let flags = libc::MPOL_F_STATIC_NODES | libc::MPOL_F_RELATIVE_NODES | libc::MPOL_F_NUMA_BALANCING;
        let is_set = |node: &usize| self.nodes[node / WORD] >> (node % WORD) & 1 == 1;
        (self.mode & !flags == libc::MPOL_BIND).then(|| NumberList((0..MOST_NODES).filter(is_set).collect()))
    }

    fn set(&self) -> io::Result<()> {
        // SAFETY: the mask is valid for reads, and has MASK_BITS - 1 bits.
        checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), MASK_BITS) })
    }
}

/// Binds the memory of the calling thread, and of threads and processes that it starts, to nodes.
///
/// # Errors
/// If a node does not exist or has no memory, or the kernel or a container does not allow it.
pub fn bind(nodes: &NumberList) -> io::Result<()> {
    MemoryPolicy { mode: libc::MPOL_BIND, nodes: mask(nodes) }.set()
}

/// Takes the memory of the calling thread, and of threads and processes that it starts, from the nodes in turn, page by
/// page.
///
/// # Errors
/// As [`bind`].
pub fn interleave(nodes: &NumberList) -> io::Result<()> {
    MemoryPolicy { mode: libc::MPOL_INTERLEAVE, nodes: mask(nodes) }.set()
}

/// Returns the nodes that memory is bound to; `None` if it comes from any node.
pub fn bound_nodes() -> Option<NumberList> {
    MemoryPolicy::current().ok()?.bound()
}

/// Returns the nodes that the mapping at an address is bound to; `None` if its memory comes from any node that the thread
/// may use.
pub(crate) fn bound_nodes_at(address: *const u8) -> Option<NumberList> {
    MemoryPolicy::read(address, AT_ADDRESS).ok()?.bound()
}

/// Returns how much memory the nodes that memory is bound to have left, bytes; `None` if memory comes from any node.
pub fn left_on_bound_nodes() -> Option<u64> {
    bound_nodes()?.0.iter().map(|node| left_on(*node)).sum()
}

/// Returns how much memory a node has left, bytes: free, and of files that are in memory. `None` if unknown.
pub fn left_on(node: usize) -> Option<u64> {
    left_below(Path::new("/"), node)
}

fn left_below(root: &Path, node: usize) -> Option<u64> {
    let text = fs::read_to_string(root.join(format!("{NODES}/node{node}/meminfo"))).ok()?;
    // Lines such as `Node 0 MemFree:    1234 kB`.
    let counts = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(2);
        let counted = matches!(words.next()?, "MemFree:" | "Active(file):" | "Inactive(file):");
        words.next()?.parse::<u64>().ok().filter(|_| counted)
    });
    Some(counts.sum::<u64>().saturating_mul(1024))
}

/// Runs something while all memory that it allocates comes from one node.
///
/// # Errors
/// As [`bind`].
pub fn bound_to<T>(node: usize, work: impl FnOnce() -> T) -> io::Result<T> {
    let before = MemoryPolicy::current()?;
    bind(&NumberList([node].into()))?;
    let outcome = work();
    before.set().map(|()| outcome)
}

/// The processors of the calling thread and the nodes of its memory. Both are restored when this is dropped, also by a panic.
pub(crate) struct KeptPlacement {
    processors: Option<CpuSet>,
    policy: Option<MemoryPolicy>,
}

impl KeptPlacement {
    pub(crate) fn current() -> KeptPlacement {
        // What cannot be read cannot be changed either.
        KeptPlacement { processors: sched_getaffinity(None).ok(), policy: MemoryPolicy::current().ok() }
    }
}

impl Drop for KeptPlacement {
    fn drop(&mut self) {
        if let Some(before) = self.processors.filter(|before| sched_getaffinity(None).ok() != Some(*before)) {
            _ = sched_setaffinity(None, &before);
        }
        if let Some(before) = self.policy.filter(|before| MemoryPolicy::current().ok() != Some(*before)) {
            _ = before.set();
        }
    }
}

/// Keeps the pages of whole, touched memory on a node, so that the kernel does not move them to the processors that use them.
/// Fails if any lies on another node.
///
/// # Errors
/// If the kernel does not allow it, or a page lies elsewhere.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "the kernel checks the range, and changes no contents")]
pub fn keep_on(node: usize, start: *mut u8, length: usize) -> io::Result<()> {
    let (nodes, mode) = (mask(&NumberList([node].into())), libc::MPOL_BIND as c_ulong);
    // SAFETY: this changes where pages may lie, not their contents; the mask has MASK_BITS - 1 bits.
    checked(unsafe {
        libc::syscall(libc::SYS_mbind, start, length, mode, nodes.as_ptr(), MASK_BITS, NO_FLAGS)
    })?;
    let (mut pages, mut elsewhere) = (0, 0);
    for at in (0..length).step_by(Machine::current().page_size) {
        pages += 1;
        elsewhere += usize::from(node_of(start.wrapping_add(at))? != node);
    }
    let text = || io::Error::other(format!("{elsewhere} of {pages} pages lie on other nodes than {node}"));
    if elsewhere == 0 { Ok(()) } else { Err(text()) }
}

/// Returns the node of the page at an address.
fn node_of(address: *mut u8) -> io::Result<usize> {
    /// `MPOL_F_NODE | MPOL_F_ADDR`.
    const OF_ADDRESS: c_ulong = 1 | AT_ADDRESS;
    let (mut node, no_mask): (c_int, _) = (0, null::<c_ulong>());
    // SAFETY: the node is valid for writes, there is no mask, and the kernel checks the address.
    checked(unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, no_mask, 0_usize, address, OF_ADDRESS)
    })?;
    Ok(usize::try_from(node).unwrap_or(usize::MAX))
}

fn checked(result: c_long) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::PermissionDenied {
        let text = format!("{error}; a container needs CAP_SYS_NICE (docker run --cap-add SYS_NICE)");
        return Err(io::Error::new(error.kind(), text));
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use bulkmem::{Mapping, Pages};

    use super::*;

    fn list(text: &str) -> NumberList {
        text.parse().unwrap()
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for text in ["0", "0-3", "0-3,8", "1,3,5-7", "1023"] {
            assert_eq!(list(text).to_string(), text);
        }
        assert_eq!(list("2,0,1,1-2\n").to_string(), "0-2");
        for text in ["", "all", "3-1", "1,", "-1", "0x1", "1-2-3", "70000", "0-4294967295", "0:1"] {
            let error = text.parse::<NumberList>().unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && error.contains("0-3,8"), "{error}");
        }
    }

    fn below(files: &[(&str, &str)], usable: &str) -> (tempfile::TempDir, Topology) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let topology = Topology::below(root.path(), list(usable));
        (root, topology)
    }

    /// Two sockets, and memory without processors (CXL) on node 2; the control group excludes node 1's memory.
    #[test]
    fn nodes_have_the_processors_and_the_memory_that_may_be_used() {
        let files = [
            ("sys/devices/system/node/online", "0-3\n"),
            ("sys/devices/system/node/has_memory", "0-2\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3,8-11\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7,12-15\n"),
            ("sys/devices/system/node/node2/cpulist", "\n"),
            ("sys/devices/system/node/node3/cpulist", "16-19\n"),
            (
                "sys/devices/system/node/node2/meminfo",
                "Node 2 MemTotal: 9 kB\nNode 2 MemFree:  8 kB\nNode 2 Active(file): 2 kB\nNode 2 AnonPages: 5 kB\n",
            ),
            ("proc/self/status", "Name:\tbulkmem\nMems_allowed:\t5\nMems_allowed_list:\t0,2\n"),
        ];
        let (root, topology) = below(&files, "2-5");
        let processors = [(0, list("2-3")), (1, list("4-5"))].into();
        let [online, with_memory, allowed] = ["0-3", "0-2", "0,2"].map(list);
        assert_eq!(topology, Topology { online, with_memory, allowed, processors });
        assert_eq!(left_below(root.path(), 2), Some(10 << 10));
        assert_eq!(left_below(root.path(), 1), None);
    }

    #[test]
    fn a_kernel_without_numa_has_node_0() {
        let (_root, topology) = below(&[], "0-1");
        let processors = [(0, list("0-1"))].into();
        let [online, with_memory, allowed] = ["0", "0", "0"].map(list);
        assert_eq!(topology, Topology { online, with_memory, allowed, processors });
    }

    /// In a thread of its own, whose memory stays bound to the node.
    #[test]
    fn memory_is_bound_and_checked_page_by_page() {
        std::thread::spawn(|| {
            let before = match MemoryPolicy::current() {
                Ok(policy) => policy,
                Err(error) => return println!("skipped: binding memory to a node: {error}"),
            };
            let nodes = Topology::current().memory();
            let node = *nodes.0.first().expect("a node");
            let mut memory = bound_to(node, || {
                assert_eq!(bound_nodes(), Some(NumberList([node].into())));
                assert!(left_on_bound_nodes().unwrap() > 0);
                let mut memory = Mapping::new(1 << 20, Pages::Base).unwrap();
                memory.prefault().unwrap();
                memory
            })
            .unwrap();
            assert_eq!(MemoryPolicy::current().unwrap(), before);
            let start = memory.as_mut_ptr();
            keep_on(node, start, 1 << 20).unwrap();
            // Pages that are on no such node.
            let elsewhere = keep_on(MOST_NODES - 1, start, 1 << 20).unwrap_err().to_string();
            assert!(elsewhere.contains("nvalid") || elsewhere.contains("256 of 256 pages"), "{elsewhere}");
            bind(&nodes).unwrap();
            assert_eq!(bound_nodes(), Some(nodes));
        })
        .join()
        .unwrap();
    }
}
