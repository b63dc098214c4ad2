//! Published figures and conclusions, compared with this machine.

use bulkmem_measure::reproduce::{PublishedFigure, Reproduction, Verdict};

use super::super::input::Machine;
use super::super::model::{Cells, Grid, Section, Table};
use crate::output::{digits, ratio};

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let intro = "The published tables next to this machine's own figures. Absolute figures of two machines say little \
                 about each other, so each conclusion of the sources is checked by the ratios measured here.";
    let mut section = Section {
        id: "published",
        title: "Published against measured",
        intro: vec![intro.to_owned()],
        ..Section::default()
    };
    for machine in machines {
        let Some(results) = machine.results() else { continue };
        let found = Reproduction::of(&results);
        if !found.figures.iter().any(|figure| figure.here.is_some()) {
            continue;
        }
        let [holds, fails, unknown] = found.tally();
        section.findings.push(machine.titled(&format!(
            "Of the published conclusions, {holds} hold here, {fails} do not, and {unknown} were not measured"
        )) + ".");
        section.tables.extend([
            conclusions(machine, &found),
            similar(machine, &found),
            figures(machine, &found),
        ]);
    }
    (!section.tables.is_empty()).then_some(section)
}

fn conclusions(machine: &Machine<'_>, found: &Reproduction) -> Table {
    let mut grid = Grid::new([
        ("conclusion", Cells::Prose),
        ("here", Cells::Words),
        ("published figures", Cells::Prose),
        ("figures here", Cells::Prose),
        ("source", Cells::Prose),
    ]);
    for it in &found.conclusions {
        let verdict = match it.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails => "does not hold",
            Verdict::NotMeasured => "not measured",
        };
        let cells = [it.claim.as_str(), verdict, &it.published, &it.here, &it.source];
        grid.rows.push(cells.map(str::to_owned).to_vec());
    }
    let title = machine.titled("Published conclusions, and whether they hold here");
    Table { title, caption: String::new(), grid }
}

fn similar(machine: &Machine<'_>, found: &Reproduction) -> Table {
    let columns = [("machine", Cells::Words), ("distance", Cells::Numbers), ("why", Cells::Prose)];
    let mut grid = Grid::new(columns);
    for it in &found.alike {
        let distance = it.distance.map_or_else(|| "–".to_owned(), digits);
        grid.rows.push(vec![it.machine.clone(), distance, it.reasons.join(" ")]);
    }
    let caption = "The most similar machine first. The distance compares the ratios between methods, size by size; 0.1 \
                   is about 10 %.";
    Table { title: machine.titled("Published machines by similarity"), caption: caption.to_owned(), grid }
}

fn figures(machine: &Machine<'_>, found: &Reproduction) -> Table {
    let mut grid = Grid::new([
        ("table", Cells::Words),
        ("machine", Cells::Words),
        ("candidate", Cells::Words),
        ("configuration", Cells::Words),
        ("published", Cells::Numbers),
        ("here", Cells::Numbers),
        ("unit", Cells::Words),
        ("published ratio", Cells::Numbers),
        ("ratio here", Cells::Numbers),
        ("to", Cells::Words),
    ]);
    for it in found.figures.iter().filter(|it| it.here.is_some()) {
        let PublishedFigure { table, machine, candidate, config, unit, against, .. } = it;
        let [published_ratio, here_ratio] =
            [it.published_ratio, it.here_ratio].map(|it| ratio(it.unwrap_or(f64::NAN)));
        let text = [table, machine, candidate, config].map(String::clone);
        let here = digits(it.here.unwrap_or(f64::NAN));
        let figures = [digits(it.published), here, unit.clone(), published_ratio, here_ratio];
        grid.rows.push(text.into_iter().chain(figures).chain([against.clone()]).collect());
    }
    let caption =
        "Published figures that were measured here too. A ratio above 1 is better than its reference.";
    Table { title: machine.titled("Published figures"), caption: caption.to_owned(), grid }
}
