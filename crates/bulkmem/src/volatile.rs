//! Fill and copy by volatile word accesses, which the compiler neither turns into a call nor removes.

const WORD: usize = size_of::<usize>();

/// How many bytes come before the first whole aligned word of the range.
fn head(dst: *mut u8, len: usize) -> usize {
    dst.align_offset(WORD).min(len)
}

/// Fills with words.
///
/// # Safety
/// `dst..dst+len` is valid for writes.
pub(crate) unsafe fn fill(dst: *mut u8, len: usize, byte: u8) {
    let word = usize::from_ne_bytes([byte; WORD]);
    let head = head(dst, len);
    let body = (len - head) / WORD * WORD;
    // SAFETY: every address is within dst..dst+len, which the caller vouches for; words start at an aligned one.
    unsafe {
        for at in (0..head).chain(head + body..len) {
            dst.add(at).write_volatile(byte);
        }
        for at in (head..head + body).step_by(WORD) {
            dst.add(at).cast::<usize>().write_volatile(word);
        }
    }
}

/// Copies by words if both ranges are aligned alike.
///
/// # Safety
/// `src..src+len` is valid for reads and `dst..dst+len` for writes, and they do not overlap.
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let head = head(dst, len);
    let body = (len - head) / WORD * WORD;
    // SAFETY: every address is within the two ranges, which the caller vouches for; words are stored to aligned
    // addresses, and read a byte at a time unless the source is aligned alike.
    unsafe {
        for at in (0..head).chain(head + body..len) {
            dst.add(at).write_volatile(src.add(at).read_volatile());
        }
        if src.add(head).cast::<usize>().is_aligned() {
            for at in (head..head + body).step_by(WORD) {
                let word = src.add(at).cast::<usize>().read_volatile();
                dst.add(at).cast::<usize>().write_volatile(word);
            }
        } else {
            for at in head..head + body {
                dst.add(at).write_volatile(src.add(at).read_volatile());
            }
        }
    }
}
