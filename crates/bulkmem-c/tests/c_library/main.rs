//! The C library as it is installed: C and C++ programs, the header, the manual pages, the examples.
//!
//! Compilers and tools that are not installed are skipped, by name.

mod examples;
mod fio;
mod header;
mod manual;
mod pool;
mod programs;
mod toolchain;
