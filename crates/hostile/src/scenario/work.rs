//! Operations that scenarios perform. Nothing here allocates, so that signal handlers can use it.

use bulkmem::{Error, Options};

/// Bytes of memory that [`exercise`] works on.
pub(crate) const ROOM: usize = 2 * LONGEST;
const LONGEST: usize = 1 << 17;

/// Performs an operation on `length` bytes, at most half of the memory, and checks the bytes.
pub(crate) type Run = fn(memory: &mut [u8], length: usize) -> bool;

/// The operations, by name.
pub(crate) const OPERATIONS: [(&str, Run); 6] = [
    ("clear", clear),
    ("fill", fill),
    ("copy", copy),
    ("fill_persist", fill_persist),
    ("copy_persist", copy_persist),
    ("persist", persist),
];

fn halves(memory: &mut [u8], length: usize) -> (&mut [u8], &mut [u8]) {
    let (dst, src) = memory.split_at_mut(LONGEST);
    for (at, byte) in src[..length].iter_mut().enumerate() {
        *byte = at as u8 | 1;
    }
    (&mut dst[..length], &mut src[..length])
}

fn clear(memory: &mut [u8], length: usize) -> bool {
    let (dst, _) = halves(memory, length);
    bulkmem::clear(dst);
    dst.iter().all(|&byte| byte == 0)
}

fn fill(memory: &mut [u8], length: usize) -> bool {
    let (dst, _) = halves(memory, length);
    bulkmem::fill(dst, 0xa5);
    dst.iter().all(|&byte| byte == 0xa5)
}

fn copy(memory: &mut [u8], length: usize) -> bool {
    let (dst, src) = halves(memory, length);
    bulkmem::copy(dst, src).is_ok() && dst == src
}

/// True also for the error on an architecture without such instructions.
fn durable(result: Result<(), Error>) -> bool {
    matches!(result, Ok(()) | Err(Error::NotDurable { .. }))
}

fn fill_persist(memory: &mut [u8], length: usize) -> bool {
    let (dst, _) = halves(memory, length);
    let filled = bulkmem::fill_persist(dst, 0x5a);
    let right = filled.is_err() || dst.iter().all(|&byte| byte == 0x5a);
    let cleared = bulkmem::clear_persist(dst);
    right && durable(filled) && (cleared.is_err() || dst.iter().all(|&byte| byte == 0)) && durable(cleared)
}

fn copy_persist(memory: &mut [u8], length: usize) -> bool {
    let (dst, src) = halves(memory, length);
    let result = bulkmem::copy_persist(dst, src);
    (result.is_err() || dst == src) && durable(result)
}

fn persist(memory: &mut [u8], length: usize) -> bool {
    let (dst, _) = halves(memory, length);
    durable(bulkmem::persist(dst))
}

fn raw(memory: &mut [u8], length: usize) -> bool {
    let (dst, src) = halves(memory, length);
    // SAFETY: two slices of that length, apart.
    unsafe {
        Options::new().copy_raw(dst.as_mut_ptr(), src.as_ptr(), length);
        let copied = dst == src;
        Options::new().clear_raw(dst.as_mut_ptr(), length);
        copied && dst.iter().all(|&byte| byte == 0)
    }
}

/// Copies overlapping ranges, like `memmove`.
fn moved(memory: &mut [u8], length: usize) -> bool {
    let (_, src) = halves(memory, length);
    // SAFETY: within the slice; raw copies may overlap.
    unsafe { Options::new().copy_raw(src.as_mut_ptr(), src.as_ptr().add(1), length - 1) };
    (1..length).all(|at| src[at - 1] == at as u8 | 1)
}

fn scope(memory: &mut [u8], length: usize) -> bool {
    let (dst, src) = halves(memory, length);
    let (left, right) = dst.split_at_mut(length / 2);
    let copied = bulkmem::fence_scope(|scope| {
        scope.clear(left).defer();
        scope.copy(right, &src[length / 2..]).map(|unfenced| unfenced.defer()).is_ok()
    });
    copied && left.iter().all(|&byte| byte == 0) && *right == src[length / 2..]
}

/// Performs every operation, at short and long lengths.
pub(crate) fn exercise(memory: &mut [u8]) -> bool {
    let every = OPERATIONS.iter().map(|(_, run)| *run).chain([raw as Run, moved, scope]);
    every
        .flat_map(|run| [1, 64, 1000, 4099, LONGEST].map(|length| (run, length)))
        .all(|(run, length)| run(memory, length))
}

/// Performs a few short operations, for handlers that run often.
pub(crate) fn quick(memory: &mut [u8]) -> bool {
    clear(memory, 200) && fill(memory, 200) && copy(memory, 5000)
}

/// Returns memory for [`exercise`].
pub(crate) fn memory() -> Vec<u8> {
    vec![1; ROOM]
}

/// Converts to a result.
pub(crate) fn right(right: bool) -> Result<(), String> {
    if right { Ok(()) } else { Err("wrong bytes".to_owned()) }
}
