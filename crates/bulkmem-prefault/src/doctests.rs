//! The pages that show code of this crate, compiled and run as documentation tests.

#[doc = include_str!("../README.md")]
struct Readme;
