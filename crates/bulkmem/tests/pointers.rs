//! The operations on pointers: the right bytes and no others, in uninitialized memory, with and without a fence.

use std::mem::MaybeUninit;

use bulkmem::{Intent, Operation, Options, method, pointers};

const MOST: usize = (1 << 20) + 3;
const LENGTHS: [usize; 8] = [0, 1, 63, 64, 65, 4097, 70_000, MOST];
/// Bytes before and after the range.
const AROUND: usize = 65;

fn source() -> Vec<u8> {
    (0..MOST).map(|at| (at * 31 % 251) as u8).collect()
}

/// Runs `write` with uninitialized memory of every length, and compares what it has written.
fn check(what: &str, expected: impl Fn(usize) -> u8, write: impl Fn(*mut u8, usize)) {
    for length in LENGTHS {
        let mut memory: Vec<MaybeUninit<u8>> = Vec::with_capacity(length + 2 * AROUND);
        let start = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the ends are within the capacity. After `write`, all bytes are initialized.
        let bytes = unsafe {
            start.write_bytes(0xEE, AROUND);
            start.add(AROUND + length).write_bytes(0xEE, AROUND);
            write(start.add(AROUND), length);
            std::slice::from_raw_parts(start, length + 2 * AROUND)
        };
        for (at, byte) in bytes.iter().enumerate() {
            let within = (AROUND..AROUND + length).contains(&at);
            let right = if within { expected(at - AROUND) } else { 0xEE };
            assert_eq!(*byte, right, "{what}, {length} bytes, at {at}");
        }
    }
}

#[test]
fn default_operations_write_the_range() {
    let src = source();
    // SAFETY: `check` passes a range that can be written, and the source is apart.
    check("clear", |_| 0, |dst, length| unsafe { pointers::clear(dst, length) });
    // SAFETY: as above.
    check("fill", |_| 7, |dst, length| unsafe { pointers::fill(dst, length, 7) });
    // SAFETY: as above.
    check("copy", |at| src[at], |dst, length| unsafe { pointers::copy(dst, src.as_ptr(), length) });
}

#[test]
fn unfenced_operations_write_the_range() {
    let src = source();
    for intent in Intent::all() {
        let options = Options::new().intent(intent).total_len(1 << 34);
        // SAFETY: `check` passes a range that can be written, the source is apart, and one thread needs no fence.
        unsafe {
            check("clear", |_| 0, |dst, length| options.clear_unfenced(dst, length));
            check("fill", |_| 7, |dst, length| options.fill_unfenced(dst, length, 7));
            check("copy", |at| src[at], |dst, length| options.copy_unfenced(dst, src.as_ptr(), length));
        }
        if !method::all().any(|method| method.does(Operation::Persist) && method.available()) {
            println!("skipped: unfenced operations that persist: this machine has no method that persists");
            continue;
        }
        // SAFETY: as above.
        unsafe {
            let fill = |dst, length| options.fill_persist_unfenced(dst, length, 7).unwrap();
            check("fill_persist", |_| 7, fill);
            let copy = |dst, length| options.copy_persist_unfenced(dst, src.as_ptr(), length).unwrap();
            check("copy_persist", |at| src[at], copy);
            let persist = |dst: *mut u8, length| {
                dst.write_bytes(9, length);
                options.persist_unfenced(dst, length).unwrap();
            };
            check("persist", |_| 9, persist);
        }
    }
    method::fence();
}
