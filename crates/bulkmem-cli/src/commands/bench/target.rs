//! Arguments that name the memory that is read and written, and its cache attributes.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bulkmem_measure::measurements::{Attribute, Attributes, Target, TargetOptions, UnknownAttribute};
use clap::Args;

use super::common::PageSizeArg;
use crate::parsers::size;

/// The memory that is read and written.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArgs {
    /// `ram`, or a path: a file, a file on DAX, /dev/daxX.Y, a PCI device's resourceN or resourceN_wc [default: ram; with
    /// --attr /dev/bulkmem, the kernel module's device]
    #[arg(long, value_name = "TARGET")]
    target: Option<PathBuf>,
    /// Bytes to work on; a file that does not exist is created with this size and removed afterwards [default: all of the
    /// file or device; of memory, many times the last-level cache]
    #[arg(long, short = 's', visible_alias = "working-set", value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Overwrite an existing target
    #[arg(long)]
    overwrite: bool,
    /// Keep a file that was created
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    pages: PageSizeArg,
}

impl TargetArgs {
    /// Returns the target, with the attribute that it must have.
    pub(super) fn options(&self, attribute: Option<Attribute>) -> TargetOptions {
        TargetOptions {
            target: match (&self.target, attribute) {
                (Some(path), _) => path.clone().into(),
                (None, Some(_)) => Target::Module,
                (None, None) => Target::Ram,
            },
            size: self.size,
            overwrite: self.overwrite,
            keep: self.keep,
            attribute,
            page_size: self.pages.page_size,
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.target.as_deref()
    }

    /// Returns true if a target other than memory of the kernel module is named.
    pub(super) fn names_another(&self) -> bool {
        self.target.as_ref().is_some_and(|path| Target::from(path.clone()) != Target::Module)
    }
}

/// A cache attribute, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttributeArg {
    All,
    One(Attribute),
}

impl FromStr for AttributeArg {
    type Err = UnknownAttribute;

    fn from_str(text: &str) -> Result<AttributeArg, UnknownAttribute> {
        if text == "all" { Ok(AttributeArg::All) } else { text.parse().map(AttributeArg::One) }
    }
}

/// Turns attributes from the command line into those of a measurement.
pub(super) fn attributes(given: &[AttributeArg]) -> Attributes {
    if given.is_empty() {
        return Attributes::Own;
    }
    let one = |attribute: &AttributeArg| match attribute {
        AttributeArg::All => None,
        AttributeArg::One(attribute) => Some(*attribute),
    };
    given.iter().map(one).collect::<Option<Vec<Attribute>>>().map_or(Attributes::All, Attributes::Named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_includes_every_other_attribute() {
        let of = |texts: &[&str]| {
            attributes(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<AttributeArg>>())
        };
        assert_eq!(of(&[]), Attributes::Own);
        assert_eq!(of(&["uc", "wb"]), Attributes::Named(vec![Attribute::Uc, Attribute::Wb]));
        assert_eq!(of(&["uc", "all"]), Attributes::All);
        assert!("most".parse::<AttributeArg>().is_err());
    }
}
