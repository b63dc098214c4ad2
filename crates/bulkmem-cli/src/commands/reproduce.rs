//! `bulkmem reproduce`.

use std::fmt::Write as _;
use std::path::PathBuf;

use bulkmem_measure::engine::{Measure, Results};
use bulkmem_measure::reproduce::{Reproduction, Verdict, measurements};
use clap::Args;

use super::bench::{TargetArgs, remarks};
use super::placement::PlacementArgs;
use super::runner::{self, Files};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{
    self, BAD, Column, FAINT, GOOD, HEADING, Table, digits, exact_size, pairs, section, styled, wrapped,
};
use crate::{plain, results};

/// Compare the published tables with this machine's figures, and check the published conclusions
///
/// Measures what is needed (some minutes; --quick: about one), then shows which published machine is most similar, which
/// conclusions of the sources hold here, and the speed of the policy's choice. With FILES it measures nothing: the figures
/// come from results that `bulkmem bench … --output FILE` saved.
///
/// Figures of persistent memory need some: name it after ram, as in --target ram,/dev/dax0.0 --overwrite.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `provenance`, `alike` (each with `machine`, `distance`: root mean square of logarithms, `same_model`, `reasons`), `conclusions` \
(each with `claim`, `source`, `published`, `here`, `verdict`: holds, fails, not-measured, not-applicable), `choices` (each with `size`, `gb_per_s`, \
`times_string`, `times_movnti`), `figures` (each with `table`, `machine`, `candidate`, `config`, `unit`, `published`, `here`, `against`, \
`published_ratio`, `here_ratio`).")]
pub(crate) struct ReproduceArgs {
    /// Results to take the figures from instead of measuring
    #[arg(value_name = "FILES", conflicts_with_all = ["quick", "output", "target", "overwrite", "size", "keep", "page_size"])]
    pub(crate) files: Vec<PathBuf>,
    /// Take about a minute: smaller total lengths
    #[arg(long)]
    pub(crate) quick: bool,
    /// Also show every published figure next to the one measured here
    #[arg(long)]
    pub(crate) figures: bool,
    /// Save the results to this file, for `report` and `compare`
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) placement: PlacementArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

pub(super) fn run(args: &ReproduceArgs) -> Outcome {
    args.placement.apply()?;
    if args.files.is_empty() {
        let wanted = measurements(args.quick, &args.target.options(None));
        let wanted: Vec<&dyn Measure> = wanted.iter().map(AsRef::as_ref).collect();
        let files = Files { json: args.output.as_deref(), inputs: args.target.paths(), ..Files::default() };
        return runner::run("reproduce", &wanted, true, files, |found| show(args, found, &[found]));
    }
    let mut all = vec![results::load(&args.files[0])?];
    for file in &args.files[1..] {
        let next = results::load(file)?;
        if all[0].provenance.cpu != next.provenance.cpu {
            let reason = format!("{} is from another machine than the file before it", file.display());
            return Err(Failure::usage(reason)
                .help("reproduce compares one machine with the published ones; name files of one machine"));
        }
        all.push(next);
    }
    let rows = all.iter().flat_map(|found| found.rows.clone()).collect();
    let found = Results { rows, ..all[0].clone() };
    show(args, &found, &all.iter().collect::<Vec<_>>())?;
    Ok(Exit::Done)
}

/// Shows the rows of all files, and what is judged by one of them alone.
fn show(args: &ReproduceArgs, found: &Results, files: &[&Results]) -> Result<(), Failure> {
    if args.json {
        return Ok(output::print_json(&Reproduction::of_files(found, files))?);
    }
    let (found, width) = (plain::results(found.clone()), output::width());
    let mut text = text(&Reproduction::of_files(&found, files), args.figures, width);
    let single = found.rows.iter().filter(|row| row.samples.len() < 2).count();
    if single > 0 {
        let note = format!(
            "Note: {single} of {} rows are of a single run: their variation is unknown, and conclusions from them may be due \
             to chance; measure with --runs 5 or more",
            found.rows.len()
        );
        text += &(wrapped(&note, "", width) + "\n");
    }
    Ok(output::print(&(text + &remarks(&found, width)))?)
}

fn text(found: &Reproduction, figures: bool, width: usize) -> String {
    let mut text = format!("{}\n", styled(HEADING, "The published machines, the most similar first"));
    for alike in &found.alike {
        let distance = match alike.distance {
            Some(distance) => format!("behaviour differs by {:.0} %", (distance.exp() - 1.0) * 100.0),
            None => "behaviour not compared".to_owned(),
        };
        let line = format!("{}: {distance}; {}.", alike.machine, alike.reasons.join("; "));
        text += &format!("{}\n", wrapped(&line, "  ", width).trim_start());
    }
    let [holds, fails, open, elsewhere] = found.tally();
    let heading = format!(
        "Published conclusions: {holds} hold here, {fails} do not, {open} not measured, {elsewhere} do not apply"
    );
    _ = writeln!(text, "\n{}", styled(HEADING, heading));
    for it in &found.conclusions {
        let style = match it.verdict {
            Verdict::Holds => GOOD,
            Verdict::Fails => BAD,
            Verdict::NotMeasured | Verdict::NotApplicable => FAINT,
        };
        let claim = format!("{}: {}", styled(style, it.verdict), it.claim);
        let [published, here, source] = [&it.published, &it.here, &it.source].map(String::clone);
        let rows = [("conclusion", claim), ("published", published), ("here", here), ("source", source)];
        text += &(pairs(&rows, width) + "\n");
    }
    let number = |it: Option<f64>| digits(it.unwrap_or(f64::NAN));
    if !found.choices.is_empty() {
        let table = Table::of(&found.choices)
            .column(Column::right("size"), |it| exact_size(it.size))
            .column(Column::right("GB/s"), |it| digits(it.gb_per_s))
            .column(Column::right("× string instruction"), |it| number(it.times_string))
            .column(Column::right("× MOVNTI"), |it| number(it.times_movnti));
        text += &section("Clearing by the policy's choice", &table.render(width), width);
    }
    if !figures {
        return text + "--figures shows all published figures next to those measured here.\n";
    }
    for figures in found.figures.chunk_by(|a, b| (&a.table, &a.unit) == (&b.table, &b.unit)) {
        let table = Table::of(figures)
            .column(Column::left("machine"), |it| it.machine.clone())
            .column(Column::left("configuration").optional(2), |it| it.config.clone())
            .column(Column::left("candidate"), |it| it.candidate.clone())
            .column(Column::right("published"), |it| digits(it.published))
            .column(Column::right("×"), |it| number(it.published_ratio))
            .column(Column::right("here"), |it| number(it.here))
            .column(Column::right("×"), |it| number(it.here_ratio));
        let heading = format!("{}: {}", figures[0].table, figures[0].unit);
        text += &section(&heading, &table.render(width), width);
    }
    text + "× is the ratio to the first candidate of a configuration; above 1 is better.\n"
}
