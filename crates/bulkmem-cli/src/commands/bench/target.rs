//! The arguments that say what is read from and written to.

use std::path::PathBuf;

use bulkmem_measure::suite::{Attribute, PageSize, TargetOptions};
use clap::Args;

use crate::sizes::size;

/// What is read from and written to, and what may be done to it.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArgs {
    /// `ram`, or a path: a file, a file on DAX, /dev/daxX.Y, a PCI device's resourceN or resourceN_wc
    #[arg(long, value_name = "TARGET", default_value = "ram")]
    pub(crate) target: PathBuf,
    /// Bytes that are worked on; a file that does not exist is made of this size, and gone afterwards [default: all that
    /// exists; of ram, many times the last-level cache]
    #[arg(long, short = 's', visible_alias = "working-set", value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<u64>,
    /// Write over what the target holds
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Leave a file that was made where it is
    #[arg(long)]
    pub(crate) keep: bool,
    /// The cache attribute that the target must have: wb, wc, uc; of a device that does not tell, the one it has
    #[arg(long, value_name = "ATTRIBUTE")]
    pub(crate) attr: Option<Attribute>,
    /// The pages behind ram: 4K, thp (transparent huge pages), 2M, 1G
    #[arg(long, value_name = "SIZE", default_value = "thp")]
    pub(crate) page_size: PageSize,
}

impl TargetArgs {
    pub(crate) fn options(&self) -> TargetOptions {
        TargetOptions {
            target: self.target.clone().into(),
            size: self.size,
            overwrite: self.overwrite,
            keep: self.keep,
            attribute: self.attr,
            page_size: self.page_size,
        }
    }
}
