//! Published figures and conclusions, compared with this machine.

use bulkmem_measure::reproduce::Reproduction;

use super::super::input::Machine;
use super::super::model::{Grid, Section};
use crate::output::digits;

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let mut section = Section {
        id: "published",
        title: "Published against measured",
        intro: &[
            "The published tables next to this machine's own figures. Absolute figures of two machines say little \
                  about each other, so each conclusion of the sources is checked by the ratios measured here.",
        ],
        ..Section::default()
    };
    for machine in machines {
        let Some(results) = machine.results() else { continue };
        let found = Reproduction::of_files(&results, &machine.files);
        if !found.figures.iter().any(|figure| figure.here.is_some()) {
            continue;
        }
        let [holds, fails, unknown, elsewhere] = found.tally();
        section.findings.push(machine.titled(&format!(
            "Of the published conclusions, {holds} hold here, {fails} do not, {unknown} were not measured, and {elsewhere} are \
             about other processors"
        )) + ".");
        let tables = [conclusions(&found), similar(&found), figures(&found)];
        section.tables.extend(tables.map(|it| Grid { title: machine.titled(&it.title), ..it }));
    }
    (!section.tables.is_empty()).then_some(section)
}

fn conclusions(found: &Reproduction) -> Grid {
    let rows = found.conclusions.iter().map(|it| {
        let verdict = it.verdict.to_string();
        [&it.claim, &verdict, &it.published, &it.here, &it.source].map(String::clone).to_vec()
    });
    let title = "Published conclusions, and whether they hold here".to_owned();
    Grid { title, ..Grid::new("conclusion¶|here|published figures¶|figures here¶|source¶", rows) }
}

fn similar(found: &Reproduction) -> Grid {
    let rows =
        found.alike.iter().map(|it| vec![it.machine.clone(), number(it.distance), it.reasons.join(" ")]);
    Grid {
        title: "Published machines by similarity".to_owned(),
        caption: "The most similar machine first. The distance compares the ratios between methods, size by size; 0.1 is \
                  about 10 %.",
        ..Grid::new("machine|distance:|why¶", rows)
    }
}

fn figures(found: &Reproduction) -> Grid {
    let rows = found.figures.iter().filter(|it| it.here.is_some()).map(|it| {
        let [published, here, published_ratio, here_ratio] =
            [Some(it.published), it.here, it.published_ratio, it.here_ratio].map(number);
        let texts = [&it.table, &it.machine, &it.candidate, &it.config].map(String::clone);
        let figures = [published, here, it.unit.clone(), published_ratio, here_ratio, it.against.clone()];
        texts.into_iter().chain(figures).collect()
    });
    let titles =
        "table|machine|candidate|configuration|published:|here:|unit|published ratio:|ratio here:|to";
    Grid {
        title: "Published figures".to_owned(),
        caption: "Published figures that were measured here too. A ratio above 1 is better than its reference.",
        ..Grid::new(titles, rows)
    }
}

fn number(figure: Option<f64>) -> String {
    digits(figure.unwrap_or(f64::NAN))
}
