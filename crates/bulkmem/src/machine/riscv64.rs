//! Asks the kernel for the processor's identity and its instructions (riscv_hwprobe, from Linux 6.4 on).
//!
//! Nothing here executes an instruction that may be missing. Kernels that do not know a key say so, and the feature then
//! counts as missing. The kernel reports Zicboz and Zicbom only if it enables them for user space.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::features::Features;
use super::identity::CpuKey;

/// The system call.
const SYS_RISCV_HWPROBE: libc::c_long = 258;

/// Keys and bits (Linux, `arch/riscv/include/uapi/asm/hwprobe.h`).
mod key {
    pub(super) const VENDOR: i64 = 0;
    pub(super) const ARCHITECTURE: i64 = 1;
    pub(super) const IMPLEMENTATION: i64 = 2;
    pub(super) const EXTENSIONS: i64 = 4;
    pub(super) const ZICBOZ_BLOCK: i64 = 6;
    pub(super) const ZICBOM_BLOCK: i64 = 12;

    pub(super) const V: u64 = 1 << 2;
    pub(super) const ZICBOZ: u64 = 1 << 6;
    pub(super) const ZIHINTNTL: u64 = 1 << 29;
    pub(super) const ZICBOM: u64 = 1 << 55;
}

/// In AT_HWCAP: the process may use vectors. riscv_hwprobe does not say if the system or `PR_RISCV_V_SET_CONTROL` forbids them.
const HWCAP_V: u64 = 1 << (b'V' - b'A');

/// A key and its value, as the kernel reads and writes them.
#[repr(C)]
struct Pair {
    key: i64,
    value: u64,
}

/// The values of keys on all processors; 0 for a key that the kernel does not know, and if there is no such system call.
fn probe<const N: usize>(keys: [i64; N]) -> [u64; N] {
    let mut pairs = keys.map(|key| Pair { key, value: 0 });
    // SAFETY: the kernel reads and writes the pairs, as many as are said. No set of processors means all.
    let result = unsafe {
        libc::syscall(
            SYS_RISCV_HWPROBE,
            pairs.as_mut_ptr(),
            N,
            0usize,
            std::ptr::null_mut::<libc::c_void>(),
            0u32,
        )
    };
    pairs.map(|pair| if result == 0 && pair.key >= 0 { pair.value } else { 0 })
}

/// The features by bits and block sizes.
fn decoded(extensions: u64, zero: u64, maintained: u64) -> Features {
    let has = |bit: u64| extensions & bit != 0;
    let mut features = Features::empty();
    features.set(Features::RVV, has(key::V));
    features.set(Features::ZIHINTNTL, has(key::ZIHINTNTL));
    features.set(Features::ZICBOZ, has(key::ZICBOZ) && zero.is_power_of_two());
    // Write-backs step by 64 bytes, and would miss smaller blocks.
    let wide = maintained.is_power_of_two() && maintained >= super::CACHE_LINE as u64;
    features.set(Features::ZICBOM, has(key::ZICBOM) && wide);
    features
}

/// The block of CBO.ZERO; 0 before it is known, and without CBO.ZERO.
static ZERO_BLOCK: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a block of CBO.ZERO, a power of two; 0 if [`features`] has not found the instruction. For kernels, which may not
/// call the system.
#[inline(always)]
pub(crate) fn zero_block() -> usize {
    ZERO_BLOCK.load(Relaxed)
}

/// The instructions that the processor has and the operating system has enabled.
pub(super) fn features() -> Features {
    let [extensions, zero, maintained] = probe([key::EXTENSIONS, key::ZICBOZ_BLOCK, key::ZICBOM_BLOCK]);
    // SAFETY: reads a value that the kernel gave the process.
    let allowed = unsafe { libc::getauxval(libc::AT_HWCAP) } as u64 & HWCAP_V != 0;
    let features = decoded(if allowed { extensions } else { extensions & !key::V }, zero, maintained);
    if features.contains(Features::ZICBOZ) {
        ZERO_BLOCK.store(zero as usize, Relaxed);
    }
    features
}

/// The processor: the numbers of its vendor as family, of the architecture as model, and of the implementation as stepping,
/// each without the bits above the lowest 32.
pub(super) fn key() -> CpuKey<'static> {
    let [family, model, stepping] =
        probe([key::VENDOR, key::ARCHITECTURE, key::IMPLEMENTATION]).map(|number| number as u32);
    CpuKey { vendor: "riscv64", family, model, stepping }
}

/// Empty: the kernel has no name of the processor.
pub(super) fn brand() -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_its_feature() {
        assert_eq!(decoded(0, 64, 64), Features::empty());
        assert_eq!(decoded(key::V, 0, 0), Features::RVV);
        assert_eq!(decoded(key::ZIHINTNTL, 0, 0), Features::ZIHINTNTL);
        assert_eq!(decoded(key::ZICBOZ, 64, 0), Features::ZICBOZ);
        assert_eq!(decoded(key::ZICBOM, 0, 64), Features::ZICBOM);
        assert_eq!(decoded(u64::MAX, 64, 128), Features::OF_ARCHITECTURE);
    }

    #[test]
    fn a_block_that_is_unknown_or_too_small_disables_its_instructions() {
        assert_eq!(decoded(key::ZICBOZ | key::ZICBOM, 0, 0), Features::empty());
        assert_eq!(decoded(key::ZICBOZ, 48, 0), Features::empty());
        assert_eq!(decoded(key::ZICBOM, 0, 32), Features::empty());
    }

    #[test]
    fn an_unknown_key_has_no_value() {
        assert_eq!(probe([1 << 40]), [0]);
    }
}
