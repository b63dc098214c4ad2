//! What others published, beside what was measured here.

use bulkmem_measure::reproduce::{PublishedFigure, Reproduction, Verdict};

use super::super::input::Machine;
use super::super::model::{Grid, Holds, Section, Table};
use super::super::names::digits;
use crate::output::ratio;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let mut section = Section::new(
        "published",
        "Published against measured",
        &[
            "The tables that bulkmem grew out of, beside this machine's own figures. Absolute figures of two machines \
             say little about each other; what the sources conclude are ratios, so each conclusion is judged by the \
             ratios measured here.",
        ],
    );
    for machine in machines {
        let Some(results) = machine.results() else { continue };
        let reproduction = Reproduction::of(&results);
        if !reproduction.figures.iter().any(|figure| figure.here.is_some()) {
            continue;
        }
        let of = |title: &str| match machines {
            [_] => title.to_owned(),
            _ => format!("{title}: {}", machine.label),
        };
        let [holds, fails, unknown] = reproduction.tally();
        section.findings.push(of(&format!(
            "Of the published conclusions, {holds} hold here, {fails} do not, and {unknown} could not be judged by \
             what was measured"
        )) + ".");
        section.tables.push(conclusions(&reproduction, of("What was concluded, and whether it holds here")));
        section.tables.push(alike(&reproduction, of("Which published machine is most alike")));
        section.tables.push(figures(&reproduction, of("The figures")));
    }
    (!section.tables.is_empty()).then_some(section)
}

fn conclusions(reproduction: &Reproduction, title: String) -> Table {
    let mut grid = Grid::new([
        ("conclusion", Holds::Prose),
        ("here", Holds::Words),
        ("published figures", Holds::Prose),
        ("figures here", Holds::Prose),
        ("source", Holds::Prose),
    ]);
    for it in &reproduction.conclusions {
        let verdict = match it.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails => "does not hold",
            Verdict::NotMeasured => "not measured",
        };
        let cells = [it.claim.as_str(), verdict, &it.published, &it.here, &it.source];
        grid.rows.push(cells.map(str::to_owned).to_vec());
    }
    Table { title, caption: String::new(), grid }
}

fn alike(reproduction: &Reproduction, title: String) -> Table {
    let columns = [("machine", Holds::Words), ("distance", Holds::Numbers), ("why", Holds::Prose)];
    let mut grid = Grid::new(columns);
    for it in &reproduction.alike {
        let distance = it.distance.map_or_else(|| "–".to_owned(), digits);
        grid.rows.push(vec![it.machine.clone(), distance, it.reasons.join(" ")]);
    }
    let caption = "The most alike first. The distance compares the ratios between methods, size by size; 0.1 is \
                   about 10 %.";
    Table { title, caption: caption.to_owned(), grid }
}

fn figures(reproduction: &Reproduction, title: String) -> Table {
    let mut grid = Grid::new([
        ("table", Holds::Words),
        ("machine", Holds::Words),
        ("who", Holds::Words),
        ("where", Holds::Words),
        ("published", Holds::Numbers),
        ("here", Holds::Numbers),
        ("unit", Holds::Words),
        ("published ratio", Holds::Numbers),
        ("ratio here", Holds::Numbers),
        ("to", Holds::Words),
    ]);
    let number = |number: Option<f64>| number.map_or_else(|| "–".to_owned(), digits);
    for it in reproduction.figures.iter().filter(|it| it.here.is_some()) {
        let PublishedFigure { table, machine, candidate, config, unit, against, .. } = it;
        let ratios = [it.published_ratio, it.here_ratio].map(|it| ratio(it.unwrap_or(f64::NAN)));
        let [published_ratio, here_ratio] = ratios;
        let text = [table, machine, candidate, config].map(String::clone);
        let figures = [digits(it.published), number(it.here), unit.clone(), published_ratio, here_ratio];
        grid.rows.push(text.into_iter().chain(figures).chain([against.clone()]).collect());
    }
    let caption =
        "Figures that were measured here too. A ratio above 1 is better than what it is compared to.";
    Table { title, caption: caption.to_owned(), grid }
}
