//! The arguments that say what is read from and written to.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bulkmem_measure::engine::PageSize;
use bulkmem_measure::measurements::{Attribute, Attributes, BadAttribute, Target, TargetOptions};
use clap::Args;

use crate::parsers::size;

/// What is read from and written to, and what may be done to it.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArgs {
    /// `ram`, or a path: a file, a file on DAX, /dev/daxX.Y, a PCI device's resourceN or resourceN_wc [default: ram; with
    /// --attr /dev/bulkmem, the kernel module's]
    #[arg(long, value_name = "TARGET")]
    target: Option<PathBuf>,
    /// Bytes that are worked on; a file that does not exist is made of this size, and gone afterwards [default: all that
    /// exists; of memory, many times the last-level cache]
    #[arg(long, short = 's', visible_alias = "working-set", value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Write over what the target holds
    #[arg(long)]
    overwrite: bool,
    /// Leave a file that was made where it is
    #[arg(long)]
    keep: bool,
    /// The pages behind ram: 4K, thp (transparent huge pages), 2M, 1G; behind the kernel module's memory 4K or 2M
    #[arg(long, value_name = "SIZE", default_value = "thp")]
    page_size: PageSize,
}

impl TargetArgs {
    /// The target, with the attribute that it must have.
    pub(crate) fn options(&self, attribute: Option<Attribute>) -> TargetOptions {
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
            page_size: self.page_size,
        }
    }

    /// The path, if one is named.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.target.as_deref()
    }

    /// Whether it is another than memory of the kernel module.
    pub(crate) fn names_another(&self) -> bool {
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
    type Err = BadAttribute;

    fn from_str(text: &str) -> Result<AttributeArg, BadAttribute> {
        if text == "all" { Ok(AttributeArg::All) } else { text.parse().map(AttributeArg::One) }
    }
}

/// The attributes that were asked for.
pub(crate) fn attributes(asked: &[AttributeArg]) -> Attributes {
    if asked.is_empty() {
        return Attributes::Own;
    }
    let one = |asked: &AttributeArg| match asked {
        AttributeArg::All => None,
        AttributeArg::One(attribute) => Some(*attribute),
    };
    asked.iter().map(one).collect::<Option<Vec<Attribute>>>().map_or(Attributes::All, Attributes::Named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_all_whatever_stands_beside_it() {
        let of = |texts: &[&str]| {
            attributes(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<AttributeArg>>())
        };
        assert_eq!(of(&[]), Attributes::Own);
        assert_eq!(of(&["uc", "wb"]), Attributes::Named(vec![Attribute::Uc, Attribute::Wb]));
        assert_eq!(of(&["uc", "all"]), Attributes::All);
        assert!("most".parse::<AttributeArg>().is_err());
    }
}
