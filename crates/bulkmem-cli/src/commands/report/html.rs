//! The report as one HTML file that needs nothing else.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::model::{Grid, Holds, Report, Section};
use super::plot;
use crate::failure::Failure;

pub(super) fn render(report: &Report) -> Result<String, Failure> {
    let sections = report.sections.iter().map(section).collect::<Result<Vec<_>, _>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (report.title) }
                style { (PreEscaped(STYLE)) (PreEscaped(plot_style())) }
            }
            body {
                header {
                    h1 { (report.title) }
                    p { (report.summary) }
                }
                section {
                    h2 { "What was chosen, and why" }
                    (grid(&report.choices))
                }
                @for section in &sections { (section) }
                section {
                    h2 { "Machine and provenance" }
                    dl {
                        @for (name, value) in &report.machine {
                            dt { (name) }
                            dd { (value) }
                        }
                    }
                }
            }
        }
    };
    Ok(page.into_string())
}

fn section(section: &Section) -> Result<Markup, Failure> {
    let svg =
        plot::svg(&section.lines).map_err(|error| Failure::new(format!("cannot draw a plot: {error}")))?;
    Ok(html! {
        section {
            h2 { (section.title) }
            figure {
                div.plot role="img" aria-label={ "Plot: " (section.title) } { (PreEscaped(svg)) }
                figcaption {
                    ul.legend {
                        @for (number, line) in section.lines.iter().enumerate() {
                            li { span style={ "background: var(--line" (number) ")" } {} (line.name) }
                        }
                    }
                    (section.caption)
                }
            }
            details {
                summary { "All figures" }
                (grid(&section.figures))
            }
        }
    })
}

fn grid(grid: &Grid) -> Markup {
    // A table with prose in it is too wide for a phone: there each row becomes a card.
    let cards = grid.columns.iter().any(|(_, holds)| *holds == Holds::Prose).then_some("cards");
    let class = |holds: Holds| match holds {
        Holds::Words => None,
        Holds::Numbers => Some("number"),
        Holds::Prose => Some("prose"),
    };
    html! {
        div.scroll {
            table class=[cards] {
                thead {
                    tr { @for (title, holds) in &grid.columns { th class=[class(*holds)] { (title) } } }
                }
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

/// Rules that turn the marker colours of the plots into those of the page.
fn plot_style() -> String {
    let rule = |colour: plotters::style::RGBColor, variable: &str| {
        let colour = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        format!(
            ".plot [fill=\"{colour}\"]{{fill:var(--{variable})}}.plot [stroke=\"{colour}\"]{{stroke:var(--{variable})}}"
        )
    };
    let lines = (0..6).map(|number| rule(plot::line_colour(number), &format!("line{number}")));
    rule(plot::INK, "ink") + &rule(plot::GRID, "grid") + &lines.collect::<String>()
}

const STYLE: &str = "
:root{--page:#fff;--ink:#1c1e21;--faint:#5c636b;--grid:#d5d9de;--panel:#f5f6f8;
--line0:#d1495b;--line1:#4b5563;--line2:#1f77b4;--line3:#2a9d5c;--line4:#8e5bc0;--line5:#c77d0a}
@media (prefers-color-scheme:dark){:root{--page:#15181c;--ink:#e6e8eb;--faint:#9aa3ad;--grid:#363c44;
--panel:#1e2228;--line0:#ff7385;--line1:#b4bcc6;--line2:#5cb3f0;--line3:#56c98a;--line4:#bd93ea;--line5:#f0b04a}}
body{margin:0 auto;padding:1rem;max-width:62rem;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}h2{font-size:1.2rem;margin:2.2rem 0 .6rem}
header p,figcaption{color:var(--faint)}figure{margin:0}
.plot{overflow-x:auto}.plot svg{width:100%;min-width:30rem;height:auto;display:block}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.3rem 0;color:var(--ink)}
.legend span{display:inline-block;width:1.1em;height:.3em;border-radius:.15em;margin-right:.45em;
vertical-align:middle}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--grid);vertical-align:top}
th{color:var(--faint);font-weight:600}.number{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}.prose{min-width:16rem}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--faint)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;background:var(--panel);padding:1rem;
border-radius:.5rem;margin:0}dt{color:var(--faint)}dd{margin:0;overflow-wrap:anywhere}
@media (max-width:46rem){dl{grid-template-columns:1fr}dd{margin-bottom:.4rem}
.cards thead{display:none}.cards tr{display:block;padding:.6rem 0;border-bottom:1px solid var(--grid)}
.cards td{display:grid;grid-template-columns:7rem 1fr;border:0;padding:.1rem 0;text-align:left;white-space:normal;
overflow-wrap:anywhere}.cards td:before{content:attr(data-title);color:var(--faint)}.cards .prose{min-width:0}}
";
