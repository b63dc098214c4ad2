//! `bulkmem reproduce`.

use clap::Args;
use std::fmt::Write as _;
use std::path::PathBuf;

use bulkmem_measure::engine::{Measure, Results};
use bulkmem_measure::reproduce::{Conclusion, PublishedFigure, Reproduction, Verdict, measurements};

use super::bench::remarks;
use super::runner::{self, Files};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, BAD, Column, FAINT, GOOD, HEADING, Table, digits, exact_size, styled, wrapped};
use crate::{plain, results};

/// Lay the published tables beside this machine's figures, and judge what they conclude
///
/// Measures what is needed (some minutes; --quick: about one), then shows which published machine is most alike, which
/// conclusions of the sources hold here, and what bulkmem's own choice does. With FILES nothing is measured: the
/// figures come from results that `bulkmem bench … --output FILE` saved.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `evidence`, `alike` (each with `machine`, `distance`: root mean square of logarithms, `same_model`, `reasons`), `conclusions` \
(each with `claim`, `source`, `published`, `here`, `verdict`: holds, fails, not-measured), `choices` (each with `size`, `gb_per_s`, \
`times_string`, `times_movnti`), `figures` (each with `table`, `machine`, `candidate`, `config`, `unit`, `published`, `here`, `against`, \
`published_ratio`, `here_ratio`).")]
pub(crate) struct ReproduceArgs {
    /// Results to take the figures from instead of measuring
    #[arg(value_name = "FILES")]
    pub(crate) files: Vec<PathBuf>,
    /// Take about a minute: smaller extents
    #[arg(long)]
    pub(crate) quick: bool,
    /// Show every published figure beside ours, too
    #[arg(long)]
    pub(crate) figures: bool,
    /// Save what is measured to this file, for `report` and `compare`
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How wide the words for verdicts are.
const VERDICT: usize = 14;

pub(super) fn run(args: &ReproduceArgs) -> Outcome {
    if args.files.is_empty() {
        let wanted = measurements(args.quick);
        let wanted: Vec<&dyn Measure> = wanted.iter().map(AsRef::as_ref).collect();
        let files = Files { json: args.output.as_deref(), ..Files::default() };
        return runner::run("reproduce", &wanted, true, files, |found| show(args, found));
    }
    if args.output.is_some() || args.quick {
        return Err(Failure::usage("--output and --quick are for measuring; with files nothing is measured"));
    }
    let mut found: Option<Results> = None;
    for file in &args.files {
        let next = results::load(file)?;
        match &mut found {
            None => found = Some(next),
            Some(found) if found.provenance.cpu == next.provenance.cpu => found.rows.extend(next.rows),
            Some(_) => {
                return Err(Failure::usage(format!(
                    "{} is of another machine than the file before",
                    file.display()
                ))
                .help("reproduce compares one machine with the published ones; name files of one machine"));
            }
        }
    }
    let found = found.expect("there is a file");
    show(args, &found)?;
    Ok(Exit::Done)
}

fn show(args: &ReproduceArgs, found: &Results) -> Result<(), Failure> {
    if args.json {
        output::print_json(&Reproduction::of(found))?;
    } else {
        let (found, width) = (plain::results(found), output::width());
        let text = text(&Reproduction::of(&found), args.figures, width);
        output::print(&(text + &single(&found, width) + &remarks(&found, width)))?;
    }
    Ok(())
}

/// What must be known of figures of a single run.
fn single(found: &Results, width: usize) -> String {
    let count = found.rows.iter().filter(|row| row.samples.len() < 2).count();
    if count == 0 {
        return String::new();
    }
    let note = format!(
        "Note: {count} of {} rows are of a single run: how much they vary is not known, and what follows from them may be \
         chance; measure with --runs 5 or more",
        found.rows.len()
    );
    wrapped(&note, "", width) + "\n"
}

/// The reproduction for people.
fn text(found: &Reproduction, figures: bool, width: usize) -> String {
    let mut text = format!("{}\n", styled(HEADING, "The published machines, the most alike first"));
    for alike in &found.alike {
        let distance = match alike.distance {
            Some(distance) => format!("behaviour differs by {:.0} %", (distance.exp() - 1.0) * 100.0),
            None => "behaviour not compared".to_owned(),
        };
        let line = format!("{}: {distance}; {}.", alike.machine, alike.reasons.join("; "));
        text += &hanging("", &line, 2, width);
    }
    let [holds, fails, open] = found.tally();
    let heading =
        format!("What the sources conclude: {holds} hold here, {fails} do not, {open} not measured");
    _ = writeln!(text, "\n{}", styled(HEADING, heading));
    for conclusion in &found.conclusions {
        text += &of_conclusion(conclusion, width);
    }
    if !found.choices.is_empty() {
        _ = writeln!(text, "\n{}", styled(HEADING, "What bulkmem's own choice does here: clearing"));
        let mut table = Table::new([
            Column::right("size"),
            Column::right("GB/s"),
            Column::right("× string instruction"),
            Column::right("× MOVNTI"),
        ]);
        for choice in &found.choices {
            let times = |ratio: Option<f64>| output::ratio(ratio.unwrap_or(f64::NAN));
            table.row([
                exact_size(choice.size),
                digits(choice.gb_per_s),
                times(choice.times_string),
                times(choice.times_movnti),
            ]);
        }
        text += &table.render(width);
    }
    if figures {
        for table in found.figures.chunk_by(|a, b| (&a.table, &a.unit) == (&b.table, &b.unit)) {
            _ = writeln!(text, "\n{}", styled(HEADING, format!("{}: {}", table[0].table, table[0].unit)));
            text += &of_table(table).render(width);
        }
        text += "\n× is how many times as good as the first of its place.\n";
    } else {
        text += "\nEvery published figure beside ours: --figures.\n";
    }
    text
}

fn of_conclusion(conclusion: &Conclusion, width: usize) -> String {
    let (word, style) = match conclusion.verdict {
        Verdict::Holds => ("holds", GOOD),
        Verdict::Fails => ("does not hold", BAD),
        Verdict::NotMeasured => ("not measured", FAINT),
    };
    let mut text = hanging(word, &conclusion.claim, VERDICT, width).replacen(word, &styled(style, word), 1);
    text += &hanging("", &format!("published: {}", conclusion.published), VERDICT, width);
    text += &hanging("", &format!("here: {}", conclusion.here), VERDICT, width);
    text + &hanging("", &format!("({})", conclusion.source), VERDICT, width)
}

/// A paragraph whose first line starts with a word, the others under its text.
fn hanging(word: &str, paragraph: &str, indent: usize, width: usize) -> String {
    let blank = " ".repeat(indent);
    let wrapped = wrapped(paragraph, &blank, width);
    let rest = wrapped.strip_prefix(&blank).unwrap_or(&wrapped);
    let first = if word.is_empty() && indent == 2 { String::new() } else { format!("{word:indent$}") };
    format!("{first}{rest}\n")
}

fn of_table(figures: &[PublishedFigure]) -> Table {
    let mut table = Table::new([
        Column::left("machine"),
        Column::left("place").optional(2),
        Column::left("candidate"),
        Column::right("published"),
        Column::right("×"),
        Column::right("here"),
        Column::right("×"),
    ]);
    let number = |value: Option<f64>| value.map_or("–".to_owned(), digits);
    for figure in figures {
        table.row([
            figure.machine.clone(),
            figure.config.clone(),
            figure.candidate.clone(),
            digits(figure.published),
            number(figure.published_ratio),
            number(figure.here),
            number(figure.here_ratio),
        ]);
    }
    table
}
