//! The compiled public functions must not call functions of the C library that a program can replace, functions that
//! allocate, look up symbols or wait: such functions may be built on bulkmem, or a signal handler may have
//! interrupted them. Threads, which the caller requests, are excluded.

use std::hint::black_box;

use bulkmem::{Error, Options};
use libtest_mimic::Failed;
use testkit::case::Case;
use testkit::harness::Suite;
use testkit::table;
use testkit::x86_64::calls::Calls;

pub(crate) fn add(suite: &mut Suite) {
    for (name, function) in FUNCTIONS {
        suite.test(&format!("symbols::{name}"), move || {
            // Shows that the search includes what the first call does.
            let calls = calls([function()])?;
            if !calls
                .functions()
                .any(|path| path.last().is_some_and(|name| name.contains("policy::active::load")))
            {
                return Err("the function does not lead to loading the policy".into());
            }
            calls_nothing_foreign(&calls)
        });
    }
    suite.test("symbols::methods", || {
        let functions = table::entries().flat_map(|(method, operation)| {
            [false, true].map(|fenced| Case { fenced, ..Case::new(method, operation) }.function().address())
        });
        calls_nothing_foreign(&calls(functions)?)
    });
    suite.test("symbols::control::what_calls_is_found", control);
}

/// Names, or beginnings of names.
const FOREIGN: [&str; 16] = [
    "memset",
    "memcpy",
    "memmove",
    "mempcpy",
    "bzero",
    "explicit_bzero",
    "__mem",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "dl",
    "pthread_",
];

/// Functions that run only if the caller requests several threads.
const THREADS: [&str; 3] = ["bulkmem::options::Options::saturating", "bulkmem::threads::", "::on_threads"];

fn is_foreign(name: &str) -> bool {
    FOREIGN.iter().any(|foreign| match *foreign {
        "__mem" | "dl" | "pthread_" => name.starts_with(foreign),
        exact => name == exact,
    })
}

fn calls(functions: impl IntoIterator<Item = *const ()>) -> Result<Calls, String> {
    Calls::from(functions, |name| THREADS.iter().any(|function| name.contains(function)))
}

/// Returns each forbidden function of another library, and each of this library that waits, with the chain of
/// callers.
fn foreign(calls: &Calls) -> Vec<String> {
    let imports = calls.imports().filter(|(name, _)| is_foreign(name));
    let imports = imports.map(|(name, path)| format!("{} -> {name}", path.join(" -> ")));
    let waits = calls.functions().filter(|path| path.last().is_some_and(|name| name.contains("futex")));
    imports.chain(waits.map(|path| path.join(" -> "))).collect()
}

fn calls_nothing_foreign(calls: &Calls) -> Result<(), Failed> {
    let found = foreign(calls);
    if found.is_empty() { Ok(()) } else { Err(found.join("\n").into()) }
}

/// Functions with known faults: a direct call, a call in a called function, a call through a table of functions.
fn control() -> Result<(), Failed> {
    #[inline(never)]
    fn allocates() -> Box<[u8]> {
        black_box(vec![1; black_box(100)].into_boxed_slice())
    }
    #[inline(never)]
    fn indirectly() -> usize {
        allocates().len()
    }
    trait Grow {
        fn grow(&mut self);
    }
    impl Grow for Vec<u8> {
        #[inline(never)]
        fn grow(&mut self) {
            self.reserve(black_box(1000));
        }
    }
    #[inline(never)]
    fn by_table() {
        let mut grown = Vec::new();
        black_box(&mut grown as &mut dyn Grow).grow();
        std::mem::forget(grown);
    }
    #[inline(never)]
    fn harmless(number: usize) -> usize {
        black_box(number) + 1
    }
    for (function, expected) in [
        (allocates as *const (), "malloc"),
        (indirectly as *const (), "malloc"),
        (by_table as *const (), "realloc"),
        (std::thread::park as *const (), "futex"),
    ] {
        let found = foreign(&calls([function])?);
        if !found.iter().any(|path| path.contains(expected)) {
            return Err(format!("{expected} was not found, but {found:?}").into());
        }
    }
    calls_nothing_foreign(&calls([harmless as *const ()])?)
}

type Address = fn() -> *const ();

/// The public functions, with options that the compiler does not know.
const FUNCTIONS: [(&str, Address); 16] = [
    ("clear", || bulkmem::clear as *const ()),
    ("fill", || bulkmem::fill as *const ()),
    ("copy", || bulkmem::copy as *const ()),
    ("fill_persist", || bulkmem::fill_persist as *const ()),
    ("clear_persist", || bulkmem::clear_persist as *const ()),
    ("copy_persist", || bulkmem::copy_persist as *const ()),
    ("persist", || bulkmem::persist as *const ()),
    ("clear_raw", || clear_raw as *const ()),
    ("fill_raw", || fill_raw as *const ()),
    ("copy_raw", || copy_raw as *const ()),
    ("fill_persist_raw", || fill_persist_raw as *const ()),
    ("copy_persist_raw", || copy_persist_raw as *const ()),
    ("persist_raw", || persist_raw as *const ()),
    ("clear_hot", || clear_hot as *const ()),
    ("fence_scope", || fence_scope as *const ()),
    ("dropped_unfenced", || dropped as *const ()),
];

#[inline(never)]
unsafe fn clear_raw(options: &Options, dst: *mut u8, length: usize) {
    // SAFETY: passed on from the caller.
    unsafe { options.clear_raw(dst, length) }
}

#[inline(never)]
unsafe fn fill_raw(options: &Options, dst: *mut u8, length: usize, byte: u8) {
    // SAFETY: passed on from the caller.
    unsafe { options.fill_raw(dst, length, byte) }
}

#[inline(never)]
unsafe fn copy_raw(options: &Options, dst: *mut u8, src: *const u8, length: usize) {
    // SAFETY: passed on from the caller.
    unsafe { options.copy_raw(dst, src, length) }
}

#[inline(never)]
unsafe fn copy_persist_raw(
    options: &Options,
    dst: *mut u8,
    src: *const u8,
    length: usize,
) -> Result<(), Error> {
    // SAFETY: passed on from the caller.
    unsafe { options.copy_persist_raw(dst, src, length) }
}

#[inline(never)]
unsafe fn fill_persist_raw(options: &Options, dst: *mut u8, length: usize, byte: u8) -> Result<(), Error> {
    // SAFETY: passed on from the caller.
    unsafe { options.fill_persist_raw(dst, length, byte) }
}

#[inline(never)]
unsafe fn persist_raw(options: &Options, start: *const u8, length: usize) -> Result<(), Error> {
    // SAFETY: passed on from the caller.
    unsafe { options.persist_raw(start, length) }
}

#[inline(never)]
fn clear_hot(options: &Options, dst: &mut [u8], hot: usize) -> Result<(), Error> {
    options.clear_hot(dst, hot..hot + 64)
}

#[inline(never)]
fn fence_scope(options: &Options, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
    let (left, rest) = dst.split_at_mut_checked(64).unwrap_or_default();
    let (middle, right) = rest.split_at_mut_checked(64).unwrap_or_default();
    options.fence_scope(|scope| {
        scope.clear(left).defer();
        scope.fill_persist(middle, 7)?.defer();
        scope.copy_persist(right, src)?.defer();
        Ok(())
    })
}

#[inline(never)]
fn dropped(options: &Options, dst: &mut [u8], src: &[u8]) -> bool {
    let (left, right) = dst.split_at_mut_checked(64).unwrap_or_default();
    options.fence_scope(|scope| {
        drop(scope.fill(left, 7));
        scope.copy(right, src).is_ok_and(|unfenced| unfenced.fence().is_empty())
    })
}
