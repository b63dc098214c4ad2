//! Measures what the preloaded library adds to short calls, and what it saves of copies that page aliasing slows down:
//! `bulkmem run -- target/release/examples/overhead`.
//!
//! Each round calls the function that programs get, the C library's own, and a jump to that, in the next of their six orders.
//! Prints the medians of all rounds and of the differences within rounds, ns per call. The last column is what the jump adds, an
//! indirect one, as every function needs that passes calls on to an address that is known at run time.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::mem::transmute;
use std::ptr::{null, without_provenance};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const ROUNDS: usize = 1001;
/// Of copies that page aliasing slows down, which take long.
const ALIASED_ROUNDS: usize = 101;
/// Bytes that one timing writes, and the fewest calls; fewer of long ones.
const BATCH: usize = 256 << 10;
const CALLS: usize = 1000;
const LONG_CALLS: usize = 100;
const LONG: usize = 16 << 10;
const PAGE: usize = 4096;

/// Any of the functions: they take two to four words.
type Function = unsafe extern "C" fn(*mut c_void, *const c_void, usize, usize) -> *mut c_void;

/// The address that [`jump`] jumps to.
static TARGET: AtomicUsize = AtomicUsize::new(0);

/// Passes a call on to the address in `TARGET`. Optimized, that is a single jump.
///
/// # Safety
///
/// As the function at that address.
#[inline(never)]
unsafe extern "C" fn jump(dst: *mut c_void, src: *const c_void, length: usize, size: usize) -> *mut c_void {
    // SAFETY: `compare` stores a `Function` before it calls this.
    let target = unsafe { transmute::<usize, Function>(TARGET.load(Ordering::Relaxed)) };
    // SAFETY: the caller's.
    unsafe { target(dst, src, length, size) }
}

/// Finds a function. For the C library's own, `handle` is the C library.
fn find(handle: *mut c_void, name: &CStr) -> Result<Function, String> {
    // SAFETY: the name ends in 0.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("{} is not found", name.to_string_lossy()));
    }
    // SAFETY: they take an address; an address, a byte or a length; a length or nothing; and the size of the destination or nothing;
    // in the same registers.
    Ok(unsafe { transmute::<*mut c_void, Function>(found) })
}

/// Nanoseconds per call.
fn time(function: Function, dst: &mut [u8], src: *const c_void, length: usize) -> f64 {
    let calls = (BATCH / length).max(if length < LONG { CALLS } else { LONG_CALLS });
    let start = Instant::now();
    for _ in 0..calls {
        // SAFETY: `dst` and, for copies, `src` have `length` bytes.
        black_box(unsafe { function(dst.as_mut_ptr().cast(), src, black_box(length), length) });
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// The orders of three candidates. In all of them together, each comes after each other one as often.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]];

/// Calls the functions and a jump to `theirs` in turn, and prints a line.
fn compare(
    (name, ours, theirs): (&str, Function, Function),
    rounds: usize,
    dst: &mut [u8],
    src: *const c_void,
    length: usize,
) {
    TARGET.store(theirs as usize, Ordering::Relaxed);
    let functions = [theirs, ours, jump];
    let mut taken = [const { Vec::new() }; 3];
    for round in 0..rounds {
        for number in ORDERS[round % ORDERS.len()] {
            taken[number].push(time(functions[number], dst, src, length));
        }
    }
    let [theirs, ours, jumps] = taken;
    let added = |to: &[f64]| median(to.iter().zip(&theirs).map(|(to, theirs)| to - theirs).collect());
    let (ours_added, jump_added) = (added(&ours), added(&jumps));
    println!(
        "{name:20} {length:>7} {:>10.2} {:>10.2} {ours_added:>+11.2} {jump_added:>+10.2}",
        median(theirs),
        median(ours)
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: the C library is loaded already.
    let c_library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if c_library.is_null() {
        return Err("libc.so.6 is not loaded: this needs the GNU C library".into());
    }
    let lengths = [8, 16, 32, 64, 128, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10];
    let (mut dst, src) = (vec![1_u8; 64 << 10], vec![2_u8; 64 << 10]);
    println!(
        "{:20} {:>7} {:>10} {:>10} {:>11} {:>10}",
        "function", "bytes", "C library", "preloaded", "difference", "jump alone"
    );
    let names = [
        c"memcpy",
        c"memmove",
        c"mempcpy",
        c"memset",
        c"bzero",
        c"explicit_bzero",
        c"__memcpy_chk",
        c"__memmove_chk",
        c"__mempcpy_chk",
        c"__memset_chk",
        c"__explicit_bzero_chk",
    ];
    for name in names {
        let (ours, theirs) = (find(libc::RTLD_DEFAULT, name)?, find(c_library, name)?);
        if ours as usize == theirs as usize {
            return Err("the library is not preloaded: use `bulkmem run`".into());
        }
        for length in lengths {
            // The second argument is a byte, or a length, after which the size of the destination follows.
            let source = match name.to_bytes() {
                b"memset" | b"__memset_chk" => null(),
                b"bzero" | b"explicit_bzero" | b"__explicit_bzero_chk" => without_provenance(length),
                _ => src.as_ptr().cast(),
            };
            compare((&name.to_string_lossy(), ours, theirs), ROUNDS, &mut dst, source, length);
        }
    }
    println!("memcpy to 8 bytes after the source modulo 4096:");
    let functions = ("memcpy", find(libc::RTLD_DEFAULT, c"memcpy")?, find(c_library, c"memcpy")?);
    let (mut dst, src) = (vec![1_u8; (512 << 10) + PAGE], vec![2_u8; 512 << 10]);
    let after = (src.as_ptr().addr() + 8).wrapping_sub(dst.as_ptr().addr()) % PAGE;
    for length in [1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 512 << 10] {
        compare(functions, ALIASED_ROUNDS, &mut dst[after..], src.as_ptr().cast(), length);
    }
    Ok(())
}
