//! The memory that the machine has left, and the pressure on it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::kind::PageSize;

/// The files of the kernel that tell about memory.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// The folder above /proc and /sys, for tests.
    pub(crate) root: PathBuf,
    /// Percentage of memory, and of the huge pages of each size, that the pool leaves to others.
    pub(crate) keep_free: u8,
}

impl Memory {
    /// Returns by how many bytes the free memory of a page size exceeds what the pool leaves to others; negative if others
    /// have less than that. Of huge pages, at least one is left.
    pub(crate) fn room(&self, page: PageSize, node: Option<u32>) -> io::Result<i128> {
        let share = |total: i128| (total * i128::from(self.keep_free) + 99) / 100;
        if page == PageSize::Base {
            let text = self.read("proc/meminfo")?;
            let field = |name| meminfo(&text, name).map(|kib| kib * 1024);
            let total = field("MemTotal")?;
            return Ok(field("MemAvailable")? - share(total));
        }
        let folder = format!("hugepages/hugepages-{}kB", page.bytes() >> 10);
        let all = format!("sys/kernel/mm/{folder}");
        // Mappings have reserved some of those that are free.
        let mut free =
            self.number(&format!("{all}/free_hugepages"))? - self.number(&format!("{all}/resv_hugepages"))?;
        let mut total = self.number(&format!("{all}/nr_hugepages"))?;
        if let Some(node) = node {
            let folder = format!("sys/devices/system/node/node{node}/{folder}");
            free = free.min(self.number(&format!("{folder}/free_hugepages"))?);
            total = self.number(&format!("{folder}/nr_hugepages"))?;
        }
        Ok((free - share(total).max(1)) * i128::from(page.bytes()))
    }

    /// Returns the microseconds for which some task has waited for memory since the machine started. `None` if the kernel
    /// does not measure it.
    pub(crate) fn stalled(&self) -> Option<u64> {
        let text = self.read("proc/pressure/memory").ok()?;
        let some = text.lines().find(|line| line.starts_with("some "))?;
        some.split_once("total=")?.1.trim().parse().ok()
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let path = self.root.join(name);
        fs::read_to_string(&path).map_err(|error| about(&path, &error.to_string(), error.kind()))
    }

    fn number(&self, name: &str) -> io::Result<i128> {
        let text = self.read(name)?;
        let unexpected = |_| about(&self.root.join(name), "not a number", io::ErrorKind::InvalidData);
        text.trim().parse().map_err(unexpected)
    }
}

/// Returns a field of /proc/meminfo in KiB.
fn meminfo(text: &str, name: &str) -> io::Result<i128> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse().ok());
    value.ok_or_else(|| about(Path::new("/proc/meminfo"), &format!("no {name}"), io::ErrorKind::InvalidData))
}

fn about(path: &Path, what: &str, kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(files: &[(&str, &str)], keep_free: u8) -> (tempfile::TempDir, Memory) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = folder.path().to_owned();
        (folder, Memory { root, keep_free })
    }

    #[test]
    fn a_share_of_memory_is_left_to_others() {
        let text = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    300 kB\n";
        let (_folder, memory) = planted(&[("proc/meminfo", text)], 10);
        assert_eq!(memory.room(PageSize::Base, None).unwrap(), 200 * 1024);
        let (_folder, memory) = planted(&[("proc/meminfo", text)], 50);
        assert_eq!(memory.room(PageSize::Base, None).unwrap(), -200 * 1024);
    }

    #[test]
    fn reserved_huge_pages_and_the_last_one_are_not_free() {
        let all = "sys/kernel/mm/hugepages/hugepages-2048kB";
        let node = "sys/devices/system/node/node1/hugepages/hugepages-2048kB";
        let files = [
            (format!("{all}/free_hugepages"), "50\n"),
            (format!("{all}/resv_hugepages"), "20\n"),
            (format!("{all}/nr_hugepages"), "100\n"),
            (format!("{node}/free_hugepages"), "6\n"),
            (format!("{node}/nr_hugepages"), "10\n"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let pages = |memory: &Memory, node| memory.room(PageSize::Huge2M, node).unwrap() / (2 << 20);
        let (_folder, memory) = planted(&files, 10);
        assert_eq!((pages(&memory, None), pages(&memory, Some(1))), (20, 5));
        let (_folder, memory) = planted(&files, 0);
        assert_eq!((pages(&memory, None), pages(&memory, Some(1))), (29, 5));
        let error = memory.room(PageSize::Huge1G, None).unwrap_err().to_string();
        assert!(error.contains("hugepages-1048576kB"), "{error}");
    }

    #[test]
    fn pressure_is_optional() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        let (_folder, memory) = planted(&[("proc/pressure/memory", text)], 0);
        assert_eq!(memory.stalled(), Some(12345));
        assert_eq!(planted(&[], 0).1.stalled(), None);
    }
}
