//! Information from the kernel: `/proc`, `/sys` and system calls.

use std::fs;
use std::path::Path;

/// How many processors this process may run on.
pub(super) fn processors() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) if set.count() > 0 => set.count() as usize,
        // The kernel knows more processors than the set holds.
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Microcode revision; empty where the kernel prints none.
pub(super) fn microcode(root: &Path) -> String {
    let text = read(root, "proc/cpuinfo");
    field(&text, "microcode").unwrap_or_default().to_owned()
}

/// The kernel's release; empty where unknown.
pub(super) fn release(root: &Path) -> String {
    read(root, "proc/sys/kernel/osrelease").trim().to_owned()
}

/// Memory in bytes; 0 where unknown.
pub(super) fn memory(root: &Path) -> u64 {
    let text = read(root, "proc/meminfo");
    let kib = field(&text, "MemTotal").and_then(|value| value.strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024))
        .unwrap_or_default()
}

/// NUMA nodes; 0 where the kernel lists none.
pub(super) fn nodes(root: &Path) -> usize {
    names(root, "sys/devices/system/node").filter(|name| numbered(name, "node", "").is_some()).count()
}

/// Sizes of explicit huge pages, bytes, rising.
pub(super) fn huge_page_sizes(root: &Path) -> Vec<u64> {
    let mut sizes: Vec<u64> = names(root, "sys/kernel/mm/hugepages")
        .filter_map(|name| numbered(&name, "hugepages-", "kB")?.checked_mul(1024))
        .filter(|size| size.is_power_of_two())
        .collect();
    sizes.sort_unstable();
    sizes
}

/// The word in brackets of the kernel's setting for transparent huge pages.
pub(super) fn transparent_huge_pages(root: &Path) -> Option<String> {
    let text = read(root, "sys/kernel/mm/transparent_hugepage/enabled");
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

/// The hypervisor that the kernel names (Xen alone does so).
pub(super) fn hypervisor(root: &Path) -> Option<String> {
    let name = read(root, "sys/hypervisor/type").trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// The file's text; empty where it cannot be read.
fn read(root: &Path, path: &str) -> String {
    fs::read(root.join(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The names in a folder; none where it cannot be read.
fn names(root: &Path, path: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(root.join(path)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The value of the first `name : value` line of that name.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// The number between a prefix and a suffix.
fn numbered(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_usual_tree_is_read() {
        let root = tree(&[
            ("proc/cpuinfo", "processor\t: 0\nmicrocode\t: 0x5002f01\nflags\t\t: fpu\n"),
            ("proc/meminfo", "MemTotal:       24689852 kB\nMemFree: 1 kB\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("sys/devices/system/node/node0/cpulist", "0"),
            ("sys/devices/system/node/node1/cpulist", "1"),
            ("sys/devices/system/node/nodes/x", ""),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr", "0"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr", "0"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/hypervisor/type", "xen\n"),
        ]);
        assert_eq!(microcode(root.path()), "0x5002f01");
        assert_eq!(memory(root.path()), 24_689_852 * 1024);
        assert_eq!(release(root.path()), "6.1.0-18-amd64");
        assert_eq!(nodes(root.path()), 2);
        assert_eq!(huge_page_sizes(root.path()), [2 << 20, 1 << 30]);
        assert_eq!(transparent_huge_pages(root.path()).as_deref(), Some("madvise"));
        assert_eq!(hypervisor(root.path()).as_deref(), Some("xen"));
    }

    #[test]
    fn damaged_files_tell_nothing() {
        let root = tree(&[
            ("proc/cpuinfo", "microcode 0x5\n:\n::\n"),
            ("proc/meminfo", "MemTotal: 99999999999999999999 kB\n"),
            ("sys/devices/system/node/node-1/x", ""),
            ("sys/kernel/mm/hugepages/hugepages-kB/x", ""),
            ("sys/kernel/mm/hugepages/hugepages-18446744073709551615kB/x", ""),
            ("sys/kernel/mm/hugepages/hugepages-0kB/x", ""),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always ]madvise[ never"),
        ]);
        assert_eq!(microcode(root.path()), "");
        assert_eq!(memory(root.path()), 0);
        assert_eq!(nodes(root.path()), 0);
        assert!(huge_page_sizes(root.path()).is_empty());
        assert_eq!(transparent_huge_pages(root.path()), None);
        assert_eq!(hypervisor(root.path()), None);
    }

    #[test]
    fn a_machine_with_one_processor_is_one() {
        let one = std::thread::spawn(|| {
            let allowed = rustix::thread::sched_getaffinity(None).unwrap();
            let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
            let mut set = rustix::thread::CpuSet::new();
            set.set(first);
            rustix::thread::sched_setaffinity(None, &set).unwrap();
            processors()
        });
        assert_eq!(one.join().unwrap(), 1);
    }
}
