//! Stores and copies of one cache line, in assembly, from which all loops are built.
//!
//! This is assembly instead of intrinsics for three reasons: the compiler must not turn a loop into a call of
//! `memset`; non-temporal intrinsics break the compiler's memory model (rust-lang/rust#114582); and other threads may
//! write the memory concurrently.
//!
//! Functions that use wide registers have the target feature. The trait methods are `inline(always)`, so that the
//! compiler inlines everything into a kernel that has the feature too.

use std::arch::asm;
#[cfg(avx512)]
use std::arch::x86_64::__m512i;
use std::arch::x86_64::{__m128i, __m256i};

use crate::machine::{Features, features_known_so_far};
pub(super) use crate::method::lines::{CopyLine, FillLine, FlushLine, Flushed, LINE};

/// Repeats a byte eight times. Unsafe only because `fill_line` calls it like the wider ones.
///
/// # Safety
/// None.
#[inline(always)]
unsafe fn spread(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Makes one assembly block of instructions on a line, which use no stack and keep the flags.
macro_rules! line_asm {
    ($($piece:expr),+ ; $($operand:tt)+) => {
        // SAFETY: the caller vouches for the line (and, on copies, the source), for its alignment and for the
        // instructions; every access is within 64 bytes of the pointers given, or within the bytes of a batch.
        unsafe { asm!($($piece),+, $($operand)+, options(nostack, preserves_flags)) }
    };
}

/// Makes one assembly block that executes instructions, and those that advance the pointers, `{times}` times, at least once. The
/// loop starts at a cache line, and the instructions should be those of several lines: on a Zen 3, a loop that crosses from one line of
/// code into the next fills the second-level cache 15 to 40 % slower, and one that writes single lines up to 25 %. The compiler would
/// start it wherever the code before ends.
macro_rules! loop_asm {
    ($times:ident, [$($piece:expr),+], [$($advance:expr),+]; $($operand:tt)+) => {
        // SAFETY: as in `line_asm!`, for all lines.
        unsafe {
            asm!(
                ".p2align 6", "2:", $($piece),+, $($advance),+, "sub {times}, 1", "jnz 2b",
                times = inout(reg) $times => _, $($operand)+, options(nostack)
            )
        }
    };
}

/// Implements [`FillLine`]: type, register value, feature, and the instructions that write `{v}` to `{p}`, for one line and for
/// four.
macro_rules! fill_line {
    ($name:ident, $value:ty, $class:ident, $(#[$feature:meta])?, $spread:expr, $pieces:tt, $four:tt) => {
        impl FillLine for $name {
            type Value = $value;

            #[inline(always)]
            unsafe fn value(byte: u8) -> $value {
                $(#[$feature])?
                #[inline]
                unsafe fn value(byte: u8) -> $value {
                    // SAFETY: the caller vouches for the instructions.
                    unsafe { $spread(byte) }
                }
                // SAFETY: the caller vouches for the instructions.
                unsafe { value(byte) }
            }

            fill_line!(@line $value, $class, $(#[$feature])?, $pieces);

            #[inline(always)]
            unsafe fn write_lines(line: *mut u8, count: usize, value: &$value) {
                fill_line!(@times fours, "add {p}, 256", $value, $class, $(#[$feature])?, $four);
                fill_line!(@times lines, "add {p}, 64", $value, $class, $(#[$feature])?, $pieces);
                // SAFETY: passed on from the caller, for groups of four and for the lines that are left.
                unsafe {
                    fours(line, count / 4, *value);
                    lines(line.add(count / 4 * 4 * LINE), count % 4, *value);
                }
            }
        }
    };
    (@line $value:ty, $class:ident, $(#[$feature:meta])?, [$($piece:expr),+ $(,)?]) => {
        #[inline(always)]
        unsafe fn write(line: *mut u8, value: &$value) {
            $(#[$feature])?
            #[inline]
            unsafe fn write(line: *mut u8, value: $value) {
                line_asm!($($piece),+; p = in(reg) line, v = in($class) value);
            }
            // SAFETY: passed on from the caller.
            unsafe { write(line, *value) }
        }
    };
    (@times $name:ident, $advance:literal, $value:ty, $class:ident, $(#[$feature:meta])?, [$($piece:expr),+ $(,)?]) => {
        $(#[$feature])?
        #[inline]
        unsafe fn $name(line: *mut u8, times: usize, value: $value) {
            if times > 0 {
                loop_asm!(times, [$($piece),+], [$advance]; p = inout(reg) line => _, v = in($class) value);
            }
        }
    };
}

/// Implements [`CopyLine`]: type, registers, feature, and the instructions that copy a line from `{s}` to `{d}`; if it copies
/// several lines at a time, how many, and the registers and instructions for these.
///
/// The registers are outputs of their full type. For a discarded output (`out(ymm_reg) _`) LLVM assumes an XMM
/// register, and omits the VZEROUPPER that must follow the use of wider ones.
macro_rules! copy_line {
    ($name:ident, $value:ty, $class:ident, $(#[$feature:meta])?, $alignment:expr, $registers:tt, $pieces:tt) => {
        impl CopyLine for $name {
            const SOURCE_ALIGNMENT: usize = $alignment;

            copy_line!(@line copy, $value, $class, $(#[$feature])?, $registers, $pieces);

            #[inline(always)]
            unsafe fn copy_lines(dst: *mut u8, src: *const u8, count: usize) {
                copy_line!(@times lines, 1, $value, $class, $(#[$feature])?, $registers, $pieces);
                // SAFETY: passed on from the caller.
                unsafe { lines(dst, src, count) }
            }
        }
    };
    ($name:ident, $value:ty, $class:ident, $(#[$feature:meta])?, $alignment:expr, $registers:tt, $pieces:tt,
     batch of $lines:literal $batch_registers:tt $batch_pieces:tt) => {
        impl CopyLine for $name {
            const SOURCE_ALIGNMENT: usize = $alignment;

            const BATCH: usize = $lines;

            copy_line!(@line copy, $value, $class, $(#[$feature])?, $registers, $pieces);
            copy_line!(@line copy_batch, $value, $class, $(#[$feature])?, $batch_registers, $batch_pieces);

            #[inline(always)]
            unsafe fn copy_lines(dst: *mut u8, src: *const u8, count: usize) {
                copy_line!(@times lines, 1, $value, $class, $(#[$feature])?, $registers, $pieces);
                copy_line!(@times batches, $lines, $value, $class, $(#[$feature])?, $batch_registers, $batch_pieces);
                let bytes = count / $lines * $lines * LINE;
                // SAFETY: passed on from the caller, for whole batches and for the lines that are left.
                unsafe {
                    batches(dst, src, count / $lines);
                    lines(dst.add(bytes), src.add(bytes), count % $lines);
                }
            }
        }
    };
    (@line $name:ident, $value:ty, $class:ident, $(#[$feature:meta])?, ($($t:ident)+), [$($piece:expr),+ $(,)?]) => {
        #[inline(always)]
        unsafe fn $name(dst: *mut u8, src: *const u8) {
            $(#[$feature])?
            #[inline]
            unsafe fn $name(dst: *mut u8, src: *const u8) {
                $(let $t: $value;)+
                line_asm!(
                    $($piece),+;
                    d = in(reg) dst, s = in(reg) src, $($t = out($class) $t),+
                );
                let _ = ($($t,)+);
            }
            // SAFETY: passed on from the caller.
            unsafe { $name(dst, src) }
        }
    };
    (@times $name:ident, $lines:literal, $value:ty, $class:ident, $(#[$feature:meta])?, ($($t:ident)+), [$($piece:expr),+ $(,)?]) => {
        $(#[$feature])?
        #[inline]
        unsafe fn $name(dst: *mut u8, src: *const u8, times: usize) {
            if times == 0 {
                return;
            }
            $(let $t: $value;)+
            loop_asm!(
                times, [$($piece),+], [concat!("add {d}, 64 * ", $lines), concat!("add {s}, 64 * ", $lines)];
                d = inout(reg) dst => _, s = inout(reg) src => _, $($t = out($class) $t),+
            );
            let _ = ($($t,)+);
        }
    };
}

/// Cached stores of 8 bytes.
pub(super) struct Store8;
/// Cached stores of 16 bytes.
pub(super) struct StoreSse2;
/// Cached stores of 32 bytes.
pub(super) struct StoreAvx;
/// Cached stores of 64 bytes.
#[cfg(avx512)]
pub(super) struct StoreAvx512;
/// Non-temporal stores of 4 bytes.
pub(super) struct Nontemporal4;
/// Non-temporal stores of 8 bytes.
pub(super) struct Nontemporal8;
/// Non-temporal stores of 16 bytes.
pub(super) struct NontemporalSse2;
/// Non-temporal stores of 32 bytes.
pub(super) struct NontemporalAvx;
/// Non-temporal stores of 64 bytes.
#[cfg(avx512)]
pub(super) struct NontemporalAvx512;
/// Non-temporal loads and stores of 16 bytes.
pub(super) struct LoadNontemporalSse41;
/// Non-temporal loads and stores of 32 bytes.
pub(super) struct LoadNontemporalAvx2;
/// Non-temporal loads and stores of 64 bytes.
#[cfg(avx512)]
pub(super) struct LoadNontemporalAvx512;
/// Non-temporal loads and cached stores of 16 bytes.
pub(super) struct LoadNontemporalStoreSse41;
/// Non-temporal loads and cached stores of 32 bytes.
pub(super) struct LoadNontemporalStoreAvx2;
/// Non-temporal loads and cached stores of 64 bytes.
#[cfg(avx512)]
pub(super) struct LoadNontemporalStoreAvx512;

/// # Safety
/// None.
unsafe fn spread_16(byte: u8) -> __m128i {
    #[allow(unused_unsafe, reason = "intrinsics are unsafe before Rust 1.87")]
    // SAFETY: SSE2 is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_set1_epi8(byte as i8)
    }
}

/// # Safety
/// AVX is enabled.
#[target_feature(enable = "avx")]
#[inline]
unsafe fn spread_32(byte: u8) -> __m256i {
    #[allow(unused_unsafe, reason = "intrinsics are unsafe before Rust 1.87")]
    // SAFETY: the caller vouches for AVX.
    unsafe {
        std::arch::x86_64::_mm256_set1_epi64x(spread(byte) as i64)
    }
}

/// # Safety
/// AVX-512F is enabled.
#[cfg(avx512)]
#[allow(clippy::incompatible_msrv, reason = "only compilers that have the intrinsic set this cfg")]
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn spread_64(byte: u8) -> __m512i {
    #[allow(unused_unsafe, reason = "intrinsics are unsafe before Rust 1.87")]
    // SAFETY: the caller vouches for AVX-512F.
    unsafe {
        std::arch::x86_64::_mm512_set1_epi64(spread(byte) as i64)
    }
}

/// Implements [`FillLine`] by one instruction at several offsets.
macro_rules! fill_at {
    ($name:ident, $value:ty, $class:ident, $(#[$feature:meta])?, $spread:expr, $op:literal, $v:literal,
     $($offset:literal)+) => {
        fill_line!($name, $value, $class, $(#[$feature])?, $spread,
                   [$(concat!($op, " [{p} + ", $offset, "], ", $v)),+],
                   [$(concat!($op, " [{p} + ", $offset, "], ", $v),)+
                    $(concat!($op, " [{p} + 64 + ", $offset, "], ", $v),)+
                    $(concat!($op, " [{p} + 128 + ", $offset, "], ", $v),)+
                    $(concat!($op, " [{p} + 192 + ", $offset, "], ", $v)),+]);
    };
}

fill_at!(Store8, u64, reg, , spread, "mov qword ptr", "{v}", 0 8 16 24 32 40 48 56);
fill_at!(StoreSse2, __m128i, xmm_reg, , spread_16, "movdqa", "{v}", 0 16 32 48);
fill_at!(StoreAvx, __m256i, ymm_reg, #[target_feature(enable = "avx")], spread_32, "vmovdqa", "{v}", 0 32);
#[cfg(avx512)]
fill_at!(StoreAvx512, __m512i, zmm_reg, #[target_feature(enable = "avx512f")], spread_64, "vmovdqa64", "{v}", 0);
fill_at!(Nontemporal4, u64, reg, , spread, "movnti dword ptr", "{v:e}", 0 4 8 12 16 20 24 28 32 36 40 44 48 52 56 60);
fill_at!(Nontemporal8, u64, reg, , spread, "movnti qword ptr", "{v}", 0 8 16 24 32 40 48 56);
fill_at!(NontemporalSse2, __m128i, xmm_reg, , spread_16, "movntdq", "{v}", 0 16 32 48);
fill_at!(NontemporalAvx, __m256i, ymm_reg, #[target_feature(enable = "avx")], spread_32, "vmovntdq", "{v}", 0 32);
#[cfg(avx512)]
fill_at!(NontemporalAvx512, __m512i, zmm_reg, #[target_feature(enable = "avx512f")], spread_64, "vmovntdq", "{v}", 0);

/// Implements [`CopyLine`] by a load and a store instruction. Each group of registers is loaded, then stored.
macro_rules! copy_with {
    ($name:ident, $value:ty, $class:ident, $(#[$feature:meta])?, $alignment:expr, $load:literal, $store:literal,
     $modifier:literal, $registers:tt $([$($t:ident $offset:literal)+])+
     $(, batch of $lines:literal $batch_registers:tt [$($u:ident $batch_offset:literal)+])?) => {
        copy_line!($name, $value, $class, $(#[$feature])?, $alignment, $registers, [
            $(
                $(concat!($load, " {", stringify!($t), $modifier, "}, [{s} + ", $offset, "]"),)+
                $(concat!($store, " [{d} + ", $offset, "], {", stringify!($t), $modifier, "}")),+
            ),+
        ] $(, batch of $lines $batch_registers [
            $(concat!($load, " {", stringify!($u), $modifier, "}, [{s} + ", $batch_offset, "]"),)+
            $(concat!($store, " [{d} + ", $batch_offset, "], {", stringify!($u), $modifier, "}")),+
        ])?);
    };
}

copy_with!(Store8, u64, reg, , 1, "mov", "mov", "",
    (t0 t1 t2 t3) [t0 0 t1 8 t2 16 t3 24] [t0 32 t1 40 t2 48 t3 56]);
copy_with!(StoreSse2, __m128i, xmm_reg, , 1, "movdqu", "movdqa", "",
    (t0 t1 t2 t3) [t0 0 t1 16 t2 32 t3 48],
    batch of 4 (t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15)
        [t0 0 t1 16 t2 32 t3 48 t4 64 t5 80 t6 96 t7 112 t8 128 t9 144 t10 160 t11 176 t12 192 t13 208 t14 224 t15 240]);
copy_with!(StoreAvx, __m256i, ymm_reg, #[target_feature(enable = "avx")], 1, "vmovdqu", "vmovdqa", "",
    (t0 t1) [t0 0 t1 32],
    batch of 8 (t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15)
        [t0 0 t1 32 t2 64 t3 96 t4 128 t5 160 t6 192 t7 224 t8 256 t9 288 t10 320 t11 352 t12 384 t13 416 t14 448 t15 480]);
#[cfg(avx512)]
copy_with!(StoreAvx512, __m512i, zmm_reg, #[target_feature(enable = "avx512f")], 1, "vmovdqu64", "vmovdqa64", "",
    (t0) [t0 0],
    batch of 8 (t0 t1 t2 t3 t4 t5 t6 t7) [t0 0 t1 64 t2 128 t3 192 t4 256 t5 320 t6 384 t7 448]);
copy_with!(Nontemporal4, u64, reg, , 1, "mov", "movnti", ":e",
    (t0 t1 t2 t3) [t0 0 t1 4 t2 8 t3 12] [t0 16 t1 20 t2 24 t3 28] [t0 32 t1 36 t2 40 t3 44] [t0 48 t1 52 t2 56 t3 60]);
copy_with!(Nontemporal8, u64, reg, , 1, "mov", "movnti", "",
    (t0 t1 t2 t3) [t0 0 t1 8 t2 16 t3 24] [t0 32 t1 40 t2 48 t3 56]);
copy_with!(NontemporalSse2, __m128i, xmm_reg, , 1, "movdqu", "movntdq", "",
    (t0 t1 t2 t3) [t0 0 t1 16 t2 32 t3 48],
    batch of 4 (t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15)
        [t0 0 t1 16 t2 32 t3 48 t4 64 t5 80 t6 96 t7 112 t8 128 t9 144 t10 160 t11 176 t12 192 t13 208 t14 224 t15 240]);
copy_with!(NontemporalAvx, __m256i, ymm_reg, #[target_feature(enable = "avx")], 1, "vmovdqu", "vmovntdq", "",
    (t0 t1) [t0 0 t1 32],
    batch of 8 (t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15)
        [t0 0 t1 32 t2 64 t3 96 t4 128 t5 160 t6 192 t7 224 t8 256 t9 288 t10 320 t11 352 t12 384 t13 416 t14 448 t15 480]);
// All of a batch is loaded before it is stored, so that reading and writing memory alternate less often: on an Emerald Rapids
// 3 to 7 % faster in batches of 16 lines where the source is not cached; of 8 lines 2 to 3 %, of 4 no faster.
#[cfg(avx512)]
copy_with!(NontemporalAvx512, __m512i, zmm_reg, #[target_feature(enable = "avx512f")], 1, "vmovdqu64", "vmovntdq", "",
    (t0) [t0 0],
    batch of 16 (t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15)
        [t0 0 t1 64 t2 128 t3 192 t4 256 t5 320 t6 384 t7 448 t8 512 t9 576 t10 640 t11 704 t12 768 t13 832 t14 896 t15 960]);
copy_with!(LoadNontemporalSse41, __m128i, xmm_reg, , 16, "movntdqa", "movntdq", "",
    (t0 t1 t2 t3) [t0 0 t1 16 t2 32 t3 48]);
copy_with!(LoadNontemporalAvx2, __m256i, ymm_reg, #[target_feature(enable = "avx2")], 32, "vmovntdqa", "vmovntdq", "",
    (t0 t1) [t0 0 t1 32]);
#[cfg(avx512)]
copy_with!(LoadNontemporalAvx512, __m512i, zmm_reg, #[target_feature(enable = "avx512f")], 64, "vmovntdqa", "vmovntdq", "",
    (t0) [t0 0]);
copy_with!(LoadNontemporalStoreSse41, __m128i, xmm_reg, , 16, "movntdqa", "movdqa", "",
    (t0 t1 t2 t3) [t0 0 t1 16 t2 32 t3 48]);
copy_with!(LoadNontemporalStoreAvx2, __m256i, ymm_reg, #[target_feature(enable = "avx2")], 32, "vmovntdqa", "vmovdqa", "",
    (t0 t1) [t0 0 t1 32]);
#[cfg(avx512)]
copy_with!(LoadNontemporalStoreAvx512, __m512i, zmm_reg, #[target_feature(enable = "avx512f")], 64, "vmovntdqa", "vmovdqa64", "",
    (t0) [t0 0]);

/// CLFLUSH between two MFENCEs: writes back and evicts. Intel orders CLFLUSH. AMD's manual allows it to overtake
/// earlier stores and to be overtaken by later accesses without an MFENCE on each side. It is used only without
/// CLFLUSHOPT and CLWB, so correctness matters more than speed.
pub(super) struct Clflush;
/// CLFLUSHOPT: writes back and evicts; weakly ordered.
pub(super) struct Clflushopt;
/// CLWB: writes back and may keep the line; weakly ordered.
pub(super) struct Clwb;

macro_rules! flush_line {
    ($name:ident, $($piece:literal),+) => {
        impl FlushLine for $name {
            #[inline(always)]
            unsafe fn flush(at: *const u8) {
                // SAFETY: the caller vouches for the address and the instruction.
                unsafe { asm!($($piece),+, at = in(reg) at, options(nostack, preserves_flags)) }
            }
        }
    };
}

flush_line!(Clflush, "mfence", "clflush [{at}]", "mfence");
flush_line!(Clflushopt, "clflushopt [{at}]");
flush_line!(Clwb, "clwb [{at}]");

/// Lines copied by `L`, whose source is evicted from all caches afterwards, except for lines at its ends.
pub(super) struct SourceEvicted<L>(std::marker::PhantomData<L>);

impl<L: CopyLine> CopyLine for SourceEvicted<L> {
    const SOURCE_ALIGNMENT: usize = L::SOURCE_ALIGNMENT;

    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8) {
        // SAFETY: passed on from the caller. An unaligned source ends in the next line, which the next copy reads.
        unsafe {
            L::copy(dst, src);
            Clflushopt::flush(src);
        }
    }
}

/// Lines written or copied by `L`, which bypasses the cache. Partial lines go through the cache and are written back by
/// the best available instruction.
pub(super) struct Durable<L>(std::marker::PhantomData<L>);

impl<L: FillLine> FillLine for Durable<L> {
    type Value = L::Value;

    #[inline(always)]
    unsafe fn value(byte: u8) -> L::Value {
        // SAFETY: passed on from the caller.
        unsafe { L::value(byte) }
    }

    #[inline(always)]
    unsafe fn write(line: *mut u8, value: &L::Value) {
        // SAFETY: passed on from the caller.
        unsafe { L::write(line, value) }
    }

    #[inline(always)]
    unsafe fn write_lines(line: *mut u8, count: usize, value: &L::Value) {
        // SAFETY: passed on from the caller.
        unsafe { L::write_lines(line, count, value) }
    }

    #[inline(always)]
    unsafe fn part_written(at: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { write_back(at) }
    }
}

impl<L: CopyLine> CopyLine for Durable<L> {
    const SOURCE_ALIGNMENT: usize = L::SOURCE_ALIGNMENT;
    const BATCH: usize = L::BATCH;

    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8) {
        // SAFETY: passed on from the caller.
        unsafe { L::copy(dst, src) }
    }

    #[inline(always)]
    unsafe fn copy_batch(dst: *mut u8, src: *const u8) {
        // SAFETY: passed on from the caller.
        unsafe { L::copy_batch(dst, src) }
    }

    #[inline(always)]
    unsafe fn copy_lines(dst: *mut u8, src: *const u8, count: usize) {
        // SAFETY: passed on from the caller.
        unsafe { L::copy_lines(dst, src, count) }
    }

    #[inline(always)]
    unsafe fn part_written(at: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { write_back(at) }
    }
}

/// Writes back the line that holds `at` by the best instruction that this processor is known to support. Not inlined,
/// because most ranges start and end at a cache line.
///
/// # Safety
/// `at` is valid for reads.
#[inline(never)]
unsafe fn write_back(at: *const u8) {
    let features = features_known_so_far();
    // SAFETY: the caller vouches for the address; each instruction runs only where it is enabled, and CLFLUSH is
    // part of every x86-64.
    unsafe {
        if features.contains(Features::CLWB) {
            Clwb::flush(at);
        } else if features.contains(Features::CLFLUSHOPT) {
            Clflushopt::flush(at);
        } else {
            Clflush::flush(at);
        }
    }
}
