//! The operations: what a caller asks for is looked up in the policy and done.
//!
//! The functions [`clear`], [`fill`], [`copy`], [`persist`] and [`flush`] ask for nothing but the operation. [`Bulk`]
//! says more: how much there is in all, what happens to the bytes next, how many threads may work. All of them have
//! fenced when they return; [`fence_scope`](crate::fence_scope) puts several operations before one fence.

use std::ops::Range;

use crate::c_functions;
use crate::direct;
use crate::durability::Durability;
use crate::error::Error;
use crate::machine;
use crate::method;
use crate::method::{CopyFn, FillFn, FlushFn};
use crate::operation::{Intent, Operation};
use crate::plan::{self, Memory, Plan};
use crate::policy::{self, Choice, Policy, Rules};
use crate::threads::Threads;

/// Clears `dst`: every byte becomes zero.
///
/// ```
/// let mut memory = vec![1; 1 << 20];
/// bulkmem::clear(&mut memory);
/// assert!(memory.iter().all(|&byte| byte == 0));
/// ```
#[inline]
pub fn clear(dst: &mut [u8]) {
    if direct::serves(Operation::Clear, dst.len()) {
        // SAFETY: a mutable slice is valid for writes.
        unsafe { c_functions::fill(dst.as_mut_ptr(), 0, dst.len()) }
    } else {
        direct::not_clear(dst);
    }
}

/// Fills `dst` with `byte`.
///
/// ```
/// let mut memory = vec![1; 5000];
/// bulkmem::fill(&mut memory, 0xA5);
/// assert!(memory.iter().all(|&byte| byte == 0xA5));
/// ```
#[inline]
pub fn fill(dst: &mut [u8], byte: u8) {
    if direct::serves(Operation::Fill, dst.len()) {
        // SAFETY: a mutable slice is valid for writes.
        unsafe { c_functions::fill(dst.as_mut_ptr(), byte, dst.len()) }
    } else {
        direct::not_fill(dst, byte);
    }
}

/// Copies `src` to `dst`.
///
/// ```
/// let mut memory = vec![1; 5000];
/// bulkmem::copy(&mut memory, &[7; 5000])?;
/// assert_eq!(memory, [7; 5000]);
/// assert!(bulkmem::copy(&mut memory, &[7; 4999]).is_err());
/// # Ok::<(), bulkmem::Error>(())
/// ```
///
/// # Errors
/// [`Error::LengthMismatch`].
#[inline]
pub fn copy(dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
    plan::check_lengths(dst, src)?;
    // SAFETY: the slices are valid for their length, which is the same, and a mutable one overlaps no other.
    unsafe {
        if direct::serves(Operation::Copy, dst.len()) {
            c_functions::copy(dst.as_mut_ptr(), src.as_ptr(), dst.len());
        } else {
            direct::not_copy(dst.as_mut_ptr(), src.as_ptr(), dst.len());
        }
    }
    Ok(())
}

/// Copies `src` to `dst` and makes `dst` durable, as far as the processor goes: when it returns, every line of the
/// destination has left the processor's caches for memory. On persistent memory that is durable.
///
/// Memory that is a file's without being persistent memory (no DAX) still needs `msync`.
///
/// # Errors
/// [`Error::LengthMismatch`]; [`Error::NotDurable`] on an architecture without instructions for it.
#[inline]
pub fn persist(dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
    Bulk::new().persist(dst, src)
}

/// Makes durable what ordinary stores have written to `bytes`, as [`persist`] does. The lines that hold the first and
/// the last byte are written back whole.
///
/// # Errors
/// [`Error::NotDurable`] on an architecture without instructions for it.
#[inline]
pub fn flush(bytes: &[u8]) -> Result<(), Error> {
    Bulk::new().flush(bytes)
}

/// Cache lines are this long on every architecture with methods that bypass the cache.
const LINE: usize = 64;

/// Operations, and what is known of them beforehand.
///
/// Cheap to make and to copy: make one where you need it.
///
/// ```
/// use bulkmem::{Bulk, Intent};
///
/// let mut memory = vec![1; 8 << 20];
/// // Many small calls that together are one large clear, not read soon: each gets the large clear's method.
/// let bulk = Bulk::of(memory.len()).intent(Intent::Stream);
/// for chunk in memory.chunks_mut(2 << 20) {
///     bulk.clear(chunk);
/// }
/// assert!(memory.iter().all(|&byte| byte == 0));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Bulk<'p> {
    /// `None`: the process's.
    policy: Option<&'p Policy>,
    extent: usize,
    intent: Intent,
    threads: Threads,
    /// Checked: a row of the table, available here, which does the operation with these parameters.
    forced: Option<(Operation, Choice)>,
    /// `None`: what the environment says.
    durability: Option<Durability>,
    /// Whether a fence after several calls takes the place of one after each.
    deferred: bool,
}

// The operations are always inlined: where a `Bulk` is made at the call, all that it does not say folds away.
impl Bulk<'static> {
    /// Nothing is known: each call is all there is, the process's policy, one thread.
    #[inline]
    pub fn new() -> Bulk<'static> {
        Bulk::default()
    }

    /// The calls to come are part of an extent of `total` bytes: the method is chosen for that length.
    #[inline]
    pub fn of(total: usize) -> Bulk<'static> {
        Bulk { extent: total, ..Bulk::default() }
    }
}

impl<'p> Bulk<'p> {
    /// What the caller will do next with the bytes.
    #[inline]
    #[must_use]
    pub fn intent(self, intent: Intent) -> Self {
        Bulk { intent, ..self }
    }

    /// How many threads may work on one call.
    #[inline]
    #[must_use]
    pub fn threads(self, threads: Threads) -> Self {
        Bulk { threads, ..self }
    }

    /// What survives a power failure, where the environment is not to be asked.
    #[inline]
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Bulk { durability: Some(durability), ..self }
    }

    /// Asks this policy instead of the process's.
    ///
    /// # Errors
    /// [`Error::ForeignPolicy`] for one made for a machine with instructions that this one lacks.
    pub fn policy<'q>(self, policy: &'q Policy) -> Result<Bulk<'q>, Error>
    where
        'p: 'q,
    {
        if !policy.runs_here() {
            return Err(Error::ForeignPolicy);
        }
        Ok(Bulk { policy: Some(policy), ..self })
    }

    /// Forces one method for one operation, whatever the length and the intent; the last call holds. The other
    /// operations keep to the policy ([`Policy::force`] forces several).
    ///
    /// ```
    /// use bulkmem::{Bulk, Operation, method, policy::Choice};
    ///
    /// let choice = Choice::of(method::by_name("portable").unwrap(), Operation::Fill);
    /// let mut memory = vec![0; 5000];
    /// Bulk::new().method(Operation::Fill, choice)?.fill(&mut memory, 7);
    /// assert_eq!(memory, [7; 5000]);
    /// # Ok::<(), bulkmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInTable`], [`Error::WrongOperation`], [`Error::Unavailable`] or [`Error::Unfit`]: what is accepted
    /// can run.
    pub fn method(self, operation: Operation, choice: Choice) -> Result<Self, Error> {
        let method = choice.method;
        // By address: anyone can make a row of the same name that claims to need nothing.
        if !method::all().any(|row| std::ptr::eq(row, method)) {
            return Err(Error::NotInTable { method: method.name });
        }
        let Some(knobs) = method.knobs(operation) else {
            return Err(Error::WrongOperation { method: method.name, operation });
        };
        let missing = method.requires.difference(machine::features());
        if !missing.is_empty() {
            return Err(Error::Unavailable { method: method.name, missing });
        }
        if !choice.parameters.fit(knobs) {
            return Err(Error::Unfit { method: method.name, operation, parameters: choice.parameters });
        }
        Ok(Bulk { forced: Some((operation, choice)), ..self })
    }

    /// Clears `dst`: every byte becomes zero.
    #[inline(always)]
    pub fn clear(&self, dst: &mut [u8]) {
        if self.is_plain() {
            clear(dst);
        } else {
            let memory = Memory::filled(dst.as_mut_ptr(), dst.len(), 0);
            // SAFETY: a mutable slice is valid for writes.
            unsafe { self.plan_fill(Operation::Clear, dst.len()).fenced(memory) }
        }
    }

    /// Fills `dst` with `byte`.
    #[inline(always)]
    pub fn fill(&self, dst: &mut [u8], byte: u8) {
        if self.is_plain() {
            fill(dst, byte);
        } else {
            let memory = Memory::filled(dst.as_mut_ptr(), dst.len(), byte);
            // SAFETY: a mutable slice is valid for writes.
            unsafe { self.plan_fill(Operation::Fill, dst.len()).fenced(memory) }
        }
    }

    /// Copies `src` to `dst`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    #[inline(always)]
    pub fn copy(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
        if self.is_plain() {
            return copy(dst, src);
        }
        let memory = Memory::pair(dst, src)?;
        // SAFETY: `pair` vouches for the slices.
        unsafe { self.plan_copy(dst.len()).fenced(memory) }
        Ok(())
    }

    /// Copies `src` to `dst` and makes `dst` durable; see [`persist`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline(always)]
    pub fn persist(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
        let memory = Memory::pair(dst, src)?;
        // SAFETY: as in `copy`.
        unsafe { self.plan_persist(dst.len())?.fenced(memory) }
        Ok(())
    }

    /// Makes durable what ordinary stores have written to `bytes`; see [`flush`].
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline(always)]
    pub fn flush(&self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: a slice is valid for reads.
        unsafe { self.flush_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// Clears `dst`, of which `hot` will be touched next: first the rest, past the cache ([`Intent::Stream`]), and
    /// the hot part last, into the cache of the calling thread ([`Intent::Reuse`]). The lines at its ends count as hot
    /// whole.
    ///
    /// The intent given to this `Bulk` is not asked. An empty hot part is none.
    ///
    /// ```
    /// # use bulkmem::Bulk;
    /// let mut huge_page = vec![1; 2 << 20];
    /// Bulk::new().clear_hot(&mut huge_page, 0x1_2000..0x1_3000)?;
    /// assert!(huge_page.iter().all(|&byte| byte == 0));
    /// # Ok::<(), bulkmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::HotOutOfBounds`].
    pub fn clear_hot(&self, dst: &mut [u8], hot: Range<usize>) -> Result<(), Error> {
        if hot.start > hot.end || hot.end > dst.len() {
            return Err(Error::HotOutOfBounds { hot, length: dst.len() });
        }
        let around = Bulk { intent: Intent::Stream, extent: self.extent.max(dst.len()), ..*self };
        if hot.is_empty() {
            around.clear(dst);
            return Ok(());
        }
        let address = dst.as_ptr().addr();
        let start = hot.start - hot.start.min((address + hot.start) % LINE);
        let end = dst.len().min((address + hot.end).next_multiple_of(LINE) - address);
        let (before, rest) = dst.split_at_mut(start);
        let (hot, behind) = rest.split_at_mut(end - start);
        around.clear(before);
        around.clear(behind);
        Bulk { intent: Intent::Reuse, extent: 0, threads: Threads::One, ..*self }.clear(hot);
        Ok(())
    }

    /// Clears `length` bytes from `dst`, memory that others may read or write meanwhile: a guest's, another
    /// process's, a device's. No reference to it is formed; every byte is stored to, in no particular order or width.
    ///
    /// # Safety
    /// `dst..dst+length` is valid for writes, in the sense of volatile access: mapped and writable, but not
    /// necessarily unobserved. The range does not wrap around the address space. A `length` of 0 asks nothing of
    /// `dst`.
    #[inline(always)]
    pub unsafe fn clear_raw(&self, dst: *mut u8, length: usize) {
        let plan = self.plan_fill(Operation::Clear, length).always_fenced();
        // SAFETY: passed on from the caller.
        unsafe { plan.fenced(Memory::filled(dst, length, 0)) }
    }

    /// Fills `length` bytes from `dst` with `byte`; see [`Bulk::clear_raw`].
    ///
    /// # Safety
    /// As [`Bulk::clear_raw`].
    #[inline(always)]
    pub unsafe fn fill_raw(&self, dst: *mut u8, length: usize, byte: u8) {
        let plan = self.plan_fill(Operation::Fill, length).always_fenced();
        // SAFETY: passed on from the caller.
        unsafe { plan.fenced(Memory::filled(dst, length, byte)) }
    }

    /// Copies `length` bytes from `src` to `dst`, memory that others may read or write meanwhile; see
    /// [`Bulk::clear_raw`]. Bytes that change meanwhile are copied as they were at some moment, each on its own.
    ///
    /// Ranges that overlap are copied as `memmove` does, by the C library and the calling thread.
    ///
    /// # Safety
    /// `src..src+length` is valid for reads and `dst..dst+length` for writes, in the sense of volatile access. Neither
    /// wraps around the address space. A `length` of 0 asks nothing of either.
    #[inline(always)]
    pub unsafe fn copy_raw(&self, dst: *mut u8, src: *const u8, length: usize) {
        let memory = Memory::copied(dst, src, length);
        if memory.overlaps() {
            // SAFETY: passed on from the caller.
            unsafe { memory.copy_overlapping() }
        } else {
            // SAFETY: passed on from the caller, and they do not overlap.
            unsafe { self.plan_copy(length).always_fenced().fenced(memory) }
        }
    }

    /// Copies `length` bytes from `src` to `dst`, memory that others may read or write meanwhile, and makes them
    /// durable; see [`Bulk::copy_raw`] and [`persist`].
    ///
    /// # Errors
    /// [`Error::Overlap`]; [`Error::NotDurable`] on an architecture without instructions for it. Nothing is written
    /// then.
    ///
    /// # Safety
    /// As [`Bulk::copy_raw`].
    #[inline(always)]
    pub unsafe fn persist_raw(&self, dst: *mut u8, src: *const u8, length: usize) -> Result<(), Error> {
        let memory = Memory::copied(dst, src, length);
        if memory.overlaps() {
            return Err(Error::Overlap { destination: dst.addr(), source_address: src.addr(), length });
        }
        // SAFETY: passed on from the caller, and they do not overlap.
        unsafe { self.plan_persist(length)?.fenced(memory) }
        Ok(())
    }

    /// Makes durable what was written to `length` bytes from `start`; see [`flush`]. Others may read or write them
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    ///
    /// # Safety
    /// `start..start+length` is mapped and readable and does not wrap around the address space. A `length` of 0 asks
    /// nothing of `start`.
    #[inline(always)]
    pub unsafe fn flush_raw(&self, start: *const u8, length: usize) -> Result<(), Error> {
        match self.plan_flush(length)? {
            // SAFETY: passed on from the caller.
            Some(plan) => unsafe { plan.fenced(Memory::flushed(start, length)) },
            None => method::fence(),
        }
        Ok(())
    }

    /// The same, for calls that one fence follows.
    #[inline]
    pub(crate) fn deferred(self) -> Self {
        Bulk { deferred: true, ..self }
    }

    /// Whether nothing was said that the process's policy does not answer by the operation and the length.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.policy.is_none()
            && self.extent == 0
            && matches!(self.intent, Intent::Throughput)
            && matches!(self.threads, Threads::One)
            && self.forced.is_none()
    }

    #[inline(always)]
    fn choose(&self, operation: Operation, length: usize) -> &Choice {
        match &self.forced {
            Some((forced, choice)) if *forced == operation => choice,
            _ => match self.rules() {
                Some(rules) if self.extent <= length => rules.choose(operation, length, self.intent),
                Some(rules) => {
                    let shortest = if self.deferred { 0 } else { policy::SHORTEST_FENCED_PART };
                    rules.choose_part(operation, length, self.extent, self.intent, shortest)
                }
                None => policy::built_in(operation),
            },
        }
    }

    /// The rules to use; `None` while the process's policy is being loaded.
    #[inline(always)]
    fn rules(&self) -> Option<&Rules> {
        match self.policy {
            Some(policy) => Some(&policy.rules),
            None => policy::rules(),
        }
    }

    #[inline(always)]
    fn workers(&self, operation: Operation, length: usize) -> usize {
        match self.threads {
            Threads::One => 1,
            Threads::Auto => self.saturating(operation, length),
            Threads::Exactly(workers) => workers.get(),
        }
    }

    /// As many threads as saturate memory, at most one for each processor. Apart, because it makes a system call.
    #[cold]
    #[inline(never)]
    fn saturating(&self, operation: Operation, length: usize) -> usize {
        let threads = self.rules().map_or(1, |rules| rules.threads(operation, length));
        if threads > 1 { threads.min(machine::processors()) } else { 1 }
    }

    /// The plan for [`Operation::Clear`] or [`Operation::Fill`].
    #[inline(always)]
    pub(crate) fn plan_fill(&self, operation: Operation, length: usize) -> Plan<'_, FillFn> {
        let choice = self.choose(operation, length);
        let code = &choice.method.code;
        let entry = if operation == Operation::Clear { &code.clear } else { &code.fill };
        Plan::new(entry.as_ref().expect(DOES), choice, self.workers(operation, length))
    }

    #[inline(always)]
    pub(crate) fn plan_copy(&self, length: usize) -> Plan<'_, CopyFn> {
        let choice = self.choose(Operation::Copy, length);
        let entry = choice.method.code.copy.as_ref().expect(DOES);
        Plan::new(entry, choice, self.workers(Operation::Copy, length))
    }

    #[inline(always)]
    pub(crate) fn plan_persist(&self, length: usize) -> Result<Plan<'_, CopyFn>, Error> {
        let operation = Operation::Persist;
        if self.caches_survive(operation) {
            return Ok(self.plan_copy(length).always_fenced());
        }
        let choice = self.choose(operation, length);
        let entry = choice.method.code.persist.as_ref().ok_or(Error::NotDurable { operation })?;
        Ok(Plan::new(entry, choice, self.workers(operation, length)))
    }

    /// `None`: a fence is all that is needed.
    #[inline(always)]
    pub(crate) fn plan_flush(&self, length: usize) -> Result<Option<Plan<'_, FlushFn>>, Error> {
        let operation = Operation::Flush;
        if self.caches_survive(operation) {
            return Ok(None);
        }
        let choice = self.choose(operation, length);
        let entry = choice.method.code.flush.as_ref().ok_or(Error::NotDurable { operation })?;
        Ok(Some(Plan::new(entry, choice, self.workers(operation, length))))
    }

    /// Whether the operation need not flush: as was said here, or in the environment; a forced method holds all the
    /// same.
    #[inline(always)]
    fn caches_survive(&self, operation: Operation) -> bool {
        let durability = self.durability.unwrap_or_else(Durability::current);
        durability == Durability::CachesIncluded && self.forced.is_none_or(|(forced, _)| forced != operation)
    }
}

/// What policies promise, and what forced methods were checked for.
const DOES: &str = "the chosen method does the operation";
