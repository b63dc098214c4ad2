//! Macros for kernels and for the entries of methods.

/// Makes an entry of a weakly ordered method, with a fenced function: `weak!(FillFn, kernel::path, TUNABLES)`. The fence
/// is the architecture's `order_stores`, or the function that is given as a fourth argument.
macro_rules! weak {
    ($type:ident, $kernel:path, $tunables:expr) => {
        weak!($type, $kernel, $tunables, crate::method::primitives::barrier::order_stores)
    };
    (FillFn, $kernel:path, $tunables:expr, $fence:path) => {{
        /// # Safety
        /// See [`FillFn`](crate::method::FillFn).
        unsafe fn fenced(dst: *mut u8, len: usize, byte: u8, parameters: &crate::method::Parameters) {
            // SAFETY: passed on from the caller.
            unsafe { $kernel(dst, len, byte, parameters) }
            $fence();
        }
        Some(crate::method::Entry::<crate::method::FillFn> { unfenced: $kernel, fenced, tunables: $tunables })
    }};
    (CopyFn, $kernel:path, $tunables:expr, $fence:path) => {{
        /// # Safety
        /// See [`CopyFn`](crate::method::CopyFn).
        unsafe fn fenced(dst: *mut u8, src: *const u8, len: usize, parameters: &crate::method::Parameters) {
            // SAFETY: passed on from the caller.
            unsafe { $kernel(dst, src, len, parameters) }
            $fence();
        }
        Some(crate::method::Entry::<crate::method::CopyFn> { unfenced: $kernel, fenced, tunables: $tunables })
    }};
    (PersistFn, $kernel:path, $tunables:expr, $fence:path) => {{
        /// # Safety
        /// See [`PersistFn`](crate::method::PersistFn).
        unsafe fn fenced(start: *const u8, len: usize, parameters: &crate::method::Parameters) {
            // SAFETY: passed on from the caller.
            unsafe { $kernel(start, len, parameters) }
            $fence();
        }
        Some(crate::method::Entry::<crate::method::PersistFn> {
            unfenced: $kernel,
            fenced,
            tunables: $tunables,
        })
    }};
}

/// Makes an entry of a method whose stores are ordered, so that neither function fences.
macro_rules! ordered {
    ($type:ident, $kernel:path, $tunables:expr) => {
        Some(crate::method::Entry::<crate::method::$type> {
            unfenced: $kernel,
            fenced: $kernel,
            tunables: $tunables,
        })
    };
}

/// Makes a fill kernel: a function of type [`FillFn`](crate::method::FillFn), with a target feature if one is given,
/// that calls a function of [`loops`](super::loops). The identifiers between bars are the arguments of the kernel.
macro_rules! fill_kernel {
    ($(#[$feature:meta])? $name:ident = $order:path, |$dst:ident, $len:ident, $byte:ident, $parameters:ident| $($argument:expr),+) => {
        /// # Safety
        /// See [`FillFn`](crate::method::FillFn).
        $(#[$feature])?
        pub(super) unsafe fn $name($dst: *mut u8, $len: usize, $byte: u8, $parameters: &crate::method::Parameters) {
            let _ = $parameters;
            // SAFETY: passed on from the caller.
            unsafe { $order($($argument),+) }
        }
    };
}

/// As `fill_kernel`, for [`CopyFn`](crate::method::CopyFn).
macro_rules! copy_kernel {
    ($(#[$feature:meta])? $name:ident = $order:path, |$dst:ident, $src:ident, $len:ident, $parameters:ident| $($argument:expr),+) => {
        /// # Safety
        /// See [`CopyFn`](crate::method::CopyFn).
        $(#[$feature])?
        pub(super) unsafe fn $name($dst: *mut u8, $src: *const u8, $len: usize, $parameters: &crate::method::Parameters) {
            // SAFETY: passed on from the caller.
            unsafe { $order($($argument),+) }
        }
    };
}

pub(in crate::method) use {copy_kernel, fill_kernel, ordered, weak};
