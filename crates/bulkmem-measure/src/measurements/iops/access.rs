//! The candidates: the implementations that read and write blocks.

use bulkmem::method::{self, Method};
use bulkmem::policy::{Choice, Policy};
use bulkmem::{Intent, Operation};

use crate::engine::implementation::{self, Implementation, MethodSet};
use crate::engine::peers;
use crate::engine::{Candidate, Direction, Peers};
use crate::{Kind, MeasureError};

/// A candidate with its implementations.
#[derive(Debug)]
pub(super) struct Access<'p> {
    pub(super) candidate: Candidate,
    pub(super) ways: Ways<'p>,
}

/// Implementations, with their operations, that read and that write a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways<'p> {
    pub(super) read: (Implementation<'p>, Operation),
    pub(super) write: (Implementation<'p>, Operation),
}

/// Families of methods, widest first, of which the first that the machine supports takes part: those that the source
/// compares, and their successors.
const READERS: &[&[&str]] = &[
    &["c_library"],
    &["rep_movsb"],
    &["movnti"],
    &["store_avx512", "store_avx", "store_sse2"],
    &["movntdqa_store_avx512", "movntdqa_store_avx2", "movntdqa_store_sse41"],
];
const WRITERS: &[&[&str]] = &[
    &["c_library"],
    &["rep_movsb"],
    &["movnti"],
    &["nontemporal_avx512", "nontemporal_avx", "nontemporal_sse2"],
    &["movdir64b"],
    &[
        "store_avx512_clwb",
        "store_avx_clwb",
        "store_avx512_clflushopt",
        "store_avx_clflushopt",
        "store_sse2_clflush",
    ],
];

/// Names a direction.
pub(super) fn verb(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
        Direction::Mixed => "mixed",
    }
}

/// Returns the operation by which a method writes blocks: copy, or copy_persist if it supports only that.
fn writing(method: &Method) -> Option<Operation> {
    [Operation::Copy, Operation::CopyPersist].into_iter().find(|operation| method.does(*operation))
}

/// Returns the methods that support a direction, with their parameters and operations.
///
/// # Errors
/// [`MeasureError::Method`] for a name that can be used in no direction.
pub(super) fn methods(
    wanted: &MethodSet,
    direction: Direction,
) -> Result<Vec<(Choice, Operation)>, MeasureError> {
    let with = |method: &'static Method| Some((Choice::of(method, writing(method)?), writing(method)?));
    let mut found: Vec<(Choice, Operation)> = match wanted {
        MethodSet::Representative => {
            let families = if direction == Direction::Read { READERS } else { WRITERS };
            let first = |family: &&[&str]| {
                let mut methods = family.iter().filter_map(|name| method::by_name(name));
                methods.find(|method| method.available()).and_then(with)
            };
            families.iter().filter_map(first).collect()
        }
        MethodSet::All => method::all().filter(|method| method.available()).filter_map(with).collect(),
        MethodSet::Named(names) => {
            let choice = |name: &String| {
                let one = MethodSet::Named(vec![name.clone()]);
                let able = method::by_name(name.split('[').next().unwrap_or(name)).and_then(writing);
                let operation = able.unwrap_or(Operation::Copy);
                Ok((implementation::methods(&one, operation)?[0], operation))
            };
            names.iter().map(choice).collect::<Result<_, _>>()?
        }
    };
    found.retain(|(_, operation)| direction != Direction::Read || *operation == Operation::Copy);
    Ok(found)
}

/// Returns the candidates for a direction and block, and a note on those that are missing. `whole` is the working set,
/// bytes.
pub(super) fn accesses<'p>(
    policy: &'p Policy,
    wanted: &MethodSet,
    others: Peers,
    (direction, block): (Direction, usize),
    whole: usize,
) -> Result<(Vec<Access<'p>>, Option<&'static str>), MeasureError> {
    let plain = |operation| (Implementation::Method(Choice::of(method::c_library(), operation)), operation);
    // A block that was read is used next. Written blocks are together as long as the working set.
    let read = (Implementation::policy(policy, Intent::Reuse, block), Operation::Copy);
    let write = (Implementation::policy(policy, Intent::Throughput, whole), Operation::Copy);
    let candidate = Candidate::named(Kind::Policy, "policy");
    let mut all = vec![Access { candidate, ways: Ways { read, write } }];
    for (choice, operation) in methods(wanted, direction)? {
        let itself = (Implementation::Method(choice), operation);
        // With methods that only persist, the C library reads.
        let read = if operation == Operation::Copy { itself } else { plain(Operation::Copy) };
        all.push(Access { candidate: Candidate::method(&choice), ways: Ways { read, write: itself } });
    }
    let mut note = None;
    match (others, direction) {
        // A method that was requested by name stays.
        (Peers::None, _) if matches!(wanted, MethodSet::Named(_)) => {}
        (Peers::None, _) => all.retain(|access| access.candidate.kind != Kind::Peer),
        (Peers::All, Direction::Read) => {
            let itself = (Implementation::Read, Operation::Copy);
            all.push(Access {
                candidate: Implementation::Read.candidate(),
                ways: Ways { read: itself, write: itself },
            });
        }
        (Peers::All, _) => match peers::peers(Operation::CopyPersist) {
            Err(reason) => note = Some(reason),
            // libpmem only writes; programs that use it read by memcpy.
            Ok(peers) => all.extend(peers.into_iter().map(|peer| {
                let write = (Implementation::Peer(peer), Operation::CopyPersist);
                let candidate = Candidate::named(Kind::Peer, peer.name);
                Access { candidate, ways: Ways { read: plain(Operation::Copy), write } }
            })),
        },
    }
    Ok((all, note))
}
