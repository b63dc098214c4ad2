//! Colours, dashes and symbols: a candidate looks the same in every chart, and can be recognized without colours.

use bulkmem::method::c_library;
use bulkmem_measure::Kind;
use serde::Serialize;

use super::model::Chart;

/// The style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Style {
    /// The colour on a light page, and on paper.
    pub(super) light: &'static str,
    /// The colour on a dark page.
    pub(super) dark: &'static str,
    pub(super) dash: Dash,
    pub(super) symbol: Symbol,
    /// In pixels.
    pub(super) width: u32,
}

/// How a line is broken, as ECharts calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Dash {
    Solid,
    Dashed,
    Dotted,
}

/// The symbol at a point, as ECharts calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Symbol {
    Circle,
    Rect,
    Triangle,
    Diamond,
    EmptyCircle,
    EmptyRect,
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
const SYMBOLS: [Symbol; 6] =
    [Symbol::Rect, Symbol::Triangle, Symbol::Diamond, Symbol::EmptyCircle, Symbol::EmptyRect, Symbol::Circle];
const DASHES: [Dash; 3] = [Dash::Solid, Dash::Dashed, Dash::Dotted];

const CHOICE: Style =
    Style { light: "#D55E00", dark: "#FF8A3C", dash: Dash::Solid, symbol: Symbol::Circle, width: 4 };
const C_LIBRARY: Style =
    Style { light: "#1C1E21", dark: "#E6E8EB", dash: Dash::Dashed, symbol: Symbol::EmptyRect, width: 2 };
const REFERENCE: Style =
    Style { light: "#6B7280", dark: "#A3ABB5", dash: Dash::Dotted, symbol: Symbol::EmptyCircle, width: 2 };

/// The styles of all series of some charts.
#[derive(Debug, Default)]
pub(super) struct Styles {
    /// Names of series without a fixed style.
    names: Vec<String>,
}

impl Styles {
    pub(super) fn of<'c>(charts: impl Iterator<Item = &'c Chart>) -> Styles {
        let mut series: Vec<_> = charts.flat_map(|chart| &chart.series).collect();
        // Series that are shown at first come first, because the first styles differ the most.
        series.sort_by_key(|it| !it.shown);
        let mut names: Vec<String> = Vec::new();
        for it in series {
            if fixed(it.kind, &it.name).is_none() && !names.contains(&it.name) {
                names.push(it.name.clone());
            }
        }
        Styles { names }
    }

    /// Returns the style of a series.
    pub(super) fn style(&self, kind: Kind, name: &str) -> Style {
        fixed(kind, name).unwrap_or_else(|| {
            let at = self.names.iter().position(|known| known == name).unwrap_or_default();
            let (light, dark) = COLOURS[at % COLOURS.len()];
            let symbol = SYMBOLS[at % SYMBOLS.len()];
            Style { light, dark, dash: DASHES[(at / SYMBOLS.len()) % DASHES.len()], symbol, width: 2 }
        })
    }
}

/// Returns the style of a series that looks the same in every report.
fn fixed(kind: Kind, name: &str) -> Option<Style> {
    match kind {
        Kind::Policy if name == "the policy's choice" => Some(CHOICE),
        Kind::Peer if name == c_library().name => Some(C_LIBRARY),
        Kind::Read | Kind::Control => Some(REFERENCE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_eighteen_methods_have_different_styles() {
        let styles = Styles { names: (0..18).map(|at| format!("method {at}")).collect() };
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
}
