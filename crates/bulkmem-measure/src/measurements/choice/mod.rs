//! The policy's choice against every method and other libraries.

pub(crate) mod bench;
pub(crate) mod choosing;
pub(crate) mod interface;
pub(crate) mod report;
pub(crate) mod verdict;
