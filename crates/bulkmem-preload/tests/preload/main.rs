//! `libbulkmem_preload.so` as it is installed: symbols, every function against an oracle, situations that programs bring
//! about, other C libraries, and Debian's programs. Skips what is not installed, by name.

#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod functions;
mod policy;
mod programs;
mod situations;
mod symbols;
mod toolchain;
