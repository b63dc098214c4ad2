//! `bulkmem methods`.

use bulkmem::Operation;
use bulkmem::machine::Features;
use bulkmem::method::{self, Method, Ordering, Tunable};
use clap::Args;
use serde::Serialize;

use crate::failure::{Outcome, show};
use crate::output::{BAD, Column, GOOD, Table, exact_size, faint, section, styled};
use crate::parsers::operation;
use crate::results::group;

/// Show every method of this library, and which of them can run here
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: a list of methods, each with `name`, `summary`, `operations`, `effect` (allocates, bypasses, evicts, mixed), `ordering` \
(ordered, weak), `requires`, `available`, `missing`, `tunables` (each with `name`, `operations`, `smallest`, `largest`, `step`, \
`default`, `search`).")]
pub(crate) struct MethodsArgs {
    /// Show only methods that support this operation
    #[arg(long, value_name = "OPERATION", value_parser = operation())]
    op: Option<Operation>,
    /// Show only methods that can run on this machine
    #[arg(long)]
    available: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &MethodsArgs) -> Outcome {
    let rows: Vec<Row> = method::all()
        .filter(|method| args.op.is_none_or(|operation| method.does(operation)))
        .filter(|method| !args.available || method.available())
        .map(Row::of)
        .collect();
    show(args.json, &rows, |width| text(&rows, width))
}

/// A method, as `--json` prints it.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    summary: &'static str,
    operations: Vec<Operation>,
    effect: &'static str,
    ordering: &'static str,
    requires: Vec<String>,
    available: bool,
    missing: Vec<String>,
    tunables: Vec<TunableRow>,
}

/// A tunable that is the same for several operations.
#[derive(Serialize)]
struct TunableRow {
    name: &'static str,
    operations: Vec<Operation>,
    smallest: u32,
    largest: u32,
    step: u32,
    default: u32,
    search: &'static [u32],
}

impl Row {
    fn of(method: &'static Method) -> Row {
        Row {
            name: method.name,
            summary: method.summary,
            operations: Operation::ALL.into_iter().filter(|operation| method.does(*operation)).collect(),
            effect: method.effect.name(),
            ordering: if method.ordering == Ordering::Weak { "weak" } else { "ordered" },
            requires: feature_names(method.requires),
            available: method.available(),
            missing: feature_names(method.requires - bulkmem::machine::features()),
            tunables: tunables(method),
        }
    }
}

fn tunables(method: &Method) -> Vec<TunableRow> {
    let of =
        |operation| method.tunables(operation).unwrap_or_default().iter().map(move |it| (*it, operation));
    let groups = group(Operation::ALL.into_iter().flat_map(of), |(tunable, _)| *tunable);
    let row = |(tunable, uses): (Tunable, Vec<_>)| {
        let Tunable { name, range: (smallest, largest), step, default, search } = tunable;
        let operations = uses.into_iter().map(|(_, operation)| operation).collect();
        TunableRow { name, operations, smallest, largest, step, default, search }
    };
    groups.into_iter().map(row).collect()
}

fn text(rows: &[Row], width: usize) -> String {
    let table = Table::of(rows)
        .column(Column::left("method"), |row| row.name.to_owned())
        .column(Column::left("operations").prose().optional(5), |row| join(&row.operations))
        .column(Column::left("cache").optional(4), |row| row.effect.to_owned())
        .column(Column::left("fence").optional(3), |row| {
            if row.ordering == "weak" { "needed" } else { "none" }.to_owned()
        })
        .column(Column::left("instructions").optional(1), |row| row.requires.join(" "))
        .column(Column::left("here"), |row| match row.available {
            true => styled(GOOD, "yes"),
            false => styled(BAD, format!("no {}", row.missing.join(" "))),
        })
        .column(Column::left("what it does").prose().optional(2), |row| row.summary.to_owned());
    let mut text = table.render(width) + "\n";
    if rows.iter().any(|row| !row.tunables.is_empty()) {
        text += &section("Tunables", &tunable_table(rows, width), width);
    }
    let here = rows.iter().filter(|row| row.available).count();
    text + &faint(&format!("{here} of {} methods can run on this machine.", rows.len()), width)
}

/// Lists the tunables; methods with equal ones share a line.
fn tunable_table(rows: &[Row], width: usize) -> String {
    let cells = |it: &TunableRow| {
        let [smallest, largest, step, default] = [it.smallest, it.largest, it.step, it.default]
            .map(|value| if it.largest >= 64 { exact_size(value.into()) } else { value.to_string() });
        [it.name.to_owned(), smallest, largest, step, default, join(&it.operations)]
    };
    let all = rows.iter().flat_map(|row| row.tunables.iter().map(|it| (cells(it), row.name)));
    let mut lines = group(all, |(cells, _)| cells.clone());
    lines.sort();
    Table::of(lines)
        .column(Column::left("tunable"), |(cells, _)| cells[0].clone())
        .column(Column::right("from"), |(cells, _)| cells[1].clone())
        .column(Column::right("to"), |(cells, _)| cells[2].clone())
        .column(Column::right("step").optional(2), |(cells, _)| cells[3].clone())
        .column(Column::right("default"), |(cells, _)| cells[4].clone())
        .column(Column::left("operations").prose().optional(1), |(cells, _)| cells[5].clone())
        .column(Column::left("methods").prose(), |(_, uses)| {
            uses.iter().map(|(_, method)| *method).collect::<Vec<_>>().join(" ")
        })
        .render(width)
}

fn join(operations: &[Operation]) -> String {
    operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(" ")
}

/// Returns the names of instruction sets, in lower case as in /proc/cpuinfo.
pub(super) fn feature_names(features: Features) -> Vec<String> {
    features.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}
