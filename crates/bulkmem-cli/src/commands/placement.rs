//! `--cpu` and `--node`, which every command that measures has.

use bulkmem_measure::engine::{NumberList, Placement};
use clap::Args;

use crate::failure::{Failure, measure_failure};

#[derive(Args, Debug)]
pub(crate) struct PlacementArgs {
    /// Run on these processors only: numbers and ranges, such as 0-3,8
    #[arg(long, value_name = "LIST", global = true)]
    cpu: Option<NumberList>,
    /// Take memory from these NUMA nodes only, such as 1 or 0-1; files and devices stay where they are
    #[arg(long, value_name = "LIST", global = true)]
    node: Option<NumberList>,
}

impl PlacementArgs {
    /// Restricts this process, and those that it starts, before anything is measured.
    pub(crate) fn apply(&self) -> Result<(), Failure> {
        let (processors, nodes) = (self.cpu.clone(), self.node.clone());
        Placement { processors, nodes }.apply().map_err(measure_failure)
    }
}
