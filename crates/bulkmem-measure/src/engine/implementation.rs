//! Ways to carry out an operation: methods, the policy, other libraries, and reading the same memory.

use std::ffi::c_uint;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use bulkmem::method::{self, CacheEffect, Method};
use bulkmem::policy::{Choice, Look, Policy};
use bulkmem::{Intent, Operation, Options, look};

use crate::engine::arena::read;
use crate::engine::libpmem::{self, LIBPMEM, Libpmem};
use crate::engine::memory_state::MemoryState;
use crate::engine::threads::{self, Team};
use crate::engine::{Candidate, Kind, MeasureError, Result};

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
    /// The same with [`Options::populate`].
    Populating(Options<'p>),
    /// The choice of the process-wide policy, through the functions at the root of the library.
    PlainFunctions,
    Peer(Peer),
    /// Reads the memory: the speed that the memory itself allows.
    Read,
}

/// Work that calls an operation. Compiled for each implementation, so that the call is as direct as in a program.
pub(crate) trait Work {
    type Output;

    /// Does the work. `call` carries out the operation on a destination, a source and a length, its fence included.
    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) -> Self::Output;
}

/// A single call on a destination, a source and a length.
impl Work for (*mut u8, *const u8, usize) {
    type Output = ();

    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) {
        call(self.0, self.1, self.2);
    }
}

impl<'p> Implementation<'p> {
    /// The choice of a policy for a total length, of which a call may be a part.
    pub(crate) fn policy(policy: &'p Policy, intent: Intent, total_len: usize) -> Self {
        let options = Options::new().total_len(total_len).intent(intent).policy(policy).expect(RUNS);
        Self::Policy(policy, intent, total_len, options)
    }

    /// The choice of a policy for single calls that may have the kernel map pages.
    pub(crate) fn populating(policy: &'p Policy) -> Self {
        Self::Populating(Options::new().populate(true).policy(policy).expect(RUNS))
    }

    pub(crate) fn candidate(&self) -> Candidate {
        match self {
            Self::Method(choice) | Self::Dispatched(choice) => Candidate::method(choice),
            Self::Policy(_, Intent::Throughput, ..) | Self::PlainFunctions => {
                Candidate::named(Kind::Policy, "policy")
            }
            Self::Policy(_, intent, ..) => Candidate::named(Kind::Policy, format!("policy, {intent}")),
            Self::Populating(_) => Candidate::named(Kind::Control, POPULATING),
            Self::Peer(peer) => Candidate::named(Kind::Peer, peer.name),
            Self::Read => Candidate::named(Kind::Read, "read"),
        }
    }

    /// The choice of a policy for a call of `part` bytes: if it looks, that for the state of the memory, which `threads` threads
    /// share; `None` for the others.
    pub(crate) fn chosen(
        &self,
        operation: Operation,
        part: usize,
        state: Option<MemoryState>,
        threads: usize,
    ) -> Option<Choice> {
        let (policy, intent, whole) = match self {
            Self::Policy(policy, intent, whole, _) => (*policy, *intent, *whole),
            Self::PlainFunctions => (Policy::global(), Intent::Throughput, part),
            _ => return None,
        };
        // Each thread looks at its own piece.
        let looks = |_: &Look| look::is_on() && part / threads >= policy.looks_from(operation, intent);
        let Some((look, state)) = policy.look(operation).filter(looks).zip(state) else {
            return policy.choose_part(operation, part, whole, intent);
        };
        let huge = look.unmapped.and_then(|unmapped| unmapped.huge);
        let bypassed = huge.is_some_and(|huge| huge.are_bypassed(part, whole, threads));
        match (state, look.unmapped) {
            (MemoryState::Cached, _) => policy.choose_in(operation, part, policy.cached(operation, intent)),
            (MemoryState::Unmapped, Some(unmapped)) => Some(unmapped.choice),
            (MemoryState::UnmappedHuge, Some(unmapped)) if !bypassed => Some(unmapped.choice),
            _ => policy.choose_in(operation, part, policy.uncached(operation, intent, threads)),
        }
    }

    /// Runs work that is compiled for this implementation. With several threads, the library shares the work of methods and
    /// of the policy; other work is shared in parts of whole pages.
    ///
    /// # Safety
    /// The work calls only with destinations that are valid for reads and writes, and sources that are valid for reads;
    /// they lie apart, and no other thread uses them at the same time. The implementation has the operation.
    pub(crate) unsafe fn run<'w, W: Work>(
        &self,
        team: impl Into<Team<'w>>,
        operation: Operation,
        byte: u8,
        work: W,
    ) -> W::Output {
        let byte = if operation == Operation::Clear { 0 } else { byte };
        let team = team.into();
        // SAFETY: passed on from the caller; choices are checked against this machine when they are made. Parts of a range
        // lie within it, and apart.
        unsafe {
            match self {
                Self::Method(choice) | Self::Dispatched(choice) if team.count() > 1 => {
                    let options = Options::new().method(operation, *choice);
                    by_options(&team.shares(options.expect(ABLE)), operation, byte, work)
                }
                Self::Method(choice) if choice.method == method::c_library() => {
                    by_c_library(choice, operation, byte, work)
                }
                Self::Method(choice) | Self::Dispatched(choice) => by_method(choice, operation, byte, work),
                Self::PlainFunctions if team.count() <= 1 => by_plain_functions(operation, byte, work),
                Self::PlainFunctions => by_options(&team.shares(Options::new()), operation, byte, work),
                Self::Policy(.., options) | Self::Populating(options) => {
                    by_options(&team.shares(*options), operation, byte, work)
                }
                Self::Peer(peer) => work.run(|dst, src, length| {
                    threads::split(team, dst, src, length, |dst, src, length| {
                        peer.run(operation, dst, src, length, byte);
                    });
                }),
                Self::Read => work.run(|dst, src, length| {
                    threads::split(team, dst, src, length, |dst, _, length| read(dst, length));
                }),
            }
        }
    }

    /// The implementation that writes other bytes over what this one cleared: the same method if it can fill, else one
    /// whose stores affect the cache alike. `None` for reading.
    pub(crate) fn rewriter(&self, length: usize) -> Option<Implementation<'static>> {
        let choice = match self {
            Self::Method(choice) | Self::Dispatched(choice) => *choice,
            Self::Policy(..) | Self::PlainFunctions => self.chosen(Operation::Clear, length, None, 1)?,
            Self::Peer(peer) => return Some(Implementation::Peer(*peer)),
            Self::Populating(_) | Self::Read => return None,
        };
        let able = Some(choice.method).filter(|method| method.does(Operation::Fill));
        let past_the_cache = || {
            let bypasses = choice.method.effect == CacheEffect::Bypasses;
            method::by_name("movnti").filter(|method| bypasses && method.available())
        };
        let method = able.or_else(past_the_cache).unwrap_or_else(method::c_library);
        Some(Implementation::Method(Choice::of(method, Operation::Fill)))
    }
}

/// The candidate that lets the kernel map pages. Programs must request it, so it is not the choice of the policy.
pub(crate) const POPULATING: &str = "policy, populate";
const RUNS: &str = "a run checks that the policy runs here";
const ABLE: &str = "the method has the operation";
const DONE: &str = "the lengths are equal, and only operations of this architecture are measured";

/// Compiles work with the methods of [`Options`]; safe as [`Implementation::run`] is.
unsafe fn by_options<W: Work>(options: &Options<'_>, operation: Operation, byte: u8, work: W) -> W::Output {
    // SAFETY: passed on from the caller.
    unsafe {
        match operation {
            Operation::Clear => work.run(|dst, _, length| options.clear_raw(dst, length)),
            Operation::Fill => work.run(|dst, _, length| options.fill_raw(dst, length, byte)),
            Operation::Copy => work.run(|dst, src, length| options.copy_raw(dst, src, length)),
            Operation::FillPersist => {
                work.run(|dst, _, length| options.fill_persist_raw(dst, length, byte).expect(DONE))
            }
            Operation::CopyPersist => {
                work.run(|dst, src, length| options.copy_persist_raw(dst, src, length).expect(DONE))
            }
            Operation::Persist => work.run(|dst, _, length| options.persist_raw(dst, length).expect(DONE)),
        }
    }
}

/// Compiles work with the functions at the root of the library; safe as [`Implementation::run`] is.
unsafe fn by_plain_functions<W: Work>(operation: Operation, byte: u8, work: W) -> W::Output {
    // SAFETY: the caller vouches for the ranges.
    let to = |dst, length| unsafe { from_raw_parts_mut(dst, length) };
    // SAFETY: as above.
    let from = |src, length| unsafe { from_raw_parts(src, length) };
    match operation {
        Operation::Clear => work.run(|dst, _, length| bulkmem::clear(to(dst, length))),
        Operation::Fill => work.run(|dst, _, length| bulkmem::fill(to(dst, length), byte)),
        Operation::Copy => {
            work.run(|dst, src, length| bulkmem::copy(to(dst, length), from(src, length)).expect(DONE))
        }
        Operation::FillPersist => {
            work.run(|dst, _, length| bulkmem::fill_persist(to(dst, length), byte).expect(DONE))
        }
        Operation::CopyPersist => work
            .run(|dst, src, length| bulkmem::copy_persist(to(dst, length), from(src, length)).expect(DONE)),
        Operation::Persist => work.run(|dst, _, length| bulkmem::persist(from(dst, length)).expect(DONE)),
    }
}

/// Compiles work with `memset` and `memcpy`, as users call them; safe as [`Implementation::run`] is.
unsafe fn by_c_library<W: Work>(choice: &Choice, operation: Operation, byte: u8, work: W) -> W::Output {
    // SAFETY: passed on from the caller.
    unsafe {
        match operation {
            Operation::Clear | Operation::Fill => work.run(|dst, _, length| {
                libc::memset(dst.cast(), byte.into(), length);
            }),
            Operation::Copy => work.run(|dst, src, length| {
                libc::memcpy(dst.cast(), src.cast(), length);
            }),
            _ => by_method(choice, operation, byte, work),
        }
    }
}

/// Compiles work with the fenced function of a method; safe as [`Implementation::run`] is, if the method is available
/// here and the parameters are valid for it.
unsafe fn by_method<W: Work>(choice: &Choice, operation: Operation, byte: u8, work: W) -> W::Output {
    let Choice { method, parameters } = choice;
    let code = method.code();
    // SAFETY: passed on from the caller.
    unsafe {
        let fill = match operation {
            Operation::Clear => code.clear,
            Operation::Fill => code.fill,
            Operation::FillPersist => code.fill_persist,
            Operation::Copy | Operation::CopyPersist => {
                let copy = if operation == Operation::Copy { code.copy } else { code.copy_persist };
                let copy = copy.expect(ABLE).fenced;
                return work.run(|dst, src, length| copy(dst, src, length, parameters));
            }
            Operation::Persist => {
                let persist = code.persist.expect(ABLE).fenced;
                return work.run(|dst, _, length| persist(dst, length, parameters));
            }
        };
        let fill = fill.expect(ABLE).fenced;
        work.run(|dst, _, length| fill(dst, length, byte, parameters))
    }
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

/// Candidates besides methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// None.
    None,
    /// The C library, libpmem where it is installed, the kernel, and reading.
    #[default]
    All,
}

/// Methods of the sources that are only compared with: `bench clear`, `fill` and `copy` have them in their tables, and
/// calibration does not spend time on them.
pub(crate) const FOR_COMPARISON: [&str; 4] =
    ["rep_stosd", "rep_movsd", "loop_aligned_sse2", "loop_unaligned_sse2"];

/// Words in names of methods that say how wide the stores are, from narrow to wide. Without one they are 8 bytes wide.
const WIDTHS: [&str; 6] = ["4", "8", "sse2", "avx", "avx2", "avx512"];

/// Returns the family of a method, which is its name without the width, and a rank in that family: the widest stores
/// rank highest. So do the byte forms of string instructions, which processors have fast microcode for (ERMS).
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

/// Returns the methods of a set for an operation, with their parameters.
/// [`MeasureError::Method`] refuses a name that cannot be used here.
pub(crate) fn methods(set: &MethodSet, operation: Operation) -> Result<Vec<Choice>> {
    let able = method::all().filter(|method| method.does(operation) && method.available());
    let mut chosen: Vec<&'static Method> = Vec::new();
    match set {
        MethodSet::All => chosen.extend(able),
        // In the order of the table.
        MethodSet::Representative => {
            let usual = |it: &&Method| operation.persists() || it.effect != CacheEffect::Evicts;
            for method in able.filter(usual).filter(|it| !FOR_COMPARISON.contains(&it.name)) {
                let (of, rank) = family(method.name);
                match chosen.iter_mut().find(|known| family(known.name).0 == of) {
                    Some(known) if family(known.name).1 < rank => *known = method,
                    Some(_) => {}
                    None => chosen.push(method),
                }
            }
        }
        MethodSet::Named(names) => {
            return names.iter().map(|name| named(name, operation)).collect();
        }
    }
    Ok(chosen.into_iter().map(|method| Choice::of(method, operation)).collect())
}

/// Returns what the tables of an operation by size have besides representative methods: those that are only compared with,
/// and cached and non-temporal copies with prefetches of the source.
pub(crate) fn variants(operation: Operation) -> Vec<Choice> {
    let compared = FOR_COMPARISON.into_iter().filter_map(method::by_name);
    let compared = compared.filter(|method| method.does(operation) && method.available());
    let mut all: Vec<Choice> = compared.map(|method| Choice::of(method, operation)).collect();
    let representative = methods(&MethodSet::Representative, operation).unwrap_or_default();
    for mut choice in representative {
        if operation == Operation::Copy
            && matches!(family(choice.method.name).0.as_str(), "store" | "nontemporal")
        {
            choice.parameters.read_distance = PREFETCH_DISTANCE;
            all.push(choice);
        }
    }
    all
}

/// The distance of prefetches in the tables of copies, bytes.
const PREFETCH_DISTANCE: u32 = 512;

/// The other libraries that have an operation, and why one is missing; none if no peers are wanted.
pub(crate) fn libraries(
    operation: Operation,
    wanted: Peers,
) -> (Vec<Implementation<'static>>, Option<&'static str>) {
    let peers = if wanted == Peers::All { peers(operation) } else { Ok(Vec::new()) };
    let missing = peers.as_ref().err().copied();
    (peers.into_iter().flatten().map(Implementation::Peer).collect(), missing)
}

/// Parses a method with its parameters. [`MeasureError::Method`] refuses a name that cannot be used here.
pub(crate) fn named(name: &str, operation: Operation) -> Result<Choice> {
    Choice::parse(name, operation, bulkmem::machine::features())
        .map_err(|error| MeasureError::Method { name: name.to_owned(), reason: error.to_string() })
}

/// libpmem's flag for stores past the cache, whatever the length.
const NONTEMPORAL: c_uint = 1 << 1;
/// libpmem's flag for ordinary stores, whatever the length.
const TEMPORAL: c_uint = 1 << 2;
/// libpmem's flag that leaves the fence to the caller.
const NO_DRAIN: c_uint = 1;
/// libpmem's flag that leaves out flushing and draining: an ordinary memset or memcpy of libpmem's own.
const NO_FLUSH: c_uint = 1 << 5;

/// One way to use a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    library: Libpmem,
    flags: c_uint,
}

/// The peers for an operation, or why there is none.
pub(crate) fn peers(operation: Operation) -> Result<Vec<Peer>, &'static str> {
    let library = libpmem::load()?;
    let cached = match operation.persists() {
        true => ("libpmem, cached and flushed", TEMPORAL),
        false => ("libpmem, cached", TEMPORAL | NO_FLUSH),
    };
    let mut ways = vec![(LIBPMEM, 0), ("libpmem, non-temporal", NONTEMPORAL), cached];
    if operation == Operation::Persist {
        ways.truncate(1);
    }
    Ok(ways.into_iter().map(|(name, flags)| Peer { name, library, flags }).collect())
}

impl Peer {
    /// The same without the fence, where libpmem leaves it to the caller.
    pub(crate) fn unfenced(self) -> Peer {
        Peer { flags: self.flags | NO_DRAIN, ..self }
    }

    /// Does the operation.
    ///
    /// # Safety
    /// `dst..dst+len` is valid for writes (to persist: reads), `src..src+len` for reads, and they lie apart.
    pub(crate) unsafe fn run(
        &self,
        operation: Operation,
        dst: *mut u8,
        src: *const u8,
        len: usize,
        byte: u8,
    ) {
        let Libpmem { memset, memcpy, persist } = self.library;
        // SAFETY: passed on from the caller.
        unsafe {
            match operation {
                Operation::Clear | Operation::Fill | Operation::FillPersist => {
                    let byte = if operation == Operation::Clear { 0 } else { byte };
                    memset(dst.cast(), byte.into(), len, self.flags);
                }
                Operation::Copy | Operation::CopyPersist => {
                    memcpy(dst.cast(), src.cast(), len, self.flags);
                }
                Operation::Persist => persist(dst.cast_const().cast(), len),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkmem::machine::Machine;

    use super::*;
    use crate::engine::FILL_BYTE;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_choice_of_a_policy_that_looks_depends_on_the_cache_state() {
        use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION};

        let machine = Machine::current();
        let cpu = &machine.cpu;
        let text = format!(
            "{POLICY_FORMAT} {POLICY_VERSION}\ncpu {} {} {} {}\nrule clear throughput 0 portable\n\
             rule clear cached 0 c_library\nrule clear uncached 0 movnti\n\
             rule clear several_threads 0 store_sse2\n\
             rule clear reuse 0 movnti\nrule clear cached_reuse 0 store_8\n\
             rule clear uncached_reuse 0 store_8\nrule clear uncached_reuse 131072 movnti_4\n\
             look clear 65536 400 20000 rep_stosb 90000 8388608\nend\n",
            cpu.family, cpu.model, cpu.stepping, cpu.vendor
        );
        let policy = Policy::from_file_bytes(text.as_bytes(), machine).unwrap();
        let on = |threads, intent, part, state| {
            let policy = Implementation::policy(&policy, intent, part);
            policy.chosen(Operation::Clear, part, state, threads).unwrap().method.name
        };
        let named = |intent, part, state| on(1, intent, part, state);
        let [cold, warm, fresh] =
            [MemoryState::Uncached, MemoryState::Cached, MemoryState::Unmapped].map(Some);
        let looked = [cold, warm, fresh].map(|state| named(Intent::Throughput, 65536, state));
        assert_eq!(looked, ["movnti", "c_library", "rep_stosb"]);
        let huge = |part| named(Intent::Throughput, part, Some(MemoryState::UnmappedHuge));
        assert_eq!([huge((8 << 20) - 1), huge(8 << 20)], ["rep_stosb", "movnti"]);
        assert_eq!(named(Intent::Throughput, 8 << 20, fresh), "rep_stosb", "base pages");
        assert_eq!(named(Intent::Throughput, 65536, None), "portable", "the state is not known");
        assert_eq!(named(Intent::Throughput, 65535, cold), "portable", "too short");
        assert_ne!(named(Intent::Stream, 65536, warm), "c_library", "it does not look");
        let reused = |part| [cold, warm].map(|state| named(Intent::Reuse, part, state));
        assert_eq!([reused(131_071), reused(131_072)], [["movnti"; 2], ["movnti_4", "store_8"]]);
        let shared = [cold, warm].map(|state| on(2, Intent::Throughput, 131_072, state));
        assert_eq!(shared, ["store_sse2", "c_library"]);
        assert_eq!(on(2, Intent::Throughput, 131_071, cold), "portable", "a piece is too short");
    }

    #[test]
    fn every_available_family_is_represented_by_its_widest_member() {
        for operation in Operation::ALL {
            let chosen = methods(&MethodSet::Representative, operation).unwrap();
            for method in method::all().filter(|method| method.does(operation) && method.available()) {
                if !operation.persists() && method.effect == CacheEffect::Evicts
                    || FOR_COMPARISON.contains(&method.name)
                {
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn tables_by_size_have_the_variants_of_the_sources() {
        let names =
            |operation| -> Vec<String> { variants(operation).iter().map(Choice::to_string).collect() };
        let loops = ["loop_aligned_sse2", "loop_unaligned_sse2"];
        assert_eq!(names(Operation::Clear), [["rep_stosd"].as_slice(), &loops].concat());
        let copies = names(Operation::Copy);
        assert_eq!(copies[..3], [["rep_movsd"].as_slice(), &loops].concat());
        for (name, start) in copies[3..].iter().zip(["store_", "nontemporal_"]) {
            assert!(name.starts_with(start) && name.ends_with("[read_distance=512]"), "{copies:?}");
        }
        assert_eq!(copies.len(), 5);
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
            all.extend(libraries(operation, Peers::All).0);
            let workers = threads::ready(3).unwrap().unwrap();
            let teams = [Team::Started(1), Team::Started(3), Team::Ready(3, &workers)];
            for (implementation, team) in all.iter().flat_map(|it| teams.map(|team| (it, team))) {
                let mut memory = vec![3u8; 2 * LENGTH + 1];
                memory[..LENGTH].fill(1);
                let dst = memory.as_mut_ptr();
                // SAFETY: both ranges lie in the vector, apart.
                unsafe {
                    let work = (dst, dst.wrapping_add(LENGTH).cast_const(), LENGTH);
                    implementation.run(team, operation, FILL_BYTE, work);
                }
                let expected = match operation {
                    Operation::Clear => 0,
                    Operation::Fill | Operation::FillPersist => FILL_BYTE,
                    Operation::Copy | Operation::CopyPersist => 3,
                    Operation::Persist => 1,
                };
                let case = format!("{operation}, {:?}, {} threads", implementation.candidate(), team.count());
                assert!(memory[..LENGTH].iter().all(|byte| *byte == expected), "{case}");
                assert!(memory[LENGTH..].iter().all(|byte| *byte == 3), "{case}");
            }
        }
    }

    /// Every peer does what its operation says; where libpmem is missing, the reason is reported.
    #[test]
    fn peers_do_their_operation() {
        for operation in Operation::ALL {
            let peers = match peers(operation) {
                Ok(peers) => peers,
                Err(reason) => {
                    assert!(reason.contains("apt-get install libpmem1"));
                    eprintln!("not checked: {reason}");
                    return;
                }
            };
            for peer in peers {
                let (mut dst, src) = (vec![1u8; 5000], vec![2u8; 5000]);
                let (mut unfenced, length) = (dst.clone(), dst.len());
                // SAFETY: vectors of that length.
                unsafe {
                    peer.run(operation, dst.as_mut_ptr(), src.as_ptr(), length, 8);
                    peer.unfenced().run(operation, unfenced.as_mut_ptr(), src.as_ptr(), length, 8);
                }
                bulkmem::method::fence();
                assert_eq!(dst, unfenced, "{operation} by {}", peer.name);
                let expected = match operation {
                    Operation::Clear => 0,
                    Operation::Fill | Operation::FillPersist => 8,
                    Operation::Copy | Operation::CopyPersist => 2,
                    Operation::Persist => 1,
                };
                assert!(dst.iter().all(|&byte| byte == expected), "{operation} by {}", peer.name);
            }
        }
    }
}
