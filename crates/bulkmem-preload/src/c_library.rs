//! The C library's functions, and the lengths from which they are not used.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Relaxed, Release},
};

use bulkmem::Operation;
use bulkmem::pointers::{self, Thresholds};

pub(crate) type Memmove = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
pub(crate) type Memset = unsafe extern "C-unwind" fn(*mut c_void, c_int, usize) -> *mut c_void;
type Prctl = unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;

/// All that a short call reads, in one cache line. A pointer is null until the constructor has found the function, and the
/// pointers to copies and fills are null together.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Table {
    /// Shorter copies go to the C library.
    pub(crate) copy_from: AtomicUsize,
    /// Shorter copies go to the C library unless page aliasing slows them down there.
    pub(crate) copy_always_from: AtomicUsize,
    /// Shorter fills and clears go to the C library.
    pub(crate) set_from: AtomicUsize,
    pub(crate) memmove: AtomicPtr<c_void>,
    pub(crate) mempcpy: AtomicPtr<c_void>,
    pub(crate) memset: AtomicPtr<c_void>,
    pub(crate) chk_fail: AtomicPtr<c_void>,
    prctl: AtomicPtr<c_void>,
}

/// The table of this process.
pub(crate) static TABLE: Table = Table {
    copy_from: AtomicUsize::new(0),
    copy_always_from: AtomicUsize::new(0),
    set_from: AtomicUsize::new(0),
    memmove: AtomicPtr::new(null_mut()),
    mempcpy: AtomicPtr::new(null_mut()),
    memset: AtomicPtr::new(null_mut()),
    chk_fail: AtomicPtr::new(null_mut()),
    prctl: AtomicPtr::new(null_mut()),
};

/// The lengths of one operation.
struct Lengths {
    /// From this one on, the policy decides.
    policy_from: AtomicUsize,
    /// Below this one, the program may find in the cache what a call wrote.
    reused_below: AtomicUsize,
}

fn lengths(operation: Operation) -> &'static Lengths {
    static LENGTHS: [Lengths; 3] =
        [const { Lengths { policy_from: AtomicUsize::new(usize::MAX), reused_below: AtomicUsize::new(0) } };
            3];
    match operation {
        Operation::Clear => &LENGTHS[0],
        Operation::Fill => &LENGTHS[1],
        _ => &LENGTHS[2],
    }
}

/// The length from which page aliasing slows down copies in the C library; the greatest if it does not, or if a variable
/// leaves all calls to the C library.
static ALIASED_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

/// True if a variable allows that calls have the kernel map pages.
static POPULATES: AtomicBool = AtomicBool::new(false);

/// The next function of that name after this library's own in the dynamic linker's order; null if there is none.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in 0.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Finds the C library's functions, which from then on do all calls. Returns false if this is not the GNU C library.
pub(crate) fn find() -> bool {
    let [memmove, mempcpy, memset] = [c"memmove", c"mempcpy", c"memset"].map(next);
    TABLE.chk_fail.store(next(c"__chk_fail"), Relaxed);
    TABLE.prctl.store(next(c"prctl"), Relaxed);
    let complete = ![memmove, mempcpy, memset].iter().any(|function| function.is_null());
    if complete {
        TABLE.mempcpy.store(mempcpy, Relaxed);
        TABLE.memset.store(memset, Relaxed);
        TABLE.memmove.store(memmove, Relaxed);
        // The pointers first, for threads that constructors of other libraries started.
        TABLE.copy_always_from.store(usize::MAX, Release);
        TABLE.copy_from.store(usize::MAX, Release);
        TABLE.set_from.store(usize::MAX, Release);
    }
    let glibc = complete && !next(c"gnu_get_libc_version").is_null();
    // A program that asks for the error of its own call must not get that of a function not found here.
    // SAFETY: no precondition.
    unsafe { libc::dlerror() };
    glibc
}

/// Lets the policy decide on long calls, if it was measured or a method is forced, and no variable is invalid.
pub(crate) fn use_policy() {
    let Ok(given) = given_from() else { return };
    let populates = variable(c"BULKMEM_POPULATE").to_bytes() == b"on";
    POPULATES.store(populates, Relaxed);
    let operations = [Operation::Clear, Operation::Fill, Operation::Copy];
    let thresholds = pointers::thresholds(operations, given, populates);
    for (operation, Thresholds { policy_from, reused_below }) in operations.into_iter().zip(thresholds) {
        lengths(operation).reused_below.store(reused_below, Relaxed);
        lengths(operation).policy_from.store(policy_from, Relaxed);
    }
    let [clear, fill, copy] = thresholds.map(|it| it.policy_from);
    let aliased = pointers::aliased_from();
    ALIASED_FROM.store(aliased, Relaxed);
    TABLE.copy_always_from.store(copy, Relaxed);
    TABLE.copy_from.store(copy.min(aliased), Relaxed);
    TABLE.set_from.store(clear.min(fill), Relaxed);
}

/// The variable is not a number.
struct Invalid;

/// The length from which the policy decides, if a variable gives it.
fn given_from() -> Result<Option<usize>, Invalid> {
    match variable(c"BULKMEM_FROM").to_bytes() {
        b"" => Ok(None),
        digits => {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            number.map(Some).ok_or(Invalid)
        }
    }
}

/// The value of a variable, empty if it is not set, or if the process has more rights than its caller.
fn variable(name: &CStr) -> &'static CStr {
    // SAFETY: no other thread exists yet that could change the environment; the caller uses the string before one does.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() || libc::getauxval(libc::AT_SECURE) != 0 { c"" } else { CStr::from_ptr(value) }
    }
}

/// True if calls may have the kernel map pages.
#[inline]
pub(crate) fn populates() -> bool {
    POPULATES.load(Relaxed)
}

/// Sends short calls to `long.rs` too, which counts them.
pub(crate) fn call_for_every_length() {
    TABLE.copy_always_from.store(0, Relaxed);
    TABLE.copy_from.store(0, Relaxed);
    TABLE.set_from.store(0, Relaxed);
}

/// True if the policy decides on a call of that length. Longer ranges than half the address space do not exist; the C
/// library's function fails for them in the way that the program would see without this library.
#[inline]
pub(crate) fn policy_decides(operation: Operation, length: usize) -> bool {
    length >= lengths(operation).policy_from.load(Relaxed) && length <= isize::MAX as usize
}

/// True if the program may find in the cache what a call of that length wrote.
#[inline]
pub(crate) fn is_reused(operation: Operation, length: usize) -> bool {
    length < lengths(operation).reused_below.load(Relaxed)
}

/// Copies, if page aliasing would slow down the C library. Returns false, and writes nothing, if it would not.
///
/// # Safety
/// As memcpy.
#[inline]
pub(crate) unsafe fn copy_if_aliased(dst: *mut c_void, src: *const c_void, length: usize) -> bool {
    // SAFETY: passed on from the caller.
    length >= ALIASED_FROM.load(Relaxed)
        && unsafe { pointers::copy_if_aliased(dst.cast(), src.cast(), length) }
}

/// # Safety
/// As memmove. The constructor has found it: called only by functions that `interpose.s` calls once it has.
#[inline(always)]
pub(crate) unsafe fn memmove(dst: *mut c_void, src: *const c_void, length: usize) {
    // SAFETY: not null, as the caller vouches, so a function of this type.
    let function: Memmove = unsafe { transmute(TABLE.memmove.load(Relaxed)) };
    // SAFETY: passed on from the caller.
    unsafe { function(dst, src, length) };
}

/// # Safety
/// As [`memmove`], for memset.
#[inline(always)]
pub(crate) unsafe fn memset(dst: *mut c_void, byte: c_int, length: usize) {
    // SAFETY: not null, as the caller vouches, so a function of this type.
    let function: Memset = unsafe { transmute(TABLE.memset.load(Relaxed)) };
    // SAFETY: passed on from the caller.
    unsafe { function(dst, byte, length) };
}

/// prctl for this library's own calls.
///
/// # Safety
/// As prctl.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn c_library_prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    let function = TABLE.prctl.load(Relaxed);
    // SAFETY: passed on from the caller; a pointer that is not null is prctl, which takes the same registers.
    unsafe {
        if function.is_null() {
            libc::syscall(libc::SYS_prctl, option, second, third, fourth, fifth) as c_int
        } else {
            transmute::<*mut c_void, Prctl>(function)(option, second, third, fourth, fifth)
        }
    }
}
