//! `libpmem.so.1` as it is installed, compared with Debian's: symbols, a C program, fio, pmempool, libpmemobj.
//!
//! Skips what is not installed, by name.

#![cfg(target_arch = "x86_64")]

mod clients;
mod objects;
mod programs;
mod symbols;
mod toolchain;
