//! `bulkmem bench numa`.

use bulkmem::Operation;
use bulkmem_measure::engine::{Measurement, Results, Row, distinct};
use bulkmem_measure::measurements::{NumaOptions, local_of};
use clap::Args;

use super::common::{Common, PageSizeArg};
use super::rows::{MARKS, competes, deviation, group_by, is_best, name, remarks};
use crate::failure::Outcome;
use crate::output::{Column, Table, digits, exact_size, faint, marked, section};
use crate::parsers::{operation, size, threads};

/// Local and remote memory: each NUMA node's memory from the processors of each
///
/// Runs on the processors of each NUMA node in turn, with memory of each node, and shows the speed of remote memory relative
/// to that of local memory. A copy has one side on the other node and one side at hand. The pages are bound to their nodes
/// and checked before anything is timed. On a machine with one node, it measures local memory and says that there is no
/// other.
///
/// To run any other measurement on some processors or with the memory of some nodes, use --cpu and --node.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How to read it: a table for each operation and for the processors of each node. A column is the node of the memory, for copies \
`source to destination`; ×0.60 means 0.60 times the speed of the same candidate with local memory, by median. Nodes without \
processors (CXL, persistent memory as memory) have columns and no table, nodes without memory a table and no column. --node and \
--cpu select nodes.

JSON: `rows` as in all measurements; `metric` is `bandwidth`; `config` has `operation`, `size`, `page_size`, `processor_node`, \
`memory_node` (of the destination), for copies `source_node`, and if not 1 `threads`.

The sources used machines with two sockets, but published no figures of remote memory.")]
pub(crate) struct NumaArgs {
    /// Operations: clear, fill, copy
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = operation(), default_value = "clear,fill,copy")]
    op: Vec<Operation>,
    /// Size of the memory [default: 128M, more if the last-level cache is large, less if a node has too little memory]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Number of threads that share the work
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    threads: usize,
    #[command(flatten)]
    pages: PageSizeArg,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &NumaArgs) -> Outcome {
    let default = NumaOptions::default();
    let options = NumaOptions {
        operations: distinct(args.op.clone()),
        size: args.size.unwrap_or(default.size),
        page_size: args.pages.page_size,
        threads: args.threads,
        candidates: args.common.candidates(),
        ..default
    };
    args.common.outputs.run(&[], &[&options], &view)
}

pub(super) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Numa).collect();
    let groups = group_by(rows.iter().copied(), |row| (row.config.operation, row.config.processor_node));
    let mut text = String::new();
    for here in groups {
        let config = &here[0].config;
        let heading = format!(
            "numa: {} of {} by processors of node {}: GB/s, and × local memory",
            config.operation.map_or("", Operation::name),
            exact_size(config.size.unwrap_or_default()),
            config.processor_node.unwrap_or_default(),
        );
        let chosen = distinct(here.iter().filter_map(|row| row.chosen.as_deref())).join(", ");
        let chosen = faint(&format!("The policy's choice: {chosen}."), width);
        text += &section(&heading, &(table(&here).continued(width) + &chosen), width);
    }
    let marks = if rows.is_empty() { String::new() } else { faint(MARKS, width) };
    text + &marks + &remarks(found, width)
}

/// Shows candidates down, and the nodes of the memory across.
fn table(rows: &[&Row]) -> Table {
    let candidates = distinct(rows.iter().map(|row| name(row)));
    let mut table = Table::default();
    table.column(Column::left(""), candidates.iter().cloned());
    for column in group_by(rows.iter().copied(), |row| (row.config.memory_node, row.config.source_node)) {
        let node = |node: Option<usize>| node.unwrap_or_default();
        let (memory, source) = (node(column[0].config.memory_node), column[0].config.source_node);
        let title = source.map_or(format!("node {memory} "), |source| format!("{source} to {memory} "));
        let cells = candidates.iter().map(|candidate| {
            let Some(row) = column.iter().find(|row| name(row) == *candidate) else {
                return "– ".to_owned();
            };
            let ratio = local_of(rows, row).map(|local| row.stats.median / local.stats.median);
            let ratio = ratio.map(|ratio| format!(" ×{ratio:.2}")).unwrap_or_default();
            let text = format!("{} {}{ratio}", digits(row.stats.mean), deviation(row).trim_end());
            marked(&text, competes(row) && is_best(&column, row))
        });
        let cells: Vec<String> = cells.collect();
        table.column(Column::right(title), cells);
    }
    table
}
