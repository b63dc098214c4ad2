//! The room below the limits that the next step needs.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Cause;
use crate::limits::{Group, MemoryLeft, MemoryLimit, available_now};
use crate::numa::{NumberList, left_on};
use crate::options::KEEP_FREE;
use crate::shared::Limits;
use crate::supply::{Supply, free_pages, left_on_tmpfs};

/// Finds the groups again after this time: a process may move, and limits above the mount points may change.
const FIND_AGAIN: Duration = Duration::from_millis(100);

/// Reads the limits.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    supply: Supply<'a>,
    shared: Option<&'a Limits>,
    /// As the options say.
    keep: Option<u64>,
    groups: Vec<Group>,
    found: Option<Instant>,
}

/// The room below the nearest limit.
#[derive(Debug)]
pub(crate) struct Left {
    /// Bytes, without those that stay free.
    pub(crate) bytes: u64,
    nearest: Nearest,
}

#[derive(Debug)]
enum Nearest {
    Memory(MemoryLeft, u64),
    Shared(u64),
    HugePages(u64, u64),
    None,
}

impl Left {
    pub(crate) fn into_cause(self, needed: u64) -> Cause {
        match self.nearest {
            Nearest::Memory(left, keep) => Cause::Limit { left, keep, needed },
            Nearest::Shared(free) => Cause::NoSpace { free },
            Nearest::HugePages(page, free) => Cause::HugePages { page, free },
            Nearest::None => Cause::unsupported("no limit is near", "report this error"),
        }
    }
}

impl<'a> Room<'a> {
    pub(crate) fn new(supply: Supply<'a>, keep: Option<u64>, shared: Option<&'a Limits>) -> Room<'a> {
        Room { supply, shared, keep, groups: Vec::new(), found: None }
    }

    /// The shared limits, for memory that has no others: those of huge pages and of a tmpfs are fast to read.
    fn shared(&self) -> Option<&'a Limits> {
        self.shared.filter(|_| match self.supply {
            Supply::Memory => true,
            Supply::Shared(file) => left_on_tmpfs(file).is_none(),
            Supply::HugePages(_) | Supply::Reserved => false,
        })
    }

    /// Uses room that an earlier prefault has read; returns false if there is not enough.
    pub(crate) fn take(&self, nodes: Option<&NumberList>, bytes: u64) -> bool {
        let keep = self.keep.unwrap_or(KEEP_FREE);
        self.shared().is_some_and(|limits| limits.take(nodes, keep, bytes, Instant::now()))
    }

    /// Leaves room that was read now to later steps and prefaults.
    pub(crate) fn leave(&self, nodes: Option<&NumberList>, bytes: u64) {
        if let Some(limits) = self.shared() {
            limits.note(nodes, self.keep.unwrap_or(KEEP_FREE), bytes, Instant::now());
        }
    }

    /// Returns the room for pages from any node, or from these. Exact, or a lower limit that is faster to read.
    pub(crate) fn left(&mut self, nodes: Option<&NumberList>, exact: bool) -> Left {
        let unlimited = Left { bytes: u64::MAX, nearest: Nearest::None };
        let shared = match self.supply {
            Supply::Reserved => return unlimited,
            // If they run out, the kernel reports an error and ends no process. So only what stays free is checked: the
            // kernel may also take pages that are reserved for the file, or surplus ones.
            Supply::HugePages(page) => {
                let Some(keep) = self.keep.filter(|keep| *keep > 0) else { return unlimited };
                let free = free_pages(page);
                let bytes = (free * page).saturating_sub(keep);
                return Left { bytes, nearest: Nearest::HugePages(page, free) };
            }
            Supply::Shared(file) => left_on_tmpfs(file),
            Supply::Memory => None,
        };
        let left = self.memory(nodes, exact);
        let keep = self.keep.unwrap_or(KEEP_FREE);
        let of_memory = left.bytes.saturating_sub(keep);
        match shared.map(|free| (free.saturating_sub(self.keep.unwrap_or(0)), free)) {
            Some((bytes, free)) if bytes < of_memory => Left { bytes, nearest: Nearest::Shared(free) },
            _ => Left { bytes: of_memory, nearest: Nearest::Memory(left, keep) },
        }
    }

    fn memory(&mut self, nodes: Option<&NumberList>, exact: bool) -> MemoryLeft {
        if self.found.is_none_or(|found| found.elapsed() > FIND_AGAIN) {
            self.groups = Group::of_process(Path::new("/"));
            self.found = Some(Instant::now());
        }
        let mut least = MemoryLeft { bytes: available_now(), limit: MemoryLimit::Available };
        for (bytes, file) in self.groups.iter().filter_map(|group| group.left(exact)) {
            if bytes < least.bytes {
                least = MemoryLeft { bytes, limit: MemoryLimit::ControlGroup(file) };
            }
        }
        let on_nodes = nodes.and_then(|nodes| nodes.0.iter().map(|node| left_on(*node)).sum::<Option<u64>>());
        match on_nodes {
            Some(bytes) if bytes < least.bytes => MemoryLeft { bytes, limit: MemoryLimit::Nodes },
            _ => least,
        }
    }
}
