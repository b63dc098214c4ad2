//! `bulkmem methods`: the table of methods.

use crate::parsers::operation;
use bulkmem::Operation;
use bulkmem::machine::Features;
use bulkmem::method::{self, Method, Ordering, Tunable};
use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Outcome};
use crate::output::{self, BAD, Column, FAINT, GOOD, Table, exact_size, styled};

#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: a list; each row with `name`, `summary`, `operations`, `effect` (allocates, bypasses, evicts, mixed), `ordering` \
(ordered, weak), `requires`, `available`, `missing`, `tunables` (each with `name`, `operations`, `smallest`, `largest`, `step`, \
`default`, `search`).")]
pub(crate) struct MethodsArgs {
    /// Only methods that can do this operation
    #[arg(long, value_name = "OPERATION", value_parser = operation())]
    pub(crate) op: Option<Operation>,
    /// Only methods that can run on this machine
    #[arg(long)]
    pub(crate) available: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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

/// A row of the table, as `--json` prints it.
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
    tunables: Vec<KnobRow>,
}

#[derive(Serialize)]
struct KnobRow {
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
            ordering: ordering(method.ordering),
            requires: feature_names(method.requires),
            available: method.available(),
            missing: feature_names(method.requires - bulkmem::machine::features()),
            tunables: tunables(method),
        }
    }
}

/// The tunables of a method over all its operations; those that are the same for several stand once.
fn tunables(method: &Method) -> Vec<KnobRow> {
    let mut rows: Vec<(Tunable, KnobRow)> = Vec::new();
    for operation in Operation::ALL {
        for tunable in method.tunables(operation).unwrap_or_default() {
            match rows.iter_mut().find(|(known, _)| known == tunable) {
                Some((_, row)) => row.operations.push(operation),
                None => rows.push((
                    *tunable,
                    KnobRow {
                        name: tunable.name,
                        operations: vec![operation],
                        smallest: tunable.range.0,
                        largest: tunable.range.1,
                        step: tunable.step,
                        default: tunable.default,
                        search: tunable.search,
                    },
                )),
            }
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
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
            if row.ordering == ordering(Ordering::Weak) { "needed" } else { "none" }.to_owned(),
            row.requires.join(" "),
            if row.available {
                styled(GOOD, "yes")
            } else {
                styled(BAD, format!("no {}", row.missing.join(" ")))
            },
            row.summary.to_owned(),
        ]);
    }
    let mut text = table.render(width);
    if rows.iter().any(|row| !row.tunables.is_empty()) {
        text += &format!("\n{}\n{}", styled(output::HEADING, "Tunables"), knob_table(rows).render(width));
    }
    let here = rows.iter().filter(|row| row.available).count();
    text + &format!(
        "\n{}\n",
        styled(FAINT, format!("{here} of {} methods can run on this machine.", rows.len()))
    )
}

/// The tunables, those that are alike in one row.
fn knob_table(rows: &[Row]) -> Table {
    let mut alike: Vec<([String; 6], Vec<&str>)> = Vec::new();
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
            match alike.iter_mut().find(|(known, _)| *known == cells) {
                Some((_, methods)) => methods.push(row.name),
                None => alike.push((cells, vec![row.name])),
            }
        }
    }
    alike.sort();
    let mut table = Table::new([
        Column::left("tunable"),
        Column::right("from"),
        Column::right("to"),
        Column::right("steps of").optional(2),
        Column::right("default"),
        Column::left("of").prose().optional(1),
        Column::left("methods").prose(),
    ]);
    for (cells, methods) in alike {
        table.row(cells.into_iter().chain([methods.join(" ")]));
    }
    table
}

fn join(operations: &[Operation]) -> String {
    operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(" ")
}

/// Whether a method needs a fence, in a word.
fn ordering(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Ordered => "ordered",
        Ordering::Weak => "weak",
    }
}

/// The names of the instruction sets, in lower case as in /proc/cpuinfo.
pub(super) fn feature_names(features: Features) -> Vec<String> {
    features.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}
