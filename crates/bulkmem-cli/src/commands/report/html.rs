//! The report as one self-contained HTML file: text and tables as markup, and charts that the embedded Apache ECharts
//! draws.

use std::io;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

use super::model::{Cells, Chart, Facts, Grid, Report, Section, Series, SourceFile, Table};
use super::style::{Style, Styles};
use crate::plain;

/// Apache ECharts, as published; `assets/README.md` has the version.
const ECHARTS: &str = include_str!("../../../assets/echarts/echarts.common.min.js");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");

/// Allows the page its own scripts and styles, and nothing from a network.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

/// Returns the page.
///
/// # Errors
/// If figures cannot be written as JSON.
pub(super) fn render(report: &Report) -> io::Result<String> {
    let charts: Vec<&Chart> = report.sections.iter().flat_map(|section| &section.charts).collect();
    let styles = Styles::of(charts.iter().copied());
    let data: Vec<ChartData<'_>> = charts.iter().map(|chart| chart_data(chart, &charts, &styles)).collect();
    let mut number = 0;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("bulkmem ", env!("CARGO_PKG_VERSION")));
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    div.top {
                        h1 { (report.title) }
                        button #theme.js-only type="button" title="Switch between light and dark" { "◐ Light or dark" }
                    }
                    p.faint {
                        "How fast this machine clears, fills and copies memory with different methods, and how that affects \
                         other programs. GB/s are 10⁹ bytes per second, and MiB are 2²⁰ bytes. Figures are medians, with \
                         95\u{a0}% confidence intervals if shown."
                    }
                    noscript { p.noscript { "The charts need JavaScript. The sentences and the tables with all figures do not." } }
                    (contents(report))
                }
                main {
                    (summaries(report))
                    @for section in &report.sections { (section_markup(section, &mut number)) }
                    (machines(report))
                    (files(&report.files))
                }
                footer.faint {
                    p {
                        "Written by bulkmem " (env!("CARGO_PKG_VERSION")) ". This file needs no network: it contains its \
                         figures, and Apache ECharts (Apache License 2.0), which draws them."
                    }
                }
                (json_script("charts", &serde_json::to_string(&data)?))
                @for (at, file) in report.files.iter().enumerate() {
                    (json_script(&format!("file-{at}"), &serde_json::to_string(&file.text)?))
                }
                @if !charts.is_empty() {
                    script { (PreEscaped(ECHARTS)) }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(page.into_string())
}

/// Embeds JSON in the page. The only letter that could end the element is escaped.
fn json_script(id: &str, text: &str) -> Markup {
    html! { script type="application/json" id=(id) { (PreEscaped(plain::json(text).replace('<', "\\u003c"))) } }
}

fn contents(report: &Report) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                @if !report.summaries.is_empty() { li { a href="#summary" { "Summary" } } }
                @for section in &report.sections { li { a href={ "#" (section.id) } { (section.title) } } }
                li { a href="#machines" { (if report.machines.len() == 1 { "Machine" } else { "Machines" }) } }
                li { a href="#files" { "Files and notes" } }
            }
        }
    }
}

fn summaries(report: &Report) -> Markup {
    html! {
        @if !report.summaries.is_empty() {
            section #summary.summary {
                h2 { "Summary" }
                @for summary in &report.summaries {
                    @if !summary.heading.is_empty() { h3 { (summary.heading) } }
                    (list("", &summary.sentences))
                }
            }
        }
    }
}

fn list(class: &str, items: &[String]) -> Markup {
    html! { @if !items.is_empty() { ul class=(class) { @for item in items { li { (item) } } } } }
}

fn section_markup(section: &Section, number: &mut usize) -> Markup {
    let numbered = section.charts.iter().map(|chart| {
        *number += 1;
        (chart.folded, figure(chart, *number - 1))
    });
    let (folded, open): (Vec<_>, Vec<_>) = numbered.partition(|(folded, _)| *folded);
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            div.intro { @for text in &section.intro { p { (text) } } }
            (list("findings", &section.findings))
            div.charts { @for (_, figure) in &open { (figure) } }
            @for table in &section.tables { (table_markup(table)) }
            @if !folded.is_empty() {
                details.more {
                    summary { "Other intents and conditions (" (folded.len()) ")" }
                    div.charts { @for (_, figure) in &folded { (figure) } }
                }
            }
        }
    }
}

fn figure(chart: &Chart, number: usize) -> Markup {
    html! {
        figure id={ "chart-" (chart.name) } data-chart=(number) {
            h3 { (chart.title) }
            div.plot role="img" aria-label={ "Chart: " (chart.title) ". The table below has the same figures." } {}
            div.keys role="group" aria-label="Series" {}
            details { summary { "Table" } (grid_markup(&chart.overview, "* marks the best; mean ± standard deviation, unless a unit is given.")) }
            details { summary { "All figures" } (grid_markup(&chart.details, "")) }
            div.tools {
                button type="button" data-save="csv" { "↓ CSV" }
                button type="button" data-save="svg" { "↓ SVG" }
            }
        }
    }
}

fn table_markup(table: &Table) -> Markup {
    // Long tables are folded.
    let rows = table.grid.rows.len();
    html! {
        @if rows > 12 {
            details { summary { (table.title) " (" (rows) " rows)" } (grid_markup(&table.grid, &table.caption)) }
        } @else {
            h3 { (table.title) }
            (grid_markup(&table.grid, &table.caption))
        }
    }
}

fn grid_markup(grid: &Grid, caption: &str) -> Markup {
    // A table with prose is too wide for a phone: there, each row becomes a card.
    let cards = grid.columns.iter().any(|(_, cells)| *cells == Cells::Prose).then_some("cards-on-phone");
    let class = |cells: Cells| match cells {
        Cells::Words => None,
        Cells::Numbers => Some("number"),
        Cells::Prose => Some("prose"),
    };
    html! {
        div.scroll tabindex="0" {
            table class=[cards] {
                @if !caption.is_empty() { caption { (caption) } }
                thead { tr { @for (title, cells) in &grid.columns { th scope="col" class=[class(*cells)] { (title) } } } }
                tbody {
                    @for row in &grid.rows {
                        tr {
                            @for ((title, cells), cell) in grid.columns.iter().zip(row) {
                                td class=[class(*cells)] data-title=(title) { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn facts(facts: &Facts) -> Markup {
    html! { dl { @for (name, value) in facts { dt { (name) } dd { (value) } } } }
}

fn machines(report: &Report) -> Markup {
    html! {
        section #machines {
            h2 { (if report.machines.len() == 1 { "The machine" } else { "The machines" }) }
            div.cards { @for (label, known) in &report.machines { div.card { h3 { (label) } (facts(known)) } } }
        }
    }
}

fn files(files: &[SourceFile]) -> Markup {
    html! {
        section #files {
            h2 { "Files and notes" }
            div.cards {
                @for (at, file) in files.iter().enumerate() {
                    div.card {
                        h3 { (file.name) }
                        (facts(&file.facts))
                        @if !file.notes.is_empty() {
                            details open[file.notes.len() <= 4] {
                                summary { "Notes (" (file.notes.len()) ")" }
                                (list("findings", &file.notes))
                            }
                        }
                        div.tools {
                            button type="button" data-file={ "file-" (at) } data-name=(download_name(&file.name)) { "↓ JSON (original)" }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the last part of a path, as the name of the download.
fn download_name(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    if last.ends_with(".json") { last.to_owned() } else { format!("{last}.json") }
}

/// A chart for the script of the page.
#[derive(Serialize)]
struct ChartData<'c> {
    #[serde(flatten)]
    chart: &'c Chart,
    series: Vec<SeriesData<'c>>,
    /// The ends of the y axis, which charts of one group share.
    max: Option<f64>,
    min: Option<f64>,
}

#[derive(Serialize)]
struct SeriesData<'c> {
    #[serde(flatten)]
    series: &'c Series,
    style: Style,
}

fn chart_data<'c>(chart: &'c Chart, all: &[&Chart], styles: &Styles) -> ChartData<'c> {
    let group = || all.iter().filter(|other| other.group == chart.group);
    let points = group().flat_map(|chart| &chart.series).flat_map(|series| &series.points);
    let (least, most) =
        points.fold((0.0, 0.0), |(least, most), it| (f64::min(least, it.value), f64::max(most, it.value)));
    let several = group().count() > 1;
    let series = chart.series.iter();
    ChartData {
        chart,
        series: series.map(|it| SeriesData { series: it, style: styles.style(it.kind, &it.name) }).collect(),
        max: several.then(|| round_up(most)),
        min: (several && least < 0.0).then(|| -round_up(-least)),
    }
}

/// Returns the next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6 and 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * decade).find(|end| *end >= value).unwrap_or(value)
}
