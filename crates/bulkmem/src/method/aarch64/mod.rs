//! Methods for aarch64, one file per instruction family.
//!
//! Every store of this architecture is weakly ordered, ordinary ones too: a release store orders all of them, whatever
//! the instruction. `Weak` are those that are treated as more than that: see [`order_stores`](super::primitives::barrier::order_stores).

mod line;
mod mops;
mod nontemporal;
mod persist;
mod store;
mod streams;
mod sve;
mod zero;

use super::Method;
use super::lines::{entry, loops, tunables};
use super::portable;
use super::primitives::barrier::{before_nontemporal_loads, persisted};
use crate::operation::Operation;

/// See [`BUILT_IN`](super::BUILT_IN).
pub(crate) static BUILT_IN: [&Method; Operation::ALL.len()] = [
    &portable::METHOD,
    &portable::METHOD,
    &portable::METHOD,
    // The baseline has nothing that makes bytes durable: until the features are known, these calls are refused.
    &portable::METHOD,
    &portable::METHOD,
    &portable::METHOD,
];

/// Every aarch64 method.
pub(super) fn methods() -> impl Iterator<Item = &'static Method> {
    [
        store::METHODS,
        nontemporal::METHODS,
        streams::METHODS,
        zero::METHODS,
        sve::METHODS,
        mops::METHODS,
        persist::METHODS,
    ]
    .into_iter()
    .flatten()
}
