//! The functions that programs call: `interpose.s`.

use std::arch::global_asm;
use std::mem::offset_of;

use bulkmem::policy::PageAliasing;

use crate::c_library::{TABLE, Table};
use crate::long::{Function, copy, set};

// SAFETY of the assembly: each function keeps the contract of the function whose name it gets. It reads the table, whose
// members are null or functions with the same contract, and jumps; or it calls `copy` or `set` with a function's number,
// which is one of `Function`; or one REP instruction writes the range.
global_asm!(
    include_str!("interpose.s"),
    table = sym TABLE,
    copy_from = const offset_of!(Table, copy_from),
    copy_always_from = const offset_of!(Table, copy_always_from),
    LAST_OF_PAGE = const PageAliasing::PAGE - 1,
    MOST_DISTANCE = const PageAliasing::MOST,
    set_from = const offset_of!(Table, set_from),
    memmove = const offset_of!(Table, memmove),
    mempcpy = const offset_of!(Table, mempcpy),
    memset = const offset_of!(Table, memset),
    chk_fail = const offset_of!(Table, chk_fail),
    copy = sym copy,
    set = sym set,
    MEMCPY = const Function::Memcpy as u32,
    MEMMOVE = const Function::Memmove as u32,
    MEMPCPY = const Function::Mempcpy as u32,
    MEMSET = const Function::Memset as u32,
    BZERO = const Function::Bzero as u32,
    EXPLICIT_BZERO = const Function::ExplicitBzero as u32,
);
