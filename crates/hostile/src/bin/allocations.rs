//! Counts the allocations of the first call, including those of the C library, whose `malloc`, `calloc` and so on
//! this program replaces. The argument is the operation.

use std::ffi::c_void;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[allow(dead_code, reason = "the other program that shares this file uses the rest")]
#[path = "../scenario/work.rs"]
mod work;

static COUNT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(start: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

macro_rules! counted {
    ($($name:ident($($argument:ident: $type:ty),+) = $original:ident;)+) => {$(
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),+) -> *mut c_void {
            COUNT.fetch_add(1, Relaxed);
            // SAFETY: passed on from the caller.
            unsafe { $original($($argument),+) }
        }
    )+};
}

counted! {
    malloc(size: usize) = __libc_malloc;
    calloc(count: usize, size: usize) = __libc_calloc;
    realloc(start: *mut c_void, size: usize) = __libc_realloc;
    memalign(alignment: usize, size: usize) = __libc_memalign;
    aligned_alloc(alignment: usize, size: usize) = __libc_memalign;
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(operation) = work::OPERATIONS.iter().find(|(known, _)| *known == name) else {
        println!("unknown operation {name}");
        return ExitCode::FAILURE;
    };
    let mut memory = vec![1; work::ROOM];
    let before = COUNT.load(Relaxed);
    // SAFETY: the string is terminated; what strdup returns is freed.
    unsafe { libc::free(black_box(libc::strdup(c"any text".as_ptr())).cast()) };
    if COUNT.load(Relaxed) == before {
        println!("the C library's own allocations are not counted here");
        return ExitCode::FAILURE;
    }
    let before = COUNT.load(Relaxed);
    let right = operation.1(&mut memory, 5000);
    let count = COUNT.load(Relaxed) - before;
    if !right || count > 0 {
        println!("{count} allocations; right bytes: {right}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
