//! Output of the commands: the two streams, styles, units, tables and progress.

mod progress;
mod table;
mod text;

pub(crate) use bulkmem_measure::engine::units::{
    bytes as size, count, digits, digits as ratio, duration, exact_bytes as exact_size, rate, signed,
};
pub(crate) use progress::Progress;
pub(crate) use table::{Column, Table};
pub(crate) use text::{
    BAD, FAINT, GOOD, HEADING, faint, marked, note, pairs, plural, print, print_json, print_raw, section,
    styled, warn, width, wrapped,
};
