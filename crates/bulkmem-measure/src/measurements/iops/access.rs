//! The candidates: the implementations that read and write blocks.

use bulkmem::method::{self, Method};
use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation};

use crate::engine::{Direction, Implementation, Kind, MethodSet, Peers, Result, Run, implementation};
use crate::measurements::participants::Candidates;

/// Implementations that read and that write a block, with their operations. The one that writes names the candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'p> {
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

/// Returns the operation by which a method writes blocks: copy, or copy_persist if it supports only that.
fn writing(method: &Method) -> Option<Operation> {
    [Operation::Copy, Operation::CopyPersist].into_iter().find(|operation| method.does(*operation))
}

/// Returns the methods that support a direction, with their parameters and operations. [`MeasureError::Method`] for a name
/// that can be used in no direction.
pub(super) fn methods(wanted: &MethodSet, direction: Direction) -> Result<Vec<(Choice, Operation)>> {
    let with = |method: &'static Method| {
        let operation = writing(method).filter(|_| method.available())?;
        Some((Choice::of(method, operation), operation))
    };
    let named = |name: &String| {
        let able = method::by_name(name.split('[').next().unwrap_or(name)).and_then(writing);
        let operation = able.unwrap_or(Operation::Copy);
        Ok((implementation::named(name, operation)?, operation))
    };
    let families = if direction == Direction::Read { READERS } else { WRITERS };
    let first = |family: &&[&str]| family.iter().filter_map(|name| method::by_name(name)).find_map(with);
    let mut found: Vec<_> = match wanted {
        MethodSet::Representative => families.iter().filter_map(first).collect(),
        MethodSet::All => method::all().filter_map(with).collect(),
        MethodSet::Named(names) => names.iter().map(named).collect::<Result<_>>()?,
    };
    found.retain(|(_, operation)| direction != Direction::Read || *operation == Operation::Copy);
    Ok(found)
}

/// Returns the candidates for a direction and block. Notes which are missing. `whole` is the working set, bytes.
pub(super) fn accesses<'p>(
    run: &mut Run<'p>,
    Candidates { methods: wanted, peers, .. }: &Candidates,
    (direction, block): (Direction, usize),
    whole: usize,
) -> Result<Vec<Access<'p>>> {
    let copying = |implementation| (implementation, Operation::Copy);
    let memcpy = copying(Implementation::Method(Choice::of(method::c_library(), Operation::Copy)));
    let mut all = vec![Access {
        // A block that was read is used next. Written blocks are together as long as the working set.
        read: copying(Implementation::policy(run.policy, Intent::Reuse, block)),
        write: copying(Implementation::policy(run.policy, Intent::Throughput, whole)),
    }];
    for (choice, operation) in methods(wanted, direction)? {
        let write = (Implementation::Method(choice), operation);
        // With methods that only persist, the C library reads.
        all.push(Access { read: if operation == Operation::Copy { write } else { memcpy }, write });
    }
    match (peers, direction) {
        // A method that was requested by name stays.
        (Peers::None, _) if matches!(wanted, MethodSet::Named(_)) => {}
        (Peers::None, _) => all.retain(|access| access.write.0.candidate().kind != Kind::Peer),
        (Peers::All, Direction::Read) => {
            let read = copying(Implementation::Read);
            all.push(Access { read, write: read });
        }
        (Peers::All, _) => {
            let (libraries, missing) = implementation::libraries(Operation::CopyPersist, *peers);
            missing.into_iter().for_each(|reason| run.note(reason));
            // libpmem only writes; programs that use it read by memcpy.
            let write = |it| Access { read: memcpy, write: (it, Operation::CopyPersist) };
            all.extend(libraries.into_iter().map(write));
        }
    }
    Ok(all)
}
