//! What [`lines`](super::lines) needs from each architecture: writes of less than a line, prefetches, and barriers.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::{barrier, part, prefetch};
#[cfg(target_arch = "riscv64")]
pub(super) use riscv64::{barrier, part, prefetch};
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{barrier, part, prefetch};
