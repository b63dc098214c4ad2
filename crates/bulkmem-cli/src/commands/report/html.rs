//! The report as one HTML file that needs nothing else: text and tables as markup, charts drawn by Apache ECharts, which
//! the file carries.

use std::io;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::look::{Looks, hex};
use super::model::{Axis, Chart, Grid, Holds, Report, Scale, Section, Shape, Source, Table};
use crate::plain;

/// Apache ECharts, as published; `assets/README.md` says which version.
pub(super) const ECHARTS: &str = include_str!("../../../assets/echarts/echarts.common.min.js");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");

/// What the page may do: run and style itself, and nothing that asks a network.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

/// The page.
///
/// # Errors
/// Where figures cannot be written as JSON.
pub(super) fn render(report: &Report) -> io::Result<String> {
    let looks = Looks::of(report.sections.iter().flat_map(|section| &section.charts));
    let charts: Vec<&Chart> = report.sections.iter().flat_map(|section| &section.charts).collect();
    let data: Vec<Value> = charts.iter().map(|chart| data(chart, &charts, &looks)).collect();
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
                        "How fast this memory can be cleared, filled and copied, by which method, and what that does \
                         to others. GB/s are 10⁹ bytes a second; a MiB is 2²⁰ bytes. Figures are medians, with 95 % \
                         intervals where they are shown."
                    }
                    noscript { p.noscript { "The charts need JavaScript. The sentences, and all figures as tables, do not." } }
                    (contents(report))
                }
                main {
                    (verdict(report))
                    @for section in &report.sections { (section_markup(section, &mut number)) }
                    (machines(report))
                    (files(&report.files))
                }
                footer.faint {
                    p {
                        "Written by bulkmem " (env!("CARGO_PKG_VERSION")) ". This file needs no network: it carries its \
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

/// JSON in the page. Nothing in it can end the element: the letter that could is written as an escape.
fn json_script(id: &str, text: &str) -> Markup {
    html! { script type="application/json" id=(id) { (PreEscaped(plain::json(text).replace('<', "\\u003c"))) } }
}

fn contents(report: &Report) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                @if !report.verdict.is_empty() { li { a href="#verdict" { "Verdict" } } }
                @for section in &report.sections { li { a href={ "#" (section.id) } { (section.title) } } }
                li { a href="#machines" { (plural(report.machines.len(), "Machine", "Machines")) } }
                li { a href="#files" { "Files and notes" } }
            }
        }
    }
}

fn verdict(report: &Report) -> Markup {
    html! {
        @if !report.verdict.is_empty() {
            section #verdict.verdict {
                h2 { "Verdict" }
                @for verdict in &report.verdict {
                    @if !verdict.heading.is_empty() { h3 { (verdict.heading) } }
                    ul { @for sentence in &verdict.sentences { li { (sentence) } } }
                }
            }
        }
    }
}

fn section_markup(section: &Section, number: &mut usize) -> Markup {
    let mut numbered = |chart| {
        *number += 1;
        figure(chart, *number - 1)
    };
    let figures: Vec<(&Chart, Markup)> =
        section.charts.iter().map(|chart| (chart, numbered(chart))).collect();
    let (folded, open): (Vec<_>, Vec<_>) = figures.into_iter().partition(|(chart, _)| chart.folded);
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            div.intro { @for text in &section.intro { p { (text) } } }
            @if !section.findings.is_empty() {
                ul.findings { @for finding in &section.findings { li { (finding) } } }
            }
            div.charts { @for (_, figure) in &open { (figure) } }
            @for table in &section.tables { (table_markup(table)) }
            @if !folded.is_empty() {
                details.more {
                    summary { "The other intents and conditions: " (plural(folded.len(), "one chart", &format!("{} charts", folded.len()))) }
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
            div.keys role="group" aria-label="Who is shown" {}
            details { summary { "Table" } (grid_markup(&chart.brief, "* marks the best; mean ± standard deviation, or the unit as said.")) }
            details { summary { "All figures" } (grid_markup(&chart.figures, "")) }
            div.tools {
                button type="button" data-save="csv" { "↓ CSV" }
                button type="button" data-save="svg" { "↓ SVG" }
            }
        }
    }
}

fn table_markup(table: &Table) -> Markup {
    // Long tables are folded.
    let long = table.grid.rows.len() > 12;
    html! {
        @if long {
            details { summary { (table.title) " (" (table.grid.rows.len()) " rows)" } (grid_markup(&table.grid, &table.caption)) }
        } @else {
            h3 { (table.title) }
            (grid_markup(&table.grid, &table.caption))
        }
    }
}

fn grid_markup(grid: &Grid, caption: &str) -> Markup {
    // A table with prose in it is too wide for a phone: there each row becomes a card.
    let cards = grid.columns.iter().any(|(_, holds)| *holds == Holds::Prose).then_some("cards-on-phone");
    let class = |holds: Holds| match holds {
        Holds::Words => None,
        Holds::Numbers => Some("number"),
        Holds::Prose => Some("prose"),
    };
    html! {
        div.scroll tabindex="0" {
            table class=[cards] {
                @if !caption.is_empty() { caption { (caption) } }
                thead { tr { @for (title, holds) in &grid.columns { th scope="col" class=[class(*holds)] { (title) } } } }
                tbody {
                    @for row in &grid.rows {
                        tr {
                            @for ((title, holds), cell) in grid.columns.iter().zip(row) {
                                td class=[class(*holds)] data-title=(title) { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn facts(facts: &[(&'static str, String)]) -> Markup {
    html! { dl { @for (name, value) in facts { dt { (name) } dd { (value) } } } }
}

fn machines(report: &Report) -> Markup {
    html! {
        section #machines {
            h2 { (plural(report.machines.len(), "The machine", "The machines")) }
            div.cards {
                @for machine in &report.machines { div.card { h3 { (machine.label) } (facts(&machine.facts)) } }
            }
        }
    }
}

fn files(files: &[Source]) -> Markup {
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
                                summary { (plural(file.notes.len(), "One note", &format!("{} notes", file.notes.len()))) }
                                ul.findings { @for note in &file.notes { li { (note) } } }
                            }
                        }
                        div.tools {
                            button type="button" data-file={ "file-" (at) } data-name=(download_name(&file.name)) { "↓ JSON, as given" }
                        }
                    }
                }
            }
        }
    }
}

/// The last part of a path, as a name for the download.
fn download_name(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    if last.ends_with(".json") { last.to_owned() } else { format!("{last}.json") }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    (if count == 1 { one } else { many }).to_owned()
}

/// What the page's script draws a chart from.
fn data(chart: &Chart, all: &[&Chart], looks: &Looks) -> Value {
    let values = |chart: &Chart| -> Vec<f64> {
        chart.series.iter().flat_map(|series| &series.points).map(|point| point.value).collect()
    };
    // Charts that are compared end at the same figure.
    let compared: Vec<&&Chart> = all.iter().filter(|other| other.group == chart.group).collect();
    let of_group: Vec<f64> = compared.iter().flat_map(|other| values(other)).collect();
    let (least, most) =
        (of_group.iter().copied().fold(0.0, f64::min), of_group.iter().copied().fold(0.0, f64::max));
    let series: Vec<Value> = chart
        .series
        .iter()
        .map(|series| {
            let look = looks.look(series.kind, &series.name);
            let points: Vec<Value> = series
                .points
                .iter()
                .map(|point| {
                    let [low, high] = point.interval.map_or([None, None], |interval| interval.map(Some));
                    json!([point.config, point.value, low, high, point.remark])
                })
                .collect();
            json!({
                "name": series.name,
                "kind": series.kind,
                "shown": series.shown,
                "look": {
                    "light": hex(look.light),
                    "dark": hex(look.dark),
                    "dash": look.dash.name(),
                    "symbol": look.symbol.name(),
                    "width": look.width,
                },
                "points": points,
            })
        })
        .collect();
    json!({
        "name": chart.name,
        "shape": if chart.shape == Shape::Lines { "lines" } else { "bars" },
        "stacked": chart.configs.name.is_empty(),
        "more": chart.more,
        "places": axis(&chart.configs),
        "values": axis(&chart.values),
        "top": if compared.len() > 1 { Value::from(round_up(most)) } else { Value::Null },
        "bottom": if compared.len() > 1 && least < 0.0 { Value::from(-round_up(-least)) } else { Value::Null },
        "series": series,
        "marks": chart.marks,
    })
}

/// The next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * decade).find(|end| *end >= value).unwrap_or(value)
}

fn axis(axis: &Axis) -> Value {
    let (scale, names): (&str, &[String]) = match &axis.scale {
        Scale::Bytes => ("bytes", &[]),
        Scale::Even => ("even", &[]),
        Scale::Decades => ("decades", &[]),
        Scale::Named(names) => ("named", names),
    };
    json!({ "name": axis.name, "scale": scale, "names": names })
}
