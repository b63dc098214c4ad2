//! The root of the module's files.

use std::path::PathBuf;

use bulkmem_kmod::Module;
use clap::Args;

/// The folder above /sys, /proc, /etc and /lib, for tests.
#[derive(Args, Clone, Debug)]
pub(super) struct Root {
    /// The folder above /sys, /proc, /etc and /lib
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(super) root: PathBuf,
}

impl Root {
    pub(super) fn module(&self) -> Module {
        Module::with_root(&self.root)
    }
}
