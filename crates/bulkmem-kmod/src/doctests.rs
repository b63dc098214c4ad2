//! The pages that show code of this crate, compiled and run as documentation tests.

#[doc = include_str!("../README.md")]
struct Readme;

#[doc = include_str!("../../../docs/kernel/README.md")]
struct Kernel;
