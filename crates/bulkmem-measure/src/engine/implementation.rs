//! Ways to carry out an operation: methods, the policy, other libraries, and reading the same memory.

use std::num::NonZeroUsize;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use bulkmem::method::{self, CacheEffect, Method};
use bulkmem::policy::{Choice, Policy};
use bulkmem::{Intent, Operation, Options, Threads};

use crate::engine::arena::read;
use crate::engine::peers::{self, Peer};
use crate::engine::threads;
use crate::engine::{Candidate, FILL_BYTE, Kind, MeasureError};

/// One way to carry out an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Implementation<'p> {
    /// A method, called directly. The C library is called as users call it: by its functions, not through the table.
    Method(Choice),
    /// A method, called through the table as the policy calls it, the C library too.
    Dispatched(Choice),
    /// The choice of a policy for an intent and a total length, through [`Options`]. [`Implementation::policy`] makes
    /// it, so that what a program does once is not repeated, and timed, with every call.
    Policy(&'p Policy, Intent, usize, Options<'p>),
    /// The choice of the process-wide policy, through the functions at the root of the library.
    PlainFunctions,
    /// Another library.
    Peer(Peer),
    /// Reads the memory: the speed that the memory itself allows.
    Read,
}

/// Work that calls an operation again and again. It is compiled for each implementation, so that the call is as direct
/// as in a program.
pub(crate) trait Work {
    type Output;

    /// Does the work. `call` carries out the operation on a destination, a source and a length, its fence included.
    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) -> Self::Output;
}

/// A single call.
struct Once {
    dst: *mut u8,
    src: *const u8,
    length: usize,
}

impl Work for Once {
    type Output = ();

    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) {
        call(self.dst, self.src, self.length);
    }
}

impl<'p> Implementation<'p> {
    /// The choice of a policy for a total length, of which a call may be a part.
    pub(crate) fn policy(policy: &'p Policy, intent: Intent, total_len: usize) -> Implementation<'p> {
        let options = Options::new().total_len(total_len).intent(intent).policy(policy);
        Implementation::Policy(
            policy,
            intent,
            total_len,
            options.expect("a run checks that the policy runs here"),
        )
    }

    pub(crate) fn candidate(&self) -> Candidate {
        match self {
            Implementation::Method(choice) | Implementation::Dispatched(choice) => Candidate::method(choice),
            Implementation::Policy(_, Intent::Throughput, ..) | Implementation::PlainFunctions => {
                Candidate::named(Kind::Policy, "policy")
            }
            Implementation::Policy(_, intent, ..) => {
                Candidate::named(Kind::Policy, format!("policy, {intent}"))
            }
            Implementation::Peer(peer) => Candidate::named(Kind::Peer, peer.name),
            Implementation::Read => Candidate::named(Kind::Read, "read"),
        }
    }

    /// The choice of a policy for a call of `part` bytes; `None` for the others.
    pub(crate) fn chosen(&self, operation: Operation, part: usize) -> Option<Choice> {
        match self {
            Implementation::Policy(policy, intent, total_len, _) => {
                policy.choose_part(operation, part, *total_len, *intent)
            }
            Implementation::PlainFunctions => Policy::global().choose(operation, part, Intent::Throughput),
            _ => None,
        }
    }

    /// Carries out the operation, its fence included.
    ///
    /// # Safety
    /// `dst..dst+length` is valid for reads and writes, `src..src+length` for reads; they lie apart, and no other thread
    /// uses them at the same time. The implementation has the operation.
    pub(crate) unsafe fn run(
        &self,
        operation: Operation,
        dst: *mut u8,
        src: *const u8,
        length: usize,
        byte: u8,
    ) {
        // SAFETY: passed on from the caller.
        unsafe { self.run_shared(1, operation, dst, src, length, byte) }
    }

    /// Carries out the operation with several threads. The library shares the work of methods and of the policy; other
    /// work is shared in parts of whole pages.
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
        // SAFETY: passed on from the caller; `Once` calls with nothing else.
        unsafe { self.compile(threads, operation, byte, Once { dst, src, length }) }
    }

    /// Runs work that is compiled for this implementation.
    ///
    /// # Safety
    /// The work calls only with ranges that [`Implementation::run`] allows.
    pub(crate) unsafe fn compile<W: Work>(
        &self,
        threads: usize,
        operation: Operation,
        byte: u8,
        work: W,
    ) -> W::Output {
        let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
        let shared = |options: Options<'p>| options.threads(Threads::Exactly(threads));
        // SAFETY (of all calls): passed on from the caller; choices are checked against this machine when they are made.
        match self {
            Implementation::Method(choice) | Implementation::Dispatched(choice) if threads.get() > 1 => {
                let options =
                    Options::new().method(operation, *choice).expect("the method has the operation");
                // SAFETY: see above.
                unsafe { by_options(&shared(options), operation, byte, work) }
            }
            // SAFETY: see above.
            Implementation::Method(choice) if choice.method == method::c_library() => unsafe {
                by_c_library(choice, operation, byte, work)
            },
            Implementation::Method(choice) | Implementation::Dispatched(choice) => {
                // SAFETY: see above.
                unsafe { by_method(choice, operation, byte, work) }
            }
            Implementation::PlainFunctions if threads.get() == 1 => {
                // SAFETY: see above.
                unsafe { by_plain_functions(operation, byte, work) }
            }
            Implementation::PlainFunctions => {
                // SAFETY: see above.
                unsafe { by_options(&shared(Options::new()), operation, byte, work) }
            }
            Implementation::Policy(.., options) if threads.get() == 1 => {
                // SAFETY: see above.
                unsafe { by_options(options, operation, byte, work) }
            }
            Implementation::Policy(.., options) => {
                // SAFETY: see above.
                unsafe { by_options(&shared(*options), operation, byte, work) }
            }
            Implementation::Peer(peer) => work.run(|dst, src, length| {
                // SAFETY: see above; the parts lie within the range, and apart.
                threads::split(threads.get(), dst, src, length, |dst, src, length| unsafe {
                    peer.run(dst, src, length);
                });
            }),
            Implementation::Read => work.run(|dst, src, length| {
                threads::split(threads.get(), dst, src, length, |dst, _, length| read(dst, length));
            }),
        }
    }

    /// The implementation that writes other bytes over what this one cleared: the same method if it can fill, else one
    /// whose stores affect the cache alike. `None` for reading.
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
            Implementation::Method(choice) | Implementation::Dispatched(choice) => Some(by(choice)),
            Implementation::Policy(policy, intent, extent, _) => {
                policy.choose_part(Operation::Clear, length, *extent, *intent).as_ref().map(by)
            }
            Implementation::Peer(peer) => Some(Implementation::Peer(peer.filling(FILL_BYTE))),
            Implementation::PlainFunctions => self.chosen(Operation::Clear, length).as_ref().map(by),
            Implementation::Read => None,
        }
    }
}

const DONE: &str = "the lengths are equal, and only operations of this architecture are measured";

/// Compiles work with the methods of [`Options`].
///
/// # Safety
/// As [`Implementation::compile`].
unsafe fn by_options<W: Work>(options: &Options<'_>, operation: Operation, byte: u8, work: W) -> W::Output {
    // SAFETY (of all calls): passed on from the caller.
    match operation {
        // SAFETY: see above.
        Operation::Clear => work.run(|dst, _, length| unsafe { options.clear_raw(dst, length) }),
        // SAFETY: see above.
        Operation::Fill => work.run(|dst, _, length| unsafe { options.fill_raw(dst, length, byte) }),
        // SAFETY: see above.
        Operation::Copy => work.run(|dst, src, length| unsafe { options.copy_raw(dst, src, length) }),
        Operation::FillPersist => work.run(|dst, _, length| {
            // SAFETY: see above.
            unsafe { options.fill_persist_raw(dst, length, byte) }.expect(DONE);
        }),
        Operation::CopyPersist => work.run(|dst, src, length| {
            // SAFETY: see above.
            unsafe { options.copy_persist_raw(dst, src, length) }.expect(DONE);
        }),
        Operation::Persist => work.run(|dst, _, length| {
            // SAFETY: see above.
            unsafe { options.persist_raw(dst, length) }.expect(DONE);
        }),
    }
}

/// Compiles work with the functions at the root of the library.
///
/// # Safety
/// As [`Implementation::compile`].
unsafe fn by_plain_functions<W: Work>(operation: Operation, byte: u8, work: W) -> W::Output {
    // SAFETY (of all slices): the caller vouches for the ranges.
    match operation {
        Operation::Clear => work.run(|dst, _, length| {
            // SAFETY: see above.
            bulkmem::clear(unsafe { from_raw_parts_mut(dst, length) });
        }),
        Operation::Fill => work.run(|dst, _, length| {
            // SAFETY: see above.
            bulkmem::fill(unsafe { from_raw_parts_mut(dst, length) }, byte);
        }),
        Operation::Copy => work.run(|dst, src, length| {
            // SAFETY: see above.
            let (dst, src) = unsafe { (from_raw_parts_mut(dst, length), from_raw_parts(src, length)) };
            bulkmem::copy(dst, src).expect(DONE);
        }),
        Operation::FillPersist => work.run(|dst, _, length| {
            // SAFETY: see above.
            bulkmem::fill_persist(unsafe { from_raw_parts_mut(dst, length) }, byte).expect(DONE);
        }),
        Operation::CopyPersist => work.run(|dst, src, length| {
            // SAFETY: see above.
            let (dst, src) = unsafe { (from_raw_parts_mut(dst, length), from_raw_parts(src, length)) };
            bulkmem::copy_persist(dst, src).expect(DONE);
        }),
        Operation::Persist => work.run(|dst, _, length| {
            // SAFETY: see above.
            bulkmem::persist(unsafe { from_raw_parts(dst, length) }).expect(DONE);
        }),
    }
}

/// Compiles work with `memset` and `memcpy`, as users call them.
///
/// # Safety
/// As [`Implementation::compile`].
unsafe fn by_c_library<W: Work>(choice: &Choice, operation: Operation, byte: u8, work: W) -> W::Output {
    match operation {
        Operation::Clear | Operation::Fill => {
            let byte = if operation == Operation::Clear { 0 } else { byte };
            // SAFETY: passed on from the caller.
            work.run(|dst, _, length| unsafe {
                libc::memset(dst.cast(), byte.into(), length);
            })
        }
        // SAFETY: passed on from the caller.
        Operation::Copy => work.run(|dst, src, length| unsafe {
            libc::memcpy(dst.cast(), src.cast(), length);
        }),
        // SAFETY: passed on from the caller.
        _ => unsafe { by_method(choice, operation, byte, work) },
    }
}

/// Compiles work with the fenced function of a method.
///
/// # Safety
/// As [`Implementation::compile`]; the method is available here, and the parameters are valid for it.
unsafe fn by_method<W: Work>(choice: &Choice, operation: Operation, byte: u8, work: W) -> W::Output {
    let Choice { method, parameters } = choice;
    let able = "the method has the operation";
    let code = method.code();
    let (fill, copy, byte) = match operation {
        Operation::Clear => (code.clear, None, 0),
        Operation::Fill => (code.fill, None, byte),
        Operation::FillPersist => (code.fill_persist, None, byte),
        Operation::Copy => (None, code.copy, byte),
        Operation::CopyPersist => (None, code.copy_persist, byte),
        Operation::Persist => {
            let persist = code.persist.expect(able).fenced;
            // SAFETY: passed on from the caller.
            return work.run(|dst, _, length| unsafe { persist(dst, length, parameters) });
        }
    };
    if let Some(copy) = copy {
        // SAFETY: passed on from the caller.
        return work.run(|dst, src, length| unsafe { (copy.fenced)(dst, src, length, parameters) });
    }
    let fill = fill.expect(able).fenced;
    // SAFETY: passed on from the caller.
    work.run(|dst, _, length| unsafe { fill(dst, length, byte, parameters) })
}

/// The methods to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MethodSet {
    /// Of each family of methods the one with the widest stores that this machine has, with its default parameters.
    /// Families that write lines back take part only in operations that make bytes durable.
    #[default]
    Representative,
    /// All that this machine has.
    All,
    /// These, by name, with parameters in brackets: `write_prefetch_avx512[write_distance=4096]`.
    Named(Vec<String>),
}

/// Words in names of methods that say how wide the stores are, from narrow to wide. Without one they are 8 bytes wide.
const WIDTHS: [&str; 6] = ["4", "8", "sse2", "avx", "avx2", "avx512"];

/// Returns the family of a method, which is its name without the width, and a rank in that family: the widest stores
/// rank highest. Of the string instructions the byte forms rank highest, as processors announce fast microcode for them
/// (ERMS).
fn family(name: &str) -> (String, usize) {
    let mut rank = 1;
    let mut words = Vec::new();
    for word in name.split('_') {
        match WIDTHS.iter().position(|width| *width == word) {
            Some(width) => rank = width,
            None if word.starts_with("stos") || word.starts_with("movs") => {
                rank = usize::from(word.ends_with('b'));
                words.push(&word[..4]);
            }
            None => words.push(word),
        }
    }
    (words.join("_"), rank)
}

/// Of each family the method that ranks highest, in the order of the table.
fn representatives(methods: impl Iterator<Item = &'static Method>) -> Vec<&'static Method> {
    let mut found: Vec<&'static Method> = Vec::new();
    for method in methods {
        let (of, rank) = family(method.name);
        match found.iter_mut().find(|known| family(known.name).0 == of) {
            Some(known) if family(known.name).1 < rank => *known = method,
            Some(_) => {}
            None => found.push(method),
        }
    }
    found
}

/// Returns the methods of a set for an operation, with their parameters.
///
/// # Errors
/// [`MeasureError::Method`] for a name that cannot be used here.
pub(crate) fn methods(set: &MethodSet, operation: Operation) -> Result<Vec<Choice>, MeasureError> {
    let able = method::all().filter(|method| method.does(operation) && method.available());
    let with_defaults = |method: &'static Method| Choice::of(method, operation);
    match set {
        MethodSet::All => Ok(able.map(with_defaults).collect()),
        MethodSet::Representative => {
            let durable =
                matches!(operation, Operation::FillPersist | Operation::CopyPersist | Operation::Persist);
            let able = able.filter(|method| durable || method.effect != CacheEffect::Evicts);
            Ok(representatives(able).into_iter().map(with_defaults).collect())
        }
        MethodSet::Named(names) => names.iter().map(|name| named(name, operation)).collect(),
    }
}

fn named(name: &str, operation: Operation) -> Result<Choice, MeasureError> {
    Choice::parse(name, operation, bulkmem::machine::features())
        .map_err(|error| MeasureError::Method { name: name.to_owned(), reason: error.to_string() })
}

/// Returns the other libraries that have an operation, or why there are none.
pub(crate) fn libraries(operation: Operation) -> Result<Vec<Implementation<'static>>, &'static str> {
    Ok(peers::peers(operation)?.into_iter().map(Implementation::Peer).collect())
}

#[cfg(test)]
mod tests {
    use bulkmem::machine::Machine;

    use super::*;

    #[test]
    fn every_available_family_is_represented_by_its_widest_member() {
        for operation in Operation::ALL {
            let chosen = methods(&MethodSet::Representative, operation).unwrap();
            let durable =
                matches!(operation, Operation::FillPersist | Operation::CopyPersist | Operation::Persist);
            for method in method::all().filter(|method| method.does(operation) && method.available()) {
                if !durable && method.effect == CacheEffect::Evicts {
                    continue;
                }
                let (of, rank) = family(method.name);
                let members: Vec<_> =
                    chosen.iter().filter(|choice| family(choice.method.name).0 == of).collect();
                let [member] = members.as_slice() else { panic!("{operation}, {of}: {members:?}") };
                assert!(family(member.method.name).1 >= rank, "{operation}: {} of {of}", member.method.name);
            }
        }
    }

    #[test]
    fn families_are_names_without_their_widths() {
        for (name, of, rank) in [
            ("write_prefetch_avx512", "write_prefetch", 5),
            ("store_8_clwb", "store_clwb", 1),
            ("store_sse2_clwb", "store_clwb", 2),
            ("rep_stosb", "rep_stos", 1),
            ("rep_stosq", "rep_stos", 0),
            ("movnti", "movnti", 1),
            ("movnti_4", "movnti", 0),
        ] {
            assert_eq!(family(name), (of.to_owned(), rank));
        }
    }

    /// Every implementation works on all of the range, and only there, with one thread and with several.
    #[test]
    fn every_implementation_carries_out_every_operation() {
        const LENGTH: usize = 100_000;
        let policy = Policy::defaults(Machine::current());
        for operation in Operation::ALL {
            let Some(choice) = methods(&MethodSet::All, operation).unwrap().pop() else { continue };
            let mut all = vec![
                Implementation::policy(&policy, Intent::Throughput, LENGTH),
                Implementation::PlainFunctions,
                Implementation::Method(choice),
                Implementation::Dispatched(choice),
            ];
            all.extend(libraries(operation).unwrap_or_default());
            for (implementation, threads) in all.iter().flat_map(|it| [(it, 1), (it, 3)]) {
                let mut memory = vec![3u8; 2 * LENGTH + 1];
                memory[..LENGTH].fill(1);
                let dst = memory.as_mut_ptr();
                // SAFETY: both ranges lie in the vector, apart.
                unsafe {
                    implementation.run_shared(
                        threads,
                        operation,
                        dst,
                        dst.wrapping_add(LENGTH),
                        LENGTH,
                        FILL_BYTE,
                    );
                }
                let expected = match operation {
                    Operation::Clear => 0,
                    Operation::Fill | Operation::FillPersist => FILL_BYTE,
                    Operation::Copy | Operation::CopyPersist => 3,
                    Operation::Persist => 1,
                };
                let case = format!("{operation} by {:?}, {threads} threads", implementation.candidate());
                assert!(memory[..LENGTH].iter().all(|byte| *byte == expected), "{case}");
                assert!(memory[LENGTH..].iter().all(|byte| *byte == 3), "{case}");
            }
        }
    }
}
