//! Restricting this process to processors and NUMA nodes.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::engine::error::require;
use crate::engine::numa::{self, NumberList, ONLINE_PROCESSORS, Topology, processors};
use crate::engine::{Buffer, MeasureError, RawRange, Result};

/// The processors and NUMA nodes to measure on. Default: all that the process may use.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The processors to run on.
    pub processors: Option<NumberList>,
    /// The nodes that memory comes from. Files and devices stay where they are.
    pub nodes: Option<NumberList>,
}

impl Placement {
    /// Restricts the calling thread, and the threads and processes that it starts from now on. Call it before anything else
    /// is measured, because the number of processors is looked up once.
    ///
    /// # Errors
    /// If a processor or node does not exist or may not be used.
    pub fn apply(&self) -> Result<()> {
        let allowed = processors();
        if let Some(wanted) = &self.processors {
            let online =
                NumberList::read(Path::new("/"), ONLINE_PROCESSORS).unwrap_or_else(|| allowed.clone());
            let excluded = "taskset or a control group (cpuset) excludes processor";
            require_all("--cpu", wanted, &[(&online, "there is no processor"), (&allowed, excluded)])?;
            sched_setaffinity(None, &wanted.cpu_set()).map_err(unplaced)?;
        }
        let Some(wanted) = &self.nodes else { return Ok(()) };
        let topology = Topology::current();
        require_all(
            "--node",
            wanted,
            &[
                (&topology.online, "there is no NUMA node"),
                (&topology.with_memory, "there is no memory on NUMA node"),
                (&topology.allowed, "a control group (cpuset.mems) excludes NUMA node"),
            ],
        )?;
        match numa::bind(wanted) {
            // All memory is there anyway.
            Err(_) if topology.online.0.len() == 1 => Ok(()),
            outcome => outcome.map_err(refused),
        }
    }
}

/// Checks that all numbers are in each of the sets, which come with the text for those that are not.
fn require_all(option: &'static str, wanted: &NumberList, sets: &[(&NumberList, &str)]) -> Result<()> {
    sets.iter().try_for_each(|(set, otherwise)| {
        let missing = NumberList(&wanted.0 - &set.0);
        require(missing.0.is_empty(), option, format!("{otherwise} {missing}; name some of {set}"))
    })
}

/// Restricts the calling thread, and threads that it starts, to processors until dropped.
#[derive(Debug)]
pub(crate) struct Pinned(CpuSet);

impl Pinned {
    pub(crate) fn to(processors: &CpuSet) -> Result<Pinned> {
        let before = sched_getaffinity(None);
        let pinned = before.and_then(|before| sched_setaffinity(None, processors).map(|()| Pinned(before)));
        pinned.map_err(unplaced)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        _ = sched_setaffinity(None, &self.0);
    }
}

fn unplaced(error: Errno) -> MeasureError {
    MeasureError::System { doing: "run on other processors", source: error.into() }
}

/// Allocates a buffer on one node. Fails if any of its pages lies on another.
pub(crate) fn on_node(node: usize, allocate: impl FnOnce() -> Result<Buffer>) -> Result<Buffer> {
    let mut buffer = numa::bound_to(node, allocate).map_err(refused)??;
    let RawRange { start, length } = buffer.raw_range();
    numa::keep_on(node, start, length).map_err(refused)?;
    Ok(buffer)
}

fn refused(source: io::Error) -> MeasureError {
    MeasureError::System { doing: "bind memory to a NUMA node", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> NumberList {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_missing_is_named_with_what_there_is() {
        let sets = [list("0-3"), list("0-1")];
        let check = |wanted: &str| {
            let sets =
                [(&sets[0], "there is no NUMA node"), (&sets[1], "a control group excludes NUMA node")];
            require_all("--node", &list(wanted), &sets).map_err(|error| error.to_string())
        };
        assert_eq!(check("0-1"), Ok(()));
        assert_eq!(check("1,9"), Err("--node: there is no NUMA node 9; name some of 0-3".to_owned()));
        assert_eq!(
            check("1-3"),
            Err("--node: a control group excludes NUMA node 2-3; name some of 0-1".to_owned())
        );
    }

    #[test]
    fn a_thread_comes_back_to_its_processors() {
        let before = processors();
        let last = NumberList(before.0.last().copied().into_iter().collect());
        {
            let _pinned = Pinned::to(&last.cpu_set()).unwrap();
            assert_eq!(processors(), last);
        }
        assert_eq!(processors(), before);
        assert!(Pinned::to(&CpuSet::new()).is_err());
    }
}
