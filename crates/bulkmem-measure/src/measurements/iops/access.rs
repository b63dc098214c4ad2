//! Who reads and who writes: a method, or a peer, in either direction.

use bulkmem::method::{self, Method};
use bulkmem::policy::{Choice, Policy};
use bulkmem::{Intent, Operation};

use crate::engine::implementation::{self, Implementation, MethodSet};
use crate::engine::peers;
use crate::engine::{Candidate, Direction, Peers};
use crate::measurements::iops::workers::Job;
use crate::{Kind, MeasureError};

/// Somebody with what it reads and writes by.
#[derive(Debug)]
pub(super) struct Access<'p> {
    pub(super) candidate: Candidate,
    pub(super) ways: Ways<'p>,
}

/// What reads a block, and what writes one: an implementation and its operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways<'p> {
    pub(super) read: (Implementation<'p>, Operation),
    pub(super) write: (Implementation<'p>, Operation),
}

/// For each family its widest row that the machine has: those that the source compares, and their successors.
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

/// What a direction is called.
pub(super) fn verb(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
        Direction::Mixed => "mixed",
    }
}

/// How a method writes blocks: it copies, or persists where it can only do that.
fn writing(method: &Method) -> Option<Operation> {
    [Operation::Copy, Operation::CopyPersist].into_iter().find(|operation| method.does(*operation))
}

/// The methods that can work in a direction, with their parameters.
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
            let row = |family: &&[&str]| {
                let rows = family.iter().filter_map(|name| method::by_name(name));
                rows.into_iter().find(|method| method.available()).and_then(with)
            };
            families.iter().filter_map(row).collect()
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
    // To persist is to write.
    found.retain(|(_, operation)| direction != Direction::Read || *operation == Operation::Copy);
    Ok(found)
}

/// Everybody who takes part, and what is to be said of those who do not. `whole` is the working set, bytes.
pub(super) fn accesses<'p>(
    policy: &'p Policy,
    wanted: &MethodSet,
    others: Peers,
    job: Job,
    whole: usize,
) -> Result<(Vec<Access<'p>>, Option<&'static str>), MeasureError> {
    let plain = |operation| (Implementation::Method(Choice::of(method::c_library(), operation)), operation);
    // What is read is used next; what is written is, over all blocks, as long as the working set.
    let read = (Implementation::policy(policy, Intent::Reuse, job.block), Operation::Copy);
    let write = (Implementation::policy(policy, Intent::Throughput, whole), Operation::Copy);
    let candidate = Candidate::named(Kind::Policy, "policy");
    let mut all = vec![Access { candidate, ways: Ways { read, write } }];
    for (choice, operation) in methods(wanted, job.direction)? {
        let itself = (Implementation::Method(choice), operation);
        // Who can only persist has the C library read.
        let read = if operation == Operation::Copy { itself } else { plain(Operation::Copy) };
        all.push(Access { candidate: Candidate::method(&choice), ways: Ways { read, write: itself } });
    }
    let mut note = None;
    match (others, job.direction) {
        // Who is asked for by name is no peer.
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
            // libpmem only writes; its users read by memcpy.
            Ok(peers) => all.extend(peers.into_iter().map(|peer| {
                let write = (Implementation::Peer(peer), Operation::CopyPersist);
                let candidate = Candidate::named(Kind::Peer, peer.name);
                Access { candidate, ways: Ways { read: plain(Operation::Copy), write } }
            })),
        },
    }
    Ok((all, note))
}
