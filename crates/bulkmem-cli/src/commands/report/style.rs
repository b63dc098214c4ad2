//! Colours, dashes and symbols: a candidate looks the same in every chart, and can be recognized without colours.

use bulkmem::method::c_library;
use bulkmem_measure::Kind;
use bulkmem_measure::engine::distinct;
use serde::Serialize;

use super::model::Chart;

/// The style of a series. Dashes and symbols have the names of ECharts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Style {
    /// The colour on a light page, and on paper.
    pub(super) light: &'static str,
    /// The colour on a dark page.
    pub(super) dark: &'static str,
    pub(super) dash: &'static str,
    pub(super) symbol: &'static str,
    /// In pixels.
    pub(super) width: u32,
}

/// Okabe and Ito's colours (2008), which people with any colour vision can distinguish, the light ones darker on white;
/// then two of Tol's (2021).
const COLOURS: [(&str, &str); 8] = [
    ("#0072B2", "#56A8E0"),
    ("#009E73", "#2FC89B"),
    ("#B05590", "#E096C2"),
    ("#C78500", "#F0B43C"),
    ("#3F93C4", "#8FD0F5"),
    ("#8A7D10", "#EADF5A"),
    ("#882255", "#D977A8"),
    ("#332288", "#A79BEF"),
];
const SYMBOLS: [&str; 6] = ["rect", "triangle", "diamond", "emptyCircle", "emptyRect", "circle"];
const DASHES: [&str; 3] = ["solid", "dashed", "dotted"];

const CHOICE: Style = Style { light: "#D55E00", dark: "#FF8A3C", dash: "solid", symbol: "circle", width: 4 };
const C_LIBRARY: Style =
    Style { light: "#1C1E21", dark: "#E6E8EB", dash: "dashed", symbol: "emptyRect", width: 2 };
const REFERENCE: Style =
    Style { light: "#6B7280", dark: "#A3ABB5", dash: "dotted", symbol: "emptyCircle", width: 2 };

/// The name of the series of all controls in a chart with a bar for each candidate.
pub(super) const CONTROLS: &str = "controls";

#[derive(Debug, Default)]
pub(super) struct Styles {
    /// Names of series without a fixed style.
    names: Vec<String>,
    /// Names of single controls. Their lines are always dotted.
    controls: Vec<String>,
}

impl Styles {
    pub(super) fn of<'c>(charts: impl Iterator<Item = &'c Chart>) -> Styles {
        let mut series: Vec<_> = charts.flat_map(|chart| &chart.series).collect();
        series.retain(|it| fixed(it.kind, &it.name).is_none());
        // Series that are shown at first come first, because the first styles differ the most.
        series.sort_by_key(|it| !it.shown);
        let (controls, others): (Vec<_>, Vec<_>) =
            series.into_iter().partition(|it| it.kind == Kind::Control);
        let [names, controls] = [others, controls].map(|it| distinct(it.iter().map(|it| it.name.clone())));
        Styles { names, controls }
    }

    pub(super) fn style(&self, kind: Kind, name: &str) -> Style {
        fixed(kind, name).unwrap_or_else(|| {
            let is_control = kind == Kind::Control;
            let names = if is_control { &self.controls } else { &self.names };
            let at = names.iter().position(|known| known == name).unwrap_or_default();
            let symbol = SYMBOLS[at % SYMBOLS.len()];
            // From the other end, because the methods in the same chart have the first colours.
            let colour = if is_control { COLOURS.len() - 1 - at % COLOURS.len() } else { at % COLOURS.len() };
            let dash = if is_control { "dotted" } else { DASHES[(at / SYMBOLS.len()) % DASHES.len()] };
            let (light, dark) = COLOURS[colour];
            Style { light, dark, dash, symbol, width: 2 }
        })
    }
}

/// Returns the style of a series that looks the same in every report.
fn fixed(kind: Kind, name: &str) -> Option<Style> {
    match kind {
        Kind::Policy if name == "the policy's choice" => Some(CHOICE),
        Kind::Peer if name == c_library().name => Some(C_LIBRARY),
        Kind::Read => Some(REFERENCE),
        Kind::Control if name == CONTROLS => Some(REFERENCE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Series;
    use super::*;

    #[test]
    fn the_first_eighteen_methods_have_different_styles() {
        let names = (0..18).map(|at| format!("method {at}")).collect();
        let styles = Styles { names, ..Styles::default() };
        let mut seen: Vec<Style> = styles.names.iter().map(|name| styles.style(Kind::Method, name)).collect();
        seen.extend([CHOICE, C_LIBRARY, REFERENCE]);
        assert_eq!(styles.style(Kind::Policy, "the policy's choice"), CHOICE);
        assert_eq!(styles.style(Kind::Peer, "c_library"), C_LIBRARY);
        for (at, style) in seen.iter().enumerate() {
            assert!(!seen[..at].contains(style), "{at}: {style:?}");
        }
        // The first six differ without their colours, too.
        let shapes: Vec<_> = seen[..6].iter().map(|it| (it.dash, it.symbol)).collect();
        for (at, shape) in shapes.iter().enumerate() {
            assert!(!shapes[..at].contains(shape), "{at}: {shape:?}");
        }
    }

    #[test]
    fn six_controls_differ_in_colour_and_symbol() {
        let series = |kind, name: String| Series { name, kind, shown: true, points: Vec::new() };
        let controls = (0..6).map(|at| series(Kind::Control, format!("(control {at})")));
        let methods = (0..3).map(|at| series(Kind::Method, format!("method {at}")));
        let chart = Chart { series: controls.chain(methods).collect(), ..Chart::default() };
        let styles = Styles::of([&chart].into_iter());
        let seen: Vec<Style> = chart.series.iter().map(|it| styles.style(it.kind, &it.name)).collect();
        for (at, style) in seen.iter().enumerate() {
            assert!(at >= 6 || seen[..at].iter().all(|it| it.light != style.light), "{at}: {style:?}");
            assert_eq!(style.dash == "dotted", at < 6, "{style:?}");
            let shape = (style.dash, style.symbol);
            assert!(seen[..at].iter().all(|it| (it.dash, it.symbol) != shape), "{at}: {style:?}");
        }
        assert_eq!(styles.style(Kind::Control, CONTROLS), REFERENCE);
    }
}
