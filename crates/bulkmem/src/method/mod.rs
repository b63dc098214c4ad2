//! The method table: every way in which this library can perform an operation.
//!
//! The dispatcher, calibration, tests, measurements and the command iterate over this table. Methods do not know the
//! policy: their functions receive an address, a length and parameters.

// Miri cannot run assembly, so `portable` is the only method there.
#[cfg(not(miri))]
mod c_library;
#[cfg_attr(not(feature = "unstable-internals"), allow(unreachable_pub, reason = "public with the feature"))]
mod entry;
#[cfg(with_methods)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "not every architecture has a method of each kind")
)]
mod lines;
mod parameters;
pub(crate) mod portable;
#[cfg(with_methods)]
mod primitives;

#[cfg(all(target_arch = "aarch64", with_methods))]
mod aarch64;
#[cfg(all(target_arch = "aarch64", with_methods))]
use aarch64 as architecture;
#[cfg(all(target_arch = "riscv64", with_methods))]
mod riscv64;
#[cfg(all(target_arch = "riscv64", with_methods))]
use riscv64 as architecture;
#[cfg(all(target_arch = "x86_64", with_methods))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", with_methods))]
use x86_64 as architecture;

use std::fmt;

#[cfg(not(feature = "unstable-internals"))]
pub(crate) use entry::{Code, CopyFn, Entry, FillFn, PersistFn};
#[cfg(feature = "unstable-internals")]
pub use entry::{Code, CopyFn, Entry, FillFn, PersistFn};
pub use parameters::{Parameters, Tunable};

use crate::machine::Features;
use crate::operation::Operation;

/// Effect of a method on the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub enum CacheEffect {
    /// The destination's lines end up in the cache.
    Allocates,
    /// The destination's lines do not enter the cache, and leave it if they were there.
    Bypasses,
    /// The destination's lines enter the cache and are written back; they may leave it.
    Evicts,
    /// Some lines enter the cache, others bypass it.
    Mixed,
    /// The destination's lines end up in a cache that processors share, and not in the caches of this processor.
    Demotes,
}

impl CacheEffect {
    /// Returns the word that tables and JSON use.
    pub const fn name(self) -> &'static str {
        match self {
            CacheEffect::Allocates => "allocates",
            CacheEffect::Bypasses => "bypasses",
            CacheEffect::Evicts => "evicts",
            CacheEffect::Mixed => "mixed",
            CacheEffect::Demotes => "demotes",
        }
    }
}

/// Order of a method's stores with respect to later stores of the same thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// Ordinary stores, which become visible before later stores.
    Ordered,
    /// Weakly ordered stores: unless a fence follows, other threads may see later stores first.
    Weak,
}

/// A method: one way to perform one or more operations.
#[non_exhaustive]
pub struct Method {
    /// Name, unique in the table.
    pub name: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Effect on the cache.
    pub effect: CacheEffect,
    /// Order of its stores.
    pub ordering: Ordering,
    /// Features of the instructions that it uses. The machine must support all of them.
    pub requires: Features,
    pub(crate) code: Code,
}

impl Method {
    /// Returns the functions of the method, by operation.
    #[cfg(feature = "unstable-internals")]
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Returns the tunables for one operation; `None` if the method does not support the operation.
    pub fn tunables(&self, operation: Operation) -> Option<&'static [Tunable]> {
        match operation {
            Operation::Clear => self.code.clear.map(|entry| entry.tunables),
            Operation::Fill => self.code.fill.map(|entry| entry.tunables),
            Operation::Copy => self.code.copy.map(|entry| entry.tunables),
            Operation::FillPersist => self.code.fill_persist.map(|entry| entry.tunables),
            Operation::CopyPersist => self.code.copy_persist.map(|entry| entry.tunables),
            Operation::Persist => self.code.persist.map(|entry| entry.tunables),
        }
    }

    /// True if the method supports the operation.
    pub fn does(&self, operation: Operation) -> bool {
        self.tunables(operation).is_some()
    }

    /// True if the method also keeps the source of a copy out of the cache, or evicts it. For [`CacheEffect`], only the
    /// destination counts.
    pub fn spares_source(&self) -> bool {
        self.name.ends_with("_source")
    }

    /// True if the processor supports, and the operating system has enabled, all instructions of the method.
    pub fn available(&self) -> bool {
        crate::machine::features().contains(self.requires)
    }

    /// Returns the parameters to use if nothing was measured.
    pub fn default_parameters(&self, operation: Operation) -> Parameters {
        let mut parameters = Parameters::default();
        for tunable in self.tunables(operation).unwrap_or_default() {
            parameters.set(tunable.name, tunable.default);
        }
        parameters
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Method").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Method {
    fn eq(&self, other: &Method) -> bool {
        self.name == other.name
    }
}
impl Eq for Method {}

/// Returns every method of this architecture, including those that this machine cannot run.
pub fn all() -> impl Iterator<Item = &'static Method> {
    #[cfg(not(miri))]
    let common = [&c_library::METHOD, &portable::METHOD].into_iter();
    #[cfg(miri)]
    let common = [&portable::METHOD].into_iter();
    #[cfg(with_methods)]
    return common.chain(architecture::methods());
    #[cfg(not(with_methods))]
    common
}

/// Returns the method of that name.
///
/// A build by a compiler older than Rust 1.89 does not have the AVX-512 methods. The name of one of them then stands
/// for the AVX method of the same kind, so that a policy file that another program's calibration wrote can still be
/// used.
pub fn by_name(name: &str) -> Option<&'static Method> {
    let exact = all().find(|method| method.name == name);
    #[cfg(not(avx512))]
    let exact = exact.or_else(|| narrower(name));
    exact
}

/// Returns the AVX method with the same name except for the width.
#[cfg(not(avx512))]
fn narrower(name: &str) -> Option<&'static Method> {
    let (before, after) = name.split_once("avx512")?;
    all().find(|method| {
        let width = method.name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        matches!(width, Some("avx" | "avx2"))
    })
}

/// Returns the method that uses the C library's `memset` and `memcpy`, with which the others are compared.
pub fn c_library() -> &'static Method {
    #[cfg(not(miri))]
    return &c_library::METHOD;
    #[cfg(miri)]
    &portable::METHOD
}

/// The method for calls that arrive before a policy is loaded, by operation. It calls no function, needs only the
/// architecture's baseline, and takes parameters that are all 0.
#[cfg(with_methods)]
pub(crate) use architecture::BUILT_IN;
/// As above.
#[cfg(not(with_methods))]
pub(crate) static BUILT_IN: [&Method; Operation::ALL.len()] = [&portable::METHOD; Operation::ALL.len()];

/// Orders every earlier store and write-back of this thread before its later stores. Write-backs of, and non-temporal
/// stores to, persistent memory are durable afterwards.
///
/// x86-64: SFENCE. aarch64: DSB SY. riscv64: FENCE IORW, IORW. Elsewhere a sequentially consistent fence.
#[inline(always)]
pub fn fence() {
    #[cfg(with_methods)]
    primitives::barrier::fence();
    #[cfg(not(with_methods))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Waits until earlier stores of this thread have left it, which orders at least as much as [`fence`].
///
/// The time of what follows is its own then. After 4 MiB of non-temporal stores and an SFENCE, Zen 5 takes 1,500 ticks
/// instead of 400 for the next 16 KiB of cached memory: later stores wait until those before the SFENCE are written.
///
/// x86-64: two locked instructions. Elsewhere as [`fence`].
#[inline(always)]
pub(crate) fn drain() {
    #[cfg(with_methods)]
    primitives::barrier::drain_stores();
    #[cfg(not(with_methods))]
    fence();
}

/// As [`drain`], if only one store came since the last time.
///
/// x86-64: MFENCE. Elsewhere as [`fence`].
#[inline(always)]
pub(crate) fn drain_single() {
    #[cfg(with_methods)]
    primitives::barrier::drain_single_store();
    #[cfg(not(with_methods))]
    fence();
}
