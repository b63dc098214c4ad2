//! The report as one self-contained HTML file: text and tables by a template, and charts that the embedded Apache ECharts
//! draws.

use std::io;

use askama::Template;
use serde::Serialize;
use serde_json::Value;

use super::model::{Card, Cells, Chart, Grid, Report, Section, Shape};
use super::style::Styles;
use crate::plain;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'r> {
    report: &'r Report<'r>,
    version: &'static str,
    charts: Vec<&'r Chart>,
    /// JSON for the script, by its name in the page.
    data: Vec<(String, String)>,
    style: &'static str,
    script: &'static str,
    /// Apache ECharts, as published; `assets/README.md` has the version.
    echarts: &'static str,
}

pub(super) fn render(report: &Report<'_>) -> io::Result<String> {
    let charts: Vec<&Chart> = report.sections.iter().flat_map(|section| &section.charts).collect();
    let styles = Styles::of(charts.iter().copied());
    let drawn: Vec<Value> =
        charts.iter().map(|it| chart_json(it, &charts, &styles)).collect::<Result<_, _>>()?;
    let mut data = vec![("charts".to_owned(), json(&drawn)?)];
    for (at, (_, text)) in report.files.iter().enumerate() {
        data.push((format!("file-{at}"), json(text)?));
    }
    let page = Page {
        report,
        version: env!("CARGO_PKG_VERSION"),
        charts,
        data,
        style: include_str!("page/page.css"),
        script: include_str!("page/page.js"),
        echarts: include_str!("../../../assets/echarts/echarts.common.min.js"),
    };
    page.render().map_err(io::Error::other)
}

impl Page<'_> {
    fn number(&self, chart: &Chart) -> usize {
        self.charts.iter().position(|it| std::ptr::eq(*it, chart)).unwrap_or_default()
    }
}

impl Section {
    fn folded(&self) -> usize {
        self.charts.iter().filter(|chart| chart.folded).count()
    }
}

impl Card {
    fn download_name(&self) -> String {
        let name = self.heading.rsplit('/').next().unwrap_or_default();
        format!("{}.json", name.strip_suffix(".json").unwrap_or(name))
    }
}

impl Grid {
    fn has_prose(&self) -> bool {
        self.columns.iter().any(|(_, cells)| *cells == Cells::Prose)
    }
}

impl Cells {
    fn class(self) -> &'static str {
        match self {
            Cells::Words => "",
            Cells::Numbers => " class=\"number\"",
            Cells::Prose => " class=\"prose\"",
        }
    }
}

/// Returns JSON to embed in the page. The only letter that could end the element is escaped.
fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(plain::json(&serde_json::to_string(value)?).replace('<', "\\u003c"))
}

/// Returns a chart for the script of the page: with the style of each series, and the ends of the axis of values, which
/// charts of one group share.
fn chart_json(chart: &Chart, all: &[&Chart], styles: &Styles) -> serde_json::Result<Value> {
    let group = || all.iter().filter(|other| other.group == chart.group);
    let points = group().flat_map(|chart| &chart.series).flat_map(|series| &series.points);
    let bars = chart.shape == Shape::Bars;
    let ends = points.map(|it| if bars { it.ends() } else { [it.value; 2] });
    let (least, most) =
        ends.fold((0.0, 0.0), |(least, most), [low, high]| (f64::min(least, low), f64::max(most, high)));
    // ECharts makes room for bars, but not for their intervals.
    let fixed = bars || group().count() > 1;
    let mut json = serde_json::to_value(chart)?;
    json["max"] = fixed.then(|| round_up(most)).into();
    json["min"] = (fixed && least < 0.0).then(|| -round_up(-least)).into();
    for (at, series) in chart.series.iter().enumerate() {
        json["series"][at]["style"] = serde_json::to_value(styles.style(series.kind, &series.name))?;
    }
    Ok(json)
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
