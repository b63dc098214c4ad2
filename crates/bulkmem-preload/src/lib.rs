//! A library for `LD_PRELOAD` that replaces memcpy, memset and their relatives. `scripts/link-c.sh` makes
//! `libbulkmem_preload.so` from it.
//!
//! Short calls jump to the C library's function; long ones go to bulkmem. docs/preload.md says when to use it.
//!
//! - The functions that programs call are assembly (`interpose.s`): they work before the library is relocated, because
//!   other libraries' IFUNC resolvers may call them, and use no stack for short lengths.
//! - Nothing in this library may call them: its own calls of memcpy would come back without end. The script renames such
//!   calls to `c_library_…`, and only then gives `preload_…` the names of the C library.
//! - The policy is read once, when the library is loaded (`load_time`). No call makes a system call afterwards, unless
//!   `BULKMEM_POPULATE=on` allows madvise.

#![cfg(all(target_arch = "x86_64", target_pointer_width = "64", target_os = "linux", target_env = "gnu"))]

mod c_library;
mod clock;
mod histogram;
mod interpose;
mod load_time;
mod long;
