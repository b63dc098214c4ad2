//! Methods for x86-64, one file per instruction family.

mod clzero;
mod edges;
mod entry;
mod fence;
mod flush;
mod knobs;
mod line;
mod movdir64b;
mod nontemporal;
mod store;
mod streams;
mod string;
mod walk;

pub(super) use fence::sfence;

use super::Method;

/// Every x86-64 method.
pub(super) fn methods() -> impl Iterator<Item = &'static Method> {
    [
        string::METHODS,
        store::METHODS,
        nontemporal::METHODS,
        clzero::METHODS,
        movdir64b::METHODS,
        streams::METHODS,
        flush::METHODS,
    ]
    .into_iter()
    .flatten()
}
