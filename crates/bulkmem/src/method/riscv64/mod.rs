//! Methods for riscv64, one file per instruction family.
//!
//! Every store of this architecture is weakly ordered, ordinary ones too, and a release store orders all of them. `Weak`
//! are non-temporal stores and write-backs: see [`order_stores`](super::primitives::barrier::order_stores).

mod line;
mod persist;
mod store;
mod vector;
mod zero;

use super::Method;
use super::lines::{entry, loops, tunables};
use super::portable;
use super::primitives::barrier::fence;
use crate::operation::Operation;

/// See [`BUILT_IN`](super::BUILT_IN). The baseline has nothing that makes bytes durable: until the features are known,
/// those operations are refused.
pub(crate) static BUILT_IN: [&Method; Operation::ALL.len()] = [&portable::METHOD; Operation::ALL.len()];

/// Every riscv64 method.
pub(super) fn methods() -> impl Iterator<Item = &'static Method> {
    [store::METHODS, zero::METHODS, vector::METHODS, persist::METHODS].into_iter().flatten()
}
