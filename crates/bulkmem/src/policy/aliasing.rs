//! Copies that page aliasing makes slow.
//!
//! On Zen 3 and Zen 4, REP MOVSB copies 3 to 4 GB/s, a twentieth of its usual speed, if the destination begins 1 to 15
//! bytes after the source, both taken modulo 4096, and half of it up to 31 bytes (docs/learned.md). glibc copies by it from
//! 2 KiB on. Calibration measures whether that is so here, and between which lengths.

use super::Choice;

/// The method for copies that the C library would do slowly, because the destination begins a few bytes after the source
/// modulo the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PageAliasing {
    /// The smallest length that is slow, bytes.
    pub from: usize,
    /// The smallest length above `from` that is not.
    pub below: usize,
    /// The method for the lengths between.
    pub choice: Choice,
}

impl PageAliasing {
    /// The page size that matters, bytes: the processor compares the low 12 bits of addresses.
    pub const PAGE: usize = 4096;
    /// The greatest distance that is slow, bytes.
    pub const MOST: usize = 31;

    /// True if a destination lies so behind a source that a copy by REP MOVSB is slow.
    #[inline(always)]
    pub fn is_between(dst: *const u8, src: *const u8) -> bool {
        let distance = dst.addr().wrapping_sub(src.addr()) % Self::PAGE;
        distance.wrapping_sub(1) < Self::MOST
    }

    /// True if a copy by the C library would be slow.
    #[inline(always)]
    pub(crate) fn applies(&self, dst: *const u8, src: *const u8, length: usize) -> bool {
        (self.from..self.below).contains(&length) && Self::is_between(dst, src)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;
    use crate::policy::built_in;

    #[test]
    fn destinations_1_to_31_bytes_after_the_source_modulo_4096_are_slow() {
        let at = |address: usize| std::ptr::without_provenance::<u8>(address);
        let aliasing = PageAliasing { from: 2112, below: 1 << 20, choice: *built_in(Operation::Copy) };
        for base in [0x7000_0000_0000_usize, 0x7000_0000_0ff0, usize::MAX - 5000] {
            for distance in 0..=8192_usize {
                let slow = (1..32).contains(&(distance % 4096));
                for (dst, src) in [(base.wrapping_add(distance), base), (base, base.wrapping_sub(distance))] {
                    assert_eq!(PageAliasing::is_between(at(dst), at(src)), slow, "{distance}");
                    for (length, inside) in
                        [(2111, false), (2112, true), ((1 << 20) - 1, true), (1 << 20, false)]
                    {
                        assert_eq!(aliasing.applies(at(dst), at(src), length), slow && inside, "{length}");
                    }
                }
            }
        }
    }
}
