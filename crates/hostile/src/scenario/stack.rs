//! Traces that calls leave in memory: on the stack of a thread, which the scenario provides and examines afterwards,
//! and on the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::work::{self, Run};

const SIZE: usize = 1 << 20;
const PAINT: u8 = 0xeb;
/// Most bytes of stack that the first call may use.
const MOST: usize = 4096;

/// Runs `work` on a thread with a painted stack. Returns the bytes of the stack after the thread has ended.
fn stack_of(mut work: impl FnMut()) -> Result<Vec<u8>, String> {
    extern "C" fn start<F: FnMut()>(work: *mut c_void) -> *mut c_void {
        // SAFETY: the closure that `stack_of` holds, which outlives the thread and is not used until it ends.
        unsafe { (*work.cast::<F>())() };
        std::ptr::null_mut()
    }
    fn entry<F: FnMut()>(_: &F) -> extern "C" fn(*mut c_void) -> *mut c_void {
        start::<F>
    }
    let entry = entry(&work);
    // SAFETY: a fresh mapping, which only the thread uses until it is joined.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let stack = libc::mmap(std::ptr::null_mut(), SIZE, access, kind, -1, 0);
        if stack == libc::MAP_FAILED {
            return Err("no memory for a stack".to_owned());
        }
        stack.cast::<u8>().write_bytes(PAINT, SIZE);
        let mut attributes = std::mem::zeroed();
        let mut thread = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        let done = libc::pthread_attr_setstack(&raw mut attributes, stack, SIZE) == 0
            && libc::pthread_create(&raw mut thread, &attributes, entry, (&raw mut work).cast()) == 0
            && libc::pthread_join(thread, std::ptr::null_mut()) == 0;
        let found = std::slice::from_raw_parts(stack.cast::<u8>(), SIZE).to_vec();
        libc::munmap(stack, SIZE);
        if done { Ok(found) } else { Err("no thread on a stack of its own".to_owned()) }
    }
}

/// The first call uses less than 4 KiB of stack.
pub(crate) fn depth(operation: Run) -> Result<(), String> {
    let mut memory = work::memory();
    let mut used = |run: Run| {
        let mut right = false;
        let stack = stack_of(|| right = black_box(run)(&mut memory, 5000))?;
        work::right(right)?;
        Ok::<usize, String>(SIZE - stack.iter().take_while(|&&byte| byte == PAINT).count())
    };
    // Stack that a thread needs without the library. Measured the second time, when one-time initialization is over.
    used(|_, _| true)?;
    let nothing = used(|_, _| true)?;
    let first = used(operation)?.saturating_sub(nothing);
    if first >= MOST { Err(format!("{first} bytes of stack, {MOST} or more")) } else { Ok(()) }
}

/// The secret.
const SECRET: u8 = 0xc5;

/// Longest run of secret bytes.
fn found(bytes: &[u8]) -> usize {
    bytes.split(|&byte| byte != SECRET).map(<[u8]>::len).max().unwrap_or(0)
}

/// Writes a secret to a local variable and returns. Clears the variable first if `CLEARED`.
#[inline(never)]
fn local<const N: usize, const CLEARED: bool>() {
    let mut local = [0; N];
    local.fill(black_box(SECRET));
    black_box(&mut local);
    if CLEARED {
        bulkmem::clear(&mut local);
    }
}

/// Calls a function so deep in the stack that the end of the thread does not overwrite its frame.
#[inline(never)]
fn deep(call: fn()) {
    let mut frames = [PAINT; 16 << 10];
    black_box(&mut frames);
    call();
    black_box(&mut frames);
}

/// Writes a secret to memory on the heap and releases it. Clears the memory first if `CLEARED`.
#[inline(never)]
fn boxed<const N: usize, const CLEARED: bool>() {
    let mut boxed = vec![black_box(SECRET); N];
    black_box(&mut boxed);
    if CLEARED {
        bulkmem::clear(&mut boxed);
    }
}

/// Examines memory of one size when it is released.
struct Inspector;

/// The size.
static INSPECTED: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Longest run of secret bytes that was released.
static RELEASED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Inspector {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller; until it is released, the block is as long.
        unsafe {
            if layout.size() == INSPECTED.load(SeqCst) {
                let block = std::slice::from_raw_parts(black_box(start), layout.size());
                RELEASED.fetch_max(found(block), SeqCst);
            }
            System.dealloc(start, layout);
        }
    }
}

#[global_allocator]
static ALLOCATOR: Inspector = Inspector;

/// Memory that is released after it was cleared holds no secret, on the stack and on the heap, at every length.
pub(crate) fn dead_stores(_: Run) -> Result<(), String> {
    // Short calls take another path from the second call on.
    work::right(work::exercise(&mut work::memory()))?;
    lost::<16>()?;
    lost::<64>()?;
    lost::<1000>()?;
    lost::<5000>()?;
    lost::<100_000>()
}

fn lost<const N: usize>() -> Result<(), String> {
    let on_stack =
        [found(&stack_of(|| deep(local::<N, false>))?), found(&stack_of(|| deep(local::<N, true>))?)];
    INSPECTED.store(N, SeqCst);
    let on_heap = [boxed::<N, false>, boxed::<N, true>].map(|run| {
        RELEASED.store(0, SeqCst);
        run();
        RELEASED.load(SeqCst)
    });
    INSPECTED.store(usize::MAX, SeqCst);
    for (place, [kept, cleared]) in [("stack", on_stack), ("heap", on_heap)] {
        // Without clearing, the secret is found. Otherwise this test would show nothing.
        if kept < N / 2 {
            return Err(format!("{place}, {N} bytes: a secret that is not cleared is not found: {kept}"));
        }
        if cleared >= 4 {
            return Err(format!("{place}, {N} bytes: {cleared} bytes of the secret are left after clear"));
        }
    }
    Ok(())
}
