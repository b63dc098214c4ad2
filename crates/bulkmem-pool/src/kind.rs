//! Kinds of memory that a pool keeps ready.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PageSize {
    /// The kernel's base pages, 4 KiB on x86-64.
    #[serde(rename = "4K")]
    Base,
    /// Huge pages of 2 MiB, from the pool in /proc/sys/vm/nr_hugepages.
    #[serde(rename = "2M")]
    Huge2M,
    /// Huge pages of 1 GiB.
    #[serde(rename = "1G")]
    Huge1G,
}

impl PageSize {
    /// All page sizes.
    pub const ALL: [PageSize; 3] = [PageSize::Base, PageSize::Huge2M, PageSize::Huge1G];

    /// Returns the size in bytes, which is 4096 for base pages of any size.
    pub fn bytes(self) -> u64 {
        match self {
            PageSize::Base => 4 << 10,
            PageSize::Huge2M => 2 << 20,
            PageSize::Huge1G => 1 << 30,
        }
    }

    /// Returns the page size of so many bytes.
    pub fn of_bytes(bytes: u64) -> Option<PageSize> {
        PageSize::ALL.into_iter().find(|page| page.bytes() == bytes)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageSize::Base => "4K",
            PageSize::Huge2M => "2M",
            PageSize::Huge1G => "1G",
        })
    }
}

/// A kind of unit: page size, length, and NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kind {
    /// The page size.
    pub page: PageSize,
    /// Length of a unit in bytes, a multiple of the page size.
    pub unit: u64,
    /// The NUMA node of its pages; in a request, `None` accepts any unit.
    pub node: Option<u32>,
}

/// A kind that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    /// Not a whole number of pages, or too many.
    #[error(
        "{unit} bytes are not a whole number of {page} pages, or more than 128 TiB: give a multiple of {page} up to that"
    )]
    Unit {
        /// The page size.
        page: PageSize,
        /// The length in bytes.
        unit: u64,
    },
    /// A node number that Linux does not use.
    #[error("there is no NUMA node {0}: /sys/devices/system/node lists the nodes")]
    Node(u32),
}

impl Kind {
    /// Creates a kind.
    ///
    /// # Errors
    /// If the length is 0, more than 128 TiB, or not a multiple of the page size, or the node is 1024 or more.
    pub fn new(page: PageSize, unit: u64, node: Option<u32>) -> Result<Kind, KindError> {
        if unit == 0 || unit > 1 << 47 || unit % page.bytes() != 0 {
            return Err(KindError::Unit { page, unit });
        }
        match node {
            Some(node) if node >= 1024 => Err(KindError::Node(node)),
            _ => Ok(Kind { page, unit, node }),
        }
    }

    /// Returns true if a unit of this kind satisfies a request for `wanted`.
    pub fn satisfies(&self, wanted: &Kind) -> bool {
        let node = wanted.node.is_none() || wanted.node == self.node;
        (self.page, self.unit) == (wanted.page, wanted.unit) && node
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in {} pages", self.unit, self.page)?;
        self.node.map_or(Ok(()), |node| write!(f, " of node {node}"))
    }
}

/// The number of units of a kind to keep ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supply {
    /// The kind.
    pub kind: Kind,
    /// The number of units.
    pub count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_are_a_kind() {
        assert!(Kind::new(PageSize::Huge2M, 2 << 20, None).is_ok());
        for unit in [0, 1 << 20, (2 << 20) + 4096, 1 << 48] {
            let error = Kind::new(PageSize::Huge2M, unit, None).unwrap_err();
            assert_eq!(error, KindError::Unit { page: PageSize::Huge2M, unit });
        }
        assert_eq!(Kind::new(PageSize::Base, 4096, Some(1024)), Err(KindError::Node(1024)));
    }

    #[test]
    fn a_request_without_a_node_accepts_every_node() {
        let on = |node| Kind::new(PageSize::Base, 8192, node).unwrap();
        assert!(on(Some(1)).satisfies(&on(None)) && on(Some(1)).satisfies(&on(Some(1))));
        assert!(!on(Some(1)).satisfies(&on(Some(0))) && !on(None).satisfies(&on(Some(0))));
        assert!(!on(None).satisfies(&Kind::new(PageSize::Base, 4096, None).unwrap()));
        assert!(!on(None).satisfies(&Kind { page: PageSize::Huge2M, ..on(None) }));
    }
}
