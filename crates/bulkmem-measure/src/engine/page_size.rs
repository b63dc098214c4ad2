//! Page sizes by the names that people give them.

use std::fmt;
use std::str::FromStr;

use bulkmem::Pages;
use bulkmem::machine::Machine;
use schemars::JsonSchema;
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::engine::Result;
use crate::engine::error::invalid;

/// The pages behind measured memory: `4K` (the machine's base pages), `thp` (transparent huge ones, where the kernel
/// finds them), `2M` or `1G` (reserved huge pages).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, SerializeDisplay, DeserializeFromStr, JsonSchema,
)]
#[schemars(with = "String")]
pub struct PageSize(pub Pages);

impl PageSize {
    /// Transparent huge pages: what most programs can have without an administrator's help.
    pub const TRANSPARENT: PageSize = PageSize(Pages::Transparent);

    /// Bytes of one page; of a base page for transparent huge ones, of which the kernel promises nothing.
    pub fn bytes(self) -> u64 {
        match self.0 {
            Pages::Explicit(bytes) => bytes,
            Pages::Base | Pages::Transparent => Machine::current().page_size as u64,
        }
    }

    /// Checks that this machine has such pages.
    /// [`MeasureError::Option`](crate::MeasureError::Option) names those that it has.
    pub fn check(self) -> Result<()> {
        let machine = Machine::current();
        let huge_sizes = machine.huge_page_sizes.iter().map(|bytes| Pages::Explicit(*bytes));
        let transparent = machine.transparent_huge_pages.as_deref().filter(|mode| *mode != "never");
        let has = [Pages::Base].into_iter().chain(transparent.map(|_| Pages::Transparent)).chain(huge_sizes);
        if has.clone().any(|pages| pages == self.0) {
            return Ok(());
        }
        let has: Vec<String> = has.map(|pages| PageSize(pages).to_string()).collect();
        invalid("--page-size", format!("this machine has no pages of {self}; it has {}", has.join(", ")))
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        match bytes.trailing_zeros() {
            _ if self.0 == Pages::Transparent => f.write_str("thp"),
            30.. => write!(f, "{}G", bytes >> 30),
            20..30 => write!(f, "{}M", bytes >> 20),
            _ => write!(f, "{}K", bytes >> 10),
        }
    }
}

/// Why a text is no page size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no page size; write 4K, thp, 2M or 1G")]
pub struct BadPageSize(String);

impl FromStr for PageSize {
    type Err = BadPageSize;

    fn from_str(text: &str) -> Result<PageSize, BadPageSize> {
        let bad = || BadPageSize(text.to_owned());
        if text.eq_ignore_ascii_case("thp") {
            return Ok(PageSize::TRANSPARENT);
        }
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            _ => return Err(bad()),
        };
        let number: u64 = digits.parse().map_err(|_| bad())?;
        let bytes = number.checked_mul(1 << shift).filter(|bytes| bytes.is_power_of_two()).ok_or_else(bad)?;
        Ok(PageSize(match bytes == Machine::current().page_size as u64 {
            true => Pages::Base,
            false => Pages::Explicit(bytes),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in ["4K", "thp", "2M", "1G", "64K", "512M"] {
            assert_eq!(name.parse::<PageSize>().unwrap().to_string(), name);
        }
        assert_eq!("2mib".parse::<PageSize>().unwrap().to_string(), "2M");
        assert_eq!("4K".parse::<PageSize>().unwrap().0, Pages::Base);
        for text in ["", "K", "3M", "0K", "2X", "-2M", "99999999999999999999G", "2Mx"] {
            assert!(
                text.parse::<PageSize>().unwrap_err().to_string().contains("4K, thp, 2M or 1G"),
                "{text}"
            );
        }
    }

    #[test]
    fn pages_that_the_machine_lacks_are_refused_with_those_it_has() {
        let refused = PageSize(Pages::Explicit(1 << 40)).check().unwrap_err().to_string();
        assert!(refused.starts_with("--page-size: ") && refused.contains("it has 4K"), "{refused}");
        PageSize(Pages::Base).check().unwrap();
    }
}
