//! The methods of bulkmem that stand for libpmem's: chosen by the policy, or forced by flags and variables.

use std::path::Path;
use std::sync::OnceLock;

use bulkmem::policy::Choice;
use bulkmem::{Durability, Error, Operation, Options, method};

use crate::settings::{Settings, settings};
use crate::sysfs;

/// The length from which PMDK stores past the cache.
const PMDK_THRESHOLD: usize = 256;

/// How bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Whichever is faster for the length.
    ByPolicy,
    /// To the cache.
    Temporal,
    /// Bypassing the cache.
    NonTemporal,
}

/// How stored bytes leave the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteBack {
    /// The method that stores them sees to it.
    Stored,
    /// By `flush`, afterwards: the instruction is prescribed, and methods that store may use any.
    Flushed,
    /// Caches survive a power failure.
    Needless,
}

/// Options for copies and for fills, since options can force a method for one operation only.
#[derive(Clone, Copy, Debug)]
struct Pair {
    copy: Options<'static>,
    fill: Options<'static>,
}

/// The methods of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Methods {
    write_back: WriteBack,
    by_policy: Pair,
    /// Neither flushed nor drained.
    ordinary: Pair,
    temporal: Pair,
    non_temporal: Pair,
    flush: Options<'static>,
    /// Flushes in any case.
    deep_flush: Options<'static>,
    no_movnt: bool,
    movnt_threshold: Option<usize>,
}

/// The methods for this process's variables and platform.
pub(crate) fn methods() -> &'static Methods {
    static METHODS: OnceLock<Methods> = OnceLock::new();
    METHODS.get_or_init(|| {
        let settings = settings();
        // A folder that cannot be read promises nothing.
        let platform = || sysfs::caches_survive(Path::new("/")).unwrap_or(false);
        Methods::new(settings, settings.no_flush.unwrap_or_else(platform))
    })
}

/// Options that force the first of the methods that this machine has; those without one if it has none.
fn forced(base: Options<'static>, operation: Operation, names: &[&str]) -> Options<'static> {
    let options = |name: &&str| base.method(operation, Choice::of(method::by_name(name)?, operation)).ok();
    names.iter().find_map(options).unwrap_or(base)
}

impl Pair {
    /// Forces methods for these operations.
    fn forced(base: Options<'static>, copy: Operation, fill: Operation, names: &[&str]) -> Pair {
        Pair { copy: forced(base, copy, names), fill: forced(base, fill, names) }
    }
}

impl Methods {
    /// The methods for these variables, on a platform whose caches survive a power failure, or do not.
    pub(crate) fn new(settings: &Settings, caches_survive: bool) -> Methods {
        const NON_TEMPORAL: [&str; 4] =
            ["nontemporal_avx512", "nontemporal_avx", "nontemporal_sse2", "movnti"];
        const FLUSHED: [&str; 9] = [
            "store_avx512_clwb",
            "store_avx_clwb",
            "store_sse2_clwb",
            "store_avx512_clflushopt",
            "store_avx_clflushopt",
            "store_sse2_clflushopt",
            "store_avx512_clflush",
            "store_avx_clflush",
            "store_sse2_clflush",
        ];
        let prescribed = settings.no_clwb || settings.no_clflushopt;
        let write_back = match (caches_survive, prescribed) {
            (true, _) => WriteBack::Needless,
            (false, true) => WriteBack::Flushed,
            (false, false) => WriteBack::Stored,
        };
        // Programs that know nothing of looks may forbid reading the clock.
        let base = Options::new().look(false);
        let always = base.durability(Durability::FlushToMemory);
        let (copy_only, fill_only) = (Operation::Copy, Operation::Fill);
        let (temporal, non_temporal) = if write_back == WriteBack::Stored {
            let (copy, fill) = (Operation::CopyPersist, Operation::FillPersist);
            (Pair::forced(always, copy, fill, &FLUSHED), Pair::forced(always, copy, fill, &NON_TEMPORAL))
        } else {
            (
                Pair::forced(always, copy_only, fill_only, &["c_library"]),
                Pair::forced(always, copy_only, fill_only, &NON_TEMPORAL),
            )
        };
        let deep_flush = if prescribed {
            let allowed =
                [("clwb", !settings.no_clwb), ("clflushopt", !settings.no_clflushopt), ("clflush", true)];
            let names: Vec<_> =
                allowed.iter().filter(|(_, allowed)| *allowed).map(|(name, _)| *name).collect();
            forced(always, Operation::Persist, &names)
        } else {
            always
        };
        Methods {
            write_back,
            by_policy: Pair { copy: always, fill: always },
            ordinary: Pair::forced(base, copy_only, fill_only, &["c_library"]),
            temporal,
            non_temporal,
            flush: if caches_survive { base.durability(Durability::CachesIncluded) } else { deep_flush },
            deep_flush,
            no_movnt: settings.no_movnt,
            // The policy may choose methods with other instructions that write back.
            movnt_threshold: settings.movnt_threshold.or(prescribed.then_some(PMDK_THRESHOLD)),
        }
    }

    fn pair(&self, stores: Stores, length: usize) -> &Pair {
        match (stores, self.movnt_threshold) {
            _ if self.no_movnt => &self.temporal,
            (Stores::Temporal, _) => &self.temporal,
            (Stores::NonTemporal, _) => &self.non_temporal,
            (Stores::ByPolicy, Some(threshold)) if length < threshold => &self.temporal,
            (Stores::ByPolicy, Some(_)) => &self.non_temporal,
            (Stores::ByPolicy, None) => &self.by_policy,
        }
    }

    /// Copies; after a drain the bytes are durable. The ranges may overlap.
    ///
    /// # Safety
    /// `src..src+length` is valid for reads and `dst..dst+length` for writes.
    pub(crate) unsafe fn copy(&self, dst: *mut u8, src: *const u8, length: usize, stores: Stores) {
        let options = &self.pair(stores, length).copy;
        let overlap = dst.addr().abs_diff(src.addr()) < length;
        // SAFETY: passed on from the caller; where the ranges must not overlap, they do not.
        unsafe {
            if overlap {
                options.copy_raw(dst, src, length);
                self.flush(dst, length);
            } else if self.write_back == WriteBack::Stored {
                durable(options.copy_persist_unfenced(dst, src, length));
            } else {
                options.copy_unfenced(dst, src, length);
                self.flush(dst, length);
            }
        }
    }

    /// Fills; after a drain the bytes are durable.
    ///
    /// # Safety
    /// `dst..dst+length` is valid for writes.
    pub(crate) unsafe fn fill(&self, dst: *mut u8, byte: u8, length: usize, stores: Stores) {
        let options = &self.pair(stores, length).fill;
        // SAFETY: passed on from the caller.
        unsafe {
            if self.write_back == WriteBack::Stored {
                durable(options.fill_persist_unfenced(dst, length, byte));
            } else {
                options.fill_unfenced(dst, length, byte);
                self.flush(dst, length);
            }
        }
    }

    /// Copies and nothing more. The ranges may overlap.
    ///
    /// # Safety
    /// As [`Methods::copy`].
    pub(crate) unsafe fn copy_ordinary(&self, dst: *mut u8, src: *const u8, length: usize) {
        // SAFETY: passed on from the caller.
        unsafe { self.ordinary.copy.copy_raw(dst, src, length) }
    }

    /// Fills and nothing more.
    ///
    /// # Safety
    /// As [`Methods::fill`].
    pub(crate) unsafe fn fill_ordinary(&self, dst: *mut u8, byte: u8, length: usize) {
        // SAFETY: passed on from the caller.
        unsafe { self.ordinary.fill.fill_raw(dst, length, byte) }
    }

    /// Writes back what was stored, unless caches survive; after a drain it is durable.
    ///
    /// # Safety
    /// `start..start+length` is valid for reads.
    pub(crate) unsafe fn flush(&self, start: *const u8, length: usize) {
        // SAFETY: passed on from the caller.
        durable(unsafe { self.flush.persist_unfenced(start, length) });
    }

    /// As [`Methods::flush`], in any case.
    ///
    /// # Safety
    /// As [`Methods::flush`].
    pub(crate) unsafe fn deep_flush(&self, start: *const u8, length: usize) {
        // SAFETY: passed on from the caller.
        durable(unsafe { self.deep_flush.persist_unfenced(start, length) });
    }
}

/// The only error is that of an architecture without instructions that write back; x86-64 has them. No program checks these
/// functions, so one that could not make bytes durable must not return.
fn durable(result: Result<(), Error>) {
    if result.is_err() {
        std::process::abort();
    }
}
