//! Methods for x86-64, one file per instruction family.

mod clzero;
mod demote;
mod flush;
mod line;
mod movdir64b;
mod nontemporal;
mod placed;
mod source;
mod store;
mod streams;
mod string;

use super::Method;
use super::lines::{edges, entry, loops, tunables};
use super::primitives::{part, prefetch};
use crate::operation::Operation;

/// See [`BUILT_IN`](super::BUILT_IN).
pub(crate) static BUILT_IN: [&Method; Operation::ALL.len()] = [
    find(string::METHODS, b"rep_stosb"),
    find(string::METHODS, b"rep_stosb"),
    find(string::METHODS, b"rep_movsb"),
    find(nontemporal::METHODS, b"movnti"),
    find(nontemporal::METHODS, b"movnti"),
    find(flush::METHODS, b"clflush"),
];

/// The method of that name, at compile time.
const fn find(methods: &'static [Method], name: &[u8]) -> &'static Method {
    let mut at = 0;
    loop {
        let other = methods[at].name.as_bytes();
        let mut same = 0;
        while same < name.len() && same < other.len() && name[same] == other[same] {
            same += 1;
        }
        if same == name.len() && same == other.len() {
            return &methods[at];
        }
        at += 1;
    }
}

/// Every x86-64 method.
pub(super) fn methods() -> impl Iterator<Item = &'static Method> {
    [
        string::METHODS,
        store::METHODS,
        placed::METHODS,
        nontemporal::METHODS,
        source::METHODS,
        clzero::METHODS,
        demote::METHODS,
        movdir64b::METHODS,
        streams::METHODS,
        flush::METHODS,
    ]
    .into_iter()
    .flatten()
}
