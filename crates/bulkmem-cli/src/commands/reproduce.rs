//! `bulkmem reproduce`.

use std::fmt::Write as _;

use bulkmem_measure::engine::{Measure, Results};
use bulkmem_measure::reproduce::{Conclusion, PublishedFigure, Reproduction, Verdict, measurements};

use super::Outcome;
use super::bench::{digits, remarks};
use super::follow::{Files, follow_counting};
use crate::args::ReproduceArgs;
use crate::failure::{Exit, Failure};
use crate::output::{self, BAD, Column, FAINT, GOOD, HEADING, Table, exact_size, styled, wrapped};
use crate::{plain, results};

/// How wide the words for verdicts are.
const VERDICT: usize = 14;

pub(super) fn run(args: &ReproduceArgs) -> Outcome {
    if args.files.is_empty() {
        let wanted = measurements(args.quick);
        let wanted: Vec<&dyn Measure> = wanted.iter().map(AsRef::as_ref).collect();
        let files = Files { json: args.output.as_deref(), ..Files::default() };
        return follow_counting("reproduce", &wanted, files, |found| show(args, found));
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
