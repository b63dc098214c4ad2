//! The operations on slices: the free functions, which use default options, and the same with [`Options`].

use std::ops::Range;

use crate::error::Error;
use crate::kernel::{self, Memory};
use crate::options::Options;
use crate::pointers;
use crate::short_calls::COPY_PERSIST;

/// Sets every byte of `dst` to zero.
///
/// Equivalent to `dst.fill(0)`, with three differences: the policy chooses the method, the compiler never removes the
/// call, and stores that bypass the cache are fenced before the function returns.
///
/// - **Ordering**: when it returns, the stores are ordered before all later stores of this thread, like those of
///   `slice::fill`, whatever the method.
/// - **Alignment**: any. Whole cache lines are faster than partial ones at both ends.
/// - **Faster than `slice::fill`** from about the size of the last-level cache on, or if [`Options::intent`] says that the
///   bytes are not read soon. **Not faster** for lengths that fit in the cache: they go straight to the C library's
///   `memset`, which takes a load and a comparison more than calling it directly.
///
/// ```
/// let mut memory = vec![1; 1 << 20];
/// bulkmem::clear(&mut memory);
/// assert!(memory.iter().all(|&byte| byte == 0));
/// ```
#[inline]
pub fn clear(dst: &mut [u8]) {
    // SAFETY: a mutable slice is valid for writes.
    unsafe { pointers::clear(dst.as_mut_ptr(), dst.len()) }
}

/// Sets every byte of `dst` to `byte`.
///
/// Equivalent to `dst.fill(byte)`. Ordering, alignment and speed are those of [`clear`], but methods that can only write
/// zeros, such as CLZERO, are not available.
///
/// ```
/// let mut memory = vec![1; 5000];
/// bulkmem::fill(&mut memory, 0xA5);
/// assert!(memory.iter().all(|&byte| byte == 0xA5));
/// ```
#[inline]
pub fn fill(dst: &mut [u8], byte: u8) {
    // SAFETY: a mutable slice is valid for writes.
    unsafe { pointers::fill(dst.as_mut_ptr(), dst.len(), byte) }
}

/// Copies `src` to `dst`.
///
/// Equivalent to `dst.copy_from_slice(src)`, but returns an error instead of panicking if the lengths differ.
///
/// - **Ordering**: as for [`clear`].
/// - **Alignment**: any, also different for source and destination.
/// - **Overlap**: the borrow checker excludes it. [`Options::copy_raw`] accepts ranges that overlap.
/// - **Faster than `copy_from_slice`** for copies larger than the last-level cache, because stores that bypass the cache
///   do not read the destination first. **Not faster** for copies that fit in the cache, or if the destination is read
///   soon.
///
/// ```
/// let mut memory = vec![1; 5000];
/// bulkmem::copy(&mut memory, &[7; 5000])?;
/// assert_eq!(memory, [7; 5000]);
/// assert!(bulkmem::copy(&mut memory, &[7; 4999]).is_err());
/// # Ok::<(), bulkmem::Error>(())
/// ```
///
/// # Errors
/// [`Error::LengthMismatch`] if the lengths differ. Nothing is written then.
#[inline]
pub fn copy(dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
    kernel::check_lengths(dst, src)?;
    // SAFETY: the slices are valid for their length, which is the same, and a mutable one overlaps no other.
    unsafe { pointers::copy(dst.as_mut_ptr(), src.as_ptr(), dst.len()) }
    Ok(())
}

/// Copies `src` to `dst` and makes `dst` durable, like `pmem_memcpy_persist`.
///
/// When it returns, every cache line of the destination has left the processor's caches, or the platform keeps the
/// caches through a power failure ([`Durability`](crate::Durability)). On persistent memory (DAX) the bytes are durable
/// then. A file that is mapped without DAX still needs `msync`.
///
/// - **Ordering**: the write-backs are fenced, so that later stores cannot become durable before them.
/// - **Alignment**: any; lines at the ends are written back whole. **Atomicity**: none beyond 8 aligned bytes.
/// - The standard library has no equivalent. **Faster than [`copy`] followed by [`persist`]**, because one pass over the
///   memory suffices. **Slower than [`copy`]** always: use it only if the bytes must be durable.
///
/// ```
/// let mut memory = vec![0; 4096];
/// bulkmem::copy_persist(&mut memory, &[7; 4096])?;
/// assert_eq!(memory, [7; 4096]);
/// # Ok::<(), bulkmem::Error>(())
/// ```
///
/// # Errors
/// [`Error::LengthMismatch`] if the lengths differ; [`Error::NotDurable`] on an architecture without instructions that
/// write cache lines back. Nothing is written then.
#[inline]
pub fn copy_persist(dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
    kernel::check_lengths(dst, src)?;
    // SAFETY: the slices are valid for their length, which is the same, and a mutable one overlaps no other.
    unsafe { pointers::copy_persist(dst.as_mut_ptr(), src.as_ptr(), dst.len()) }
}

/// Sets every byte of `dst` to `byte` and makes `dst` durable, like `pmem_memset_persist`.
///
/// Guarantees and limits are those of [`copy_persist`]. Faster than [`fill`] followed by [`persist`].
///
/// ```
/// let mut memory = vec![0; 4096];
/// bulkmem::fill_persist(&mut memory, 0xFF)?;
/// assert_eq!(memory, [0xFF; 4096]);
/// # Ok::<(), bulkmem::Error>(())
/// ```
///
/// # Errors
/// [`Error::NotDurable`] on an architecture without instructions that write cache lines back. Nothing is written then.
#[inline]
pub fn fill_persist(dst: &mut [u8], byte: u8) -> Result<(), Error> {
    // SAFETY: a mutable slice is valid for writes.
    unsafe { pointers::fill_persist(dst.as_mut_ptr(), dst.len(), byte) }
}

/// Sets every byte of `dst` to zero and makes `dst` durable: [`fill_persist`] with the byte 0, by the same methods.
///
/// ```
/// let mut memory = vec![1; 4096];
/// bulkmem::clear_persist(&mut memory)?;
/// assert_eq!(memory, [0; 4096]);
/// # Ok::<(), bulkmem::Error>(())
/// ```
///
/// # Errors
/// As [`fill_persist`].
#[inline]
pub fn clear_persist(dst: &mut [u8]) -> Result<(), Error> {
    fill_persist(dst, 0)
}

/// Makes durable what ordinary stores wrote to `bytes`, like `pmem_persist`.
///
/// Every cache line that holds a byte of the range is written back whole, and a fence waits for it. What "durable" means
/// is described at [`copy_persist`]. If the bytes are written by a copy or a fill anyway, [`copy_persist`] and
/// [`fill_persist`] are faster. The standard library has no equivalent.
///
/// ```
/// let mut record = [0; 64];
/// record[..8].copy_from_slice(&42_u64.to_le_bytes());
/// bulkmem::persist(&record[..8])?;
/// # Ok::<(), bulkmem::Error>(())
/// ```
///
/// # Errors
/// [`Error::NotDurable`] on an architecture without instructions that write cache lines back.
#[inline]
pub fn persist(bytes: &[u8]) -> Result<(), Error> {
    // SAFETY: a slice is valid for reads.
    unsafe { pointers::persist(bytes.as_ptr(), bytes.len()) }
}

impl Options<'_> {
    /// Sets every byte of `dst` to zero; see [`clear`].
    #[inline(always)]
    pub fn clear(&self, dst: &mut [u8]) {
        if self.is_default() {
            clear(dst);
        } else {
            // SAFETY: a mutable slice is valid for writes.
            unsafe { pointers::clear_with(self, dst.as_mut_ptr(), dst.len()) }
        }
    }

    /// Sets every byte of `dst` to `byte`; see [`fill`].
    #[inline(always)]
    pub fn fill(&self, dst: &mut [u8], byte: u8) {
        if self.is_default() {
            fill(dst, byte);
        } else {
            // SAFETY: a mutable slice is valid for writes.
            unsafe { pointers::fill_with(self, dst.as_mut_ptr(), dst.len(), byte) }
        }
    }

    /// Copies `src` to `dst`; see [`copy`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    #[inline(always)]
    pub fn copy(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
        if self.is_default() {
            return copy(dst, src);
        }
        kernel::check_lengths(dst, src)?;
        // SAFETY: the slices are valid for their length, which is the same, and a mutable one overlaps no other.
        unsafe { pointers::copy_with(self, dst.as_mut_ptr(), src.as_ptr(), dst.len()) }
        Ok(())
    }

    /// Copies `src` to `dst` and makes `dst` durable; see [`copy_persist`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline(always)]
    pub fn copy_persist(&self, dst: &mut [u8], src: &[u8]) -> Result<(), Error> {
        let memory = Memory::pair(dst, src)?;
        // SAFETY: `pair` vouches for the slices.
        unsafe {
            match self.short(&COPY_PERSIST, memory.length) {
                Some(short) => short.call_and_fence(memory),
                None => self.plan_copy_persist(&memory)?.always_fenced().fenced(memory),
            }
        }
        Ok(())
    }

    /// Sets every byte of `dst` to `byte` and makes `dst` durable; see [`fill_persist`].
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline(always)]
    pub fn fill_persist(&self, dst: &mut [u8], byte: u8) -> Result<(), Error> {
        // SAFETY: a mutable slice is valid for writes.
        unsafe { self.fill_persist_raw(dst.as_mut_ptr(), dst.len(), byte) }
    }

    /// Sets every byte of `dst` to zero and makes `dst` durable; see [`clear_persist`].
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline(always)]
    pub fn clear_persist(&self, dst: &mut [u8]) -> Result<(), Error> {
        self.fill_persist(dst, 0)
    }

    /// Makes durable what ordinary stores wrote to `bytes`; see [`persist`].
    ///
    /// # Errors
    /// [`Error::NotDurable`] on an architecture without instructions for it.
    #[inline(always)]
    pub fn persist(&self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: a slice is valid for reads.
        unsafe { self.persist_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// Sets every byte of `dst` to zero, of which the range `hot` is touched next: first everything else with
    /// [`Intent::Stream`](crate::Intent::Stream), then the hot part with [`Intent::Reuse`](crate::Intent::Reuse) on the calling thread, so that it ends up in its
    /// cache. The hot part is widened to whole cache lines.
    ///
    /// Ignores the configured intent. If `hot` is empty, clears the whole range with [`Intent::Stream`](crate::Intent::Stream).
    ///
    /// ```
    /// # use bulkmem::Options;
    /// let mut huge_page = vec![1; 2 << 20];
    /// Options::new().clear_hot(&mut huge_page, 0x1_2000..0x1_3000)?;
    /// assert!(huge_page.iter().all(|&byte| byte == 0));
    /// # Ok::<(), bulkmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::HotOutOfBounds`] if `hot` is not within `dst`. Nothing is written then.
    pub fn clear_hot(&self, dst: &mut [u8], hot: Range<usize>) -> Result<(), Error> {
        // SAFETY: a mutable slice is valid for writes.
        unsafe { self.clear_hot_raw(dst.as_mut_ptr(), dst.len(), hot) }
    }
}
