//! Sizes as text for people.

use humansize::{BINARY, format_size};

/// Formats a size in binary units with at most one decimal: `256 MiB`, `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    format_size(bytes, BINARY.decimal_places(1).decimal_zeroes(0))
}
