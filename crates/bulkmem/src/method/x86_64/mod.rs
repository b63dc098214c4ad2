//! Methods for x86-64, one file per instruction family.

use super::Method;

mod fence;

pub(super) use fence::sfence;

/// Every x86-64 method.
pub(super) fn methods() -> impl Iterator<Item = &'static Method> {
    [].into_iter()
}
