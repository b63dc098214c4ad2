//! Whoever can do an operation on memory: methods, the policy, the C library, other libraries, the kernel, and reading.

use std::num::NonZeroUsize;

use bulkmem::method::{self, CacheEffect, Method};
use bulkmem::policy::{Choice, Policy};
use bulkmem::{Intent, Operation, Options, Threads};

use crate::engine::Candidate;
use crate::engine::peers::{self, Peer};
use crate::engine::workload::{self, FILL_BYTE};
use crate::{Kind, MeasureError};

/// Somebody who does an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Implementation<'p> {
    /// A method, called directly.
    Method(Choice),
    /// The policy's choice for an extent of so many bytes, through the public interface: made by [`Implementation::policy`], so that
    /// what a program does once is not done, and timed, with every call.
    Policy(&'p Policy, Intent, usize, Options<'p>),
    /// Another library.
    Peer(Peer),
    /// Reads the memory: what it can deliver.
    Read,
}

/// Which methods take part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MethodSet {
    /// Those that the sources compare, and the best of the policy.
    #[default]
    Representative,
    /// All that this machine has.
    All,
    /// These, by name, with parameters in brackets: `write_prefetch_avx512[write_distance=4096]`.
    Named(Vec<String>),
}

impl<'p> Implementation<'p> {
    /// Who does what a policy chooses for an extent of so many bytes, of which a call may be a part.
    pub(crate) fn policy(policy: &'p Policy, intent: Intent, extent: usize) -> Implementation<'p> {
        let bulk = Options::new().total_len(extent).intent(intent).policy(policy);
        Implementation::Policy(policy, intent, extent, bulk.expect("a run checks that the policy runs here"))
    }

    pub(crate) fn candidate(&self) -> Candidate {
        match self {
            Implementation::Method(choice) => Candidate::method(choice),
            Implementation::Policy(_, Intent::Throughput, ..) => Candidate::named(Kind::Policy, "policy"),
            Implementation::Policy(_, intent, ..) => {
                Candidate::named(Kind::Policy, format!("policy, {intent}"))
            }
            Implementation::Peer(peer) => Candidate::named(Kind::Peer, peer.name),
            Implementation::Read => Candidate::named(Kind::Read, "read"),
        }
    }

    /// What the policy chooses for a call of `part` bytes; `None` for everybody else.
    pub(crate) fn chosen(&self, operation: Operation, part: usize) -> Option<Choice> {
        match self {
            Implementation::Policy(policy, intent, extent, _) => {
                policy.choose_part(operation, part, *extent, *intent)
            }
            _ => None,
        }
    }

    /// Does the operation, its fence included.
    ///
    /// # Safety
    /// `dst..dst+length` is valid for reads and writes, `src..src+length` for reads; they lie apart, and nobody else
    /// uses them meanwhile. The implementation can do the operation.
    pub(crate) unsafe fn run(
        &self,
        operation: Operation,
        dst: *mut u8,
        src: *const u8,
        length: usize,
        byte: u8,
    ) {
        match self {
            // SAFETY: passed on from the caller; choices are checked against this machine where they are made.
            Implementation::Method(choice) => unsafe { by_method(choice, operation, dst, src, length, byte) },
            // SAFETY: passed on from the caller.
            Implementation::Policy(.., bulk) => unsafe { by_bulk(bulk, operation, dst, src, length, byte) },
            // SAFETY: passed on from the caller.
            Implementation::Peer(peer) => unsafe { peer.run(dst, src, length) },
            Implementation::Read => workload::read(dst, length),
        }
    }
}

impl Implementation<'_> {
    /// Does the operation, the work shared by so many threads: the policy's by the library itself, others' in parts of
    /// whole pages.
    ///
    /// # Safety
    /// As [`Implementation::run`].
    pub(crate) unsafe fn run_shared(
        &self,
        threads: usize,
        operation: Operation,
        dst: *mut u8,
        src: *const u8,
        length: usize,
        byte: u8,
    ) {
        match (self, NonZeroUsize::new(threads).filter(|threads| threads.get() > 1)) {
            (Implementation::Policy(.., bulk), Some(threads)) => {
                let bulk = bulk.threads(Threads::Exactly(threads));
                // SAFETY: passed on from the caller.
                unsafe { by_bulk(&bulk, operation, dst, src, length, byte) }
            }
            (_, Some(threads)) => workload::split(threads.get(), dst, src, length, |dst, src, length| {
                // SAFETY: the parts lie apart, and each is within what the caller vouches for.
                unsafe { self.run(operation, dst, src, length, byte) }
            }),
            // SAFETY: passed on from the caller.
            (_, None) => unsafe { self.run(operation, dst, src, length, byte) },
        }
    }

    /// Who writes other bytes over what this one cleared, in the same way as far as it can: with the same method, or
    /// with stores that treat the cache alike. `None` for whoever only reads.
    pub(crate) fn rewriter(&self, length: usize) -> Option<Implementation<'static>> {
        let by = |choice: &Choice| {
            let past_the_cache = || method::by_name("movnti").filter(|method| method.available());
            let method = match choice.method {
                able if able.does(Operation::Fill) => able,
                unable if unable.effect == CacheEffect::Bypasses => {
                    past_the_cache().unwrap_or_else(method::c_library)
                }
                _ => method::c_library(),
            };
            Implementation::Method(Choice::of(method, Operation::Fill))
        };
        match self {
            Implementation::Method(choice) => Some(by(choice)),
            Implementation::Policy(policy, intent, extent, _) => {
                policy.choose_part(Operation::Clear, length, *extent, *intent).as_ref().map(by)
            }
            Implementation::Peer(peer) => Some(Implementation::Peer(peer.filling(FILL_BYTE))),
            Implementation::Read => None,
        }
    }
}

/// Does an operation through the public interface.
///
/// # Safety
/// As [`Implementation::run`].
unsafe fn by_bulk(
    bulk: &Options<'_>,
    operation: Operation,
    dst: *mut u8,
    src: *const u8,
    length: usize,
    byte: u8,
) {
    let done = "the lengths are equal, and only what this architecture can do is measured";
    // SAFETY: passed on from the caller.
    unsafe {
        match operation {
            Operation::Clear => bulk.clear_raw(dst, length),
            Operation::Fill => bulk.fill_raw(dst, length, byte),
            Operation::Copy => bulk.copy_raw(dst, src, length),
            Operation::FillPersist => bulk.fill_persist_raw(dst, length, byte).expect(done),
            Operation::CopyPersist => bulk.copy_persist_raw(dst, src, length).expect(done),
            Operation::Persist => bulk.persist_raw(dst, length).expect(done),
        }
    }
}

/// Calls a method's fenced code.
///
/// # Safety
/// As [`Implementation::run`]; the method is available here, and the parameters fit it.
unsafe fn by_method(
    choice: &Choice,
    operation: Operation,
    dst: *mut u8,
    src: *const u8,
    length: usize,
    byte: u8,
) {
    let Choice { method, parameters } = choice;
    let able = "who cannot do the operation is not asked to";
    // SAFETY: passed on from the caller.
    unsafe {
        match operation {
            // A user's call of memset goes through no table.
            Operation::Clear | Operation::Fill if *method == method::c_library() => {
                libc::memset(dst.cast(), if operation == Operation::Clear { 0 } else { byte.into() }, length);
            }
            Operation::Copy if *method == method::c_library() => {
                libc::memcpy(dst.cast(), src.cast(), length);
            }
            Operation::Clear => (method.code().clear.expect(able).fenced)(dst, length, 0, parameters),
            Operation::Fill => (method.code().fill.expect(able).fenced)(dst, length, byte, parameters),
            Operation::FillPersist => {
                (method.code().fill_persist.expect(able).fenced)(dst, length, byte, parameters)
            }
            Operation::Copy => (method.code().copy.expect(able).fenced)(dst, src, length, parameters),
            Operation::CopyPersist => {
                (method.code().copy_persist.expect(able).fenced)(dst, src, length, parameters)
            }
            Operation::Persist => (method.code().persist.expect(able).fenced)(dst, length, parameters),
        }
    }
}

/// The methods that the sources compare, and their successors, for an operation: by name, where this machine has them.
const USUAL: &[&str] = &[
    "c_library",
    "rep_stosb",
    "rep_movsb",
    "movnti",
    "clzero",
    "nontemporal_avx512",
    "movdir64b",
    "write_prefetch_avx512",
    "write_prefetch_avx2",
    "store_8_clwb",
    "store_8_clflushopt",
];

/// The methods that are wanted for an operation, with their parameters.
///
/// # Errors
/// [`MeasureError::Method`] for a name that cannot be used here.
pub(crate) fn methods(wanted: &MethodSet, operation: Operation) -> Result<Vec<Choice>, MeasureError> {
    let able = |method: &&'static Method| method.does(operation) && method.available();
    let usual = |method: &'static Method| Choice::of(method, operation);
    // Who writes lines back is compared where they are to be durable; elsewhere nobody would.
    let durable = matches!(operation, Operation::CopyPersist | Operation::Persist);
    let sensible = |method: &&'static Method| durable || method.effect != CacheEffect::Evicts;
    match wanted {
        MethodSet::All => Ok(method::all().filter(able).map(usual).collect()),
        MethodSet::Representative => {
            let named = USUAL.iter().filter_map(|name| method::by_name(name));
            Ok(named.filter(able).filter(sensible).map(usual).collect())
        }
        MethodSet::Named(names) => names.iter().map(|name| named(name, operation)).collect(),
    }
}

fn named(name: &str, operation: Operation) -> Result<Choice, MeasureError> {
    Choice::parse(name, operation, bulkmem::machine::features())
        .map_err(|error| MeasureError::Method { name: name.to_owned(), reason: error.to_string() })
}

/// Other libraries that can do an operation, or why there is none.
pub(crate) fn libraries(operation: Operation) -> Result<Vec<Implementation<'static>>, &'static str> {
    Ok(peers::peers(operation)?.into_iter().map(Implementation::Peer).collect())
}
