//! `bulkmem methods`.

use bulkmem::Operation;
use bulkmem::machine::Features;
use bulkmem::method::{self, Method, Ordering};
use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Outcome};
use crate::output::{self, BAD, Column, GOOD, Table, exact_size, faint, section, styled};
use crate::parsers::operation;

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
    if args.json {
        output::print_json(&rows)?;
    } else {
        output::print(&text(&rows, output::width()))?;
    }
    Ok(Exit::Done)
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
#[derive(Serialize, PartialEq)]
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
            ordering: match method.ordering {
                Ordering::Ordered => "ordered",
                Ordering::Weak => "weak",
            },
            requires: feature_names(method.requires),
            available: method.available(),
            missing: feature_names(method.requires - bulkmem::machine::features()),
            tunables: tunables(method),
        }
    }
}

fn tunables(method: &Method) -> Vec<TunableRow> {
    let mut rows: Vec<TunableRow> = Vec::new();
    for operation in Operation::ALL {
        for tunable in method.tunables(operation).unwrap_or_default() {
            let row = |operations| TunableRow {
                name: tunable.name,
                operations,
                smallest: tunable.range.0,
                largest: tunable.range.1,
                step: tunable.step,
                default: tunable.default,
                search: tunable.search,
            };
            match rows.iter_mut().find(|known| **known == row(known.operations.clone())) {
                Some(known) => known.operations.push(operation),
                None => rows.push(row(vec![operation])),
            }
        }
    }
    rows
}

fn text(rows: &[Row], width: usize) -> String {
    let mut table = Table::new([
        Column::left("method"),
        Column::left("operations").prose().optional(5),
        Column::left("cache").optional(4),
        Column::left("fence").optional(3),
        Column::left("instructions").optional(1),
        Column::left("here"),
        Column::left("what it does").prose().optional(2),
    ]);
    for row in rows {
        table.row([
            row.name.to_owned(),
            join(&row.operations),
            row.effect.to_owned(),
            if row.ordering == "weak" { "needed" } else { "none" }.to_owned(),
            row.requires.join(" "),
            if row.available {
                styled(GOOD, "yes")
            } else {
                styled(BAD, format!("no {}", row.missing.join(" ")))
            },
            row.summary.to_owned(),
        ]);
    }
    let mut text = table.render(width) + "\n";
    if rows.iter().any(|row| !row.tunables.is_empty()) {
        text += &section("Tunables", &tunable_table(rows).render(width), width);
    }
    let here = rows.iter().filter(|row| row.available).count();
    text + &faint(&format!("{here} of {} methods can run on this machine.", rows.len()), width)
}

/// Lists the tunables; methods with equal ones share a line.
fn tunable_table(rows: &[Row]) -> Table {
    let mut lines: Vec<([String; 6], Vec<&str>)> = Vec::new();
    for row in rows {
        for tunable in &row.tunables {
            let value =
                |value: u32| if tunable.largest >= 64 { exact_size(value.into()) } else { value.to_string() };
            let cells = [
                tunable.name.to_owned(),
                value(tunable.smallest),
                value(tunable.largest),
                value(tunable.step),
                value(tunable.default),
                join(&tunable.operations),
            ];
            match lines.iter_mut().find(|(known, _)| *known == cells) {
                Some((_, methods)) => methods.push(row.name),
                None => lines.push((cells, vec![row.name])),
            }
        }
    }
    lines.sort();
    let mut table = Table::new([
        Column::left("tunable"),
        Column::right("from"),
        Column::right("to"),
        Column::right("step").optional(2),
        Column::right("default"),
        Column::left("operations").prose().optional(1),
        Column::left("methods").prose(),
    ]);
    for (cells, methods) in lines {
        table.row(cells.into_iter().chain([methods.join(" ")]));
    }
    table
}

fn join(operations: &[Operation]) -> String {
    operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(" ")
}

/// Returns the names of instruction sets, in lower case as in /proc/cpuinfo.
pub(super) fn feature_names(features: Features) -> Vec<String> {
    features.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}
