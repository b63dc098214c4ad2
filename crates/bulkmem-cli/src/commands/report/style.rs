//! Colours, dashes and symbols: a candidate looks the same in every chart, and can be recognized without colours.

use bulkmem::method::c_library;
use bulkmem_measure::Kind;

use super::model::Chart;

/// Red, green and blue.
type Rgb = (u8, u8, u8);

/// The style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// On a light page, and on paper.
    pub(super) light: Rgb,
    /// On a dark page.
    pub(super) dark: Rgb,
    pub(super) dash: Dash,
    pub(super) symbol: Symbol,
    /// In pixels.
    pub(super) width: u32,
}

/// How a line is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dash {
    Solid,
    Dashed,
    Dotted,
}

/// The symbol at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Circle,
    Square,
    Triangle,
    Diamond,
    Ring,
    Frame,
}

/// Okabe and Ito's colours (2008), which people with any colour vision can distinguish, the light ones darker on white;
/// then two of Tol's (2021).
const COLOURS: [(Rgb, Rgb); 8] = [
    ((0x00, 0x72, 0xB2), (0x56, 0xA8, 0xE0)),
    ((0x00, 0x9E, 0x73), (0x2F, 0xC8, 0x9B)),
    ((0xB0, 0x55, 0x90), (0xE0, 0x96, 0xC2)),
    ((0xC7, 0x85, 0x00), (0xF0, 0xB4, 0x3C)),
    ((0x3F, 0x93, 0xC4), (0x8F, 0xD0, 0xF5)),
    ((0x8A, 0x7D, 0x10), (0xEA, 0xDF, 0x5A)),
    ((0x88, 0x22, 0x55), (0xD9, 0x77, 0xA8)),
    ((0x33, 0x22, 0x88), (0xA7, 0x9B, 0xEF)),
];
const SYMBOLS: [Symbol; 6] =
    [Symbol::Square, Symbol::Triangle, Symbol::Diamond, Symbol::Ring, Symbol::Frame, Symbol::Circle];
const DASHES: [Dash; 3] = [Dash::Solid, Dash::Dashed, Dash::Dotted];

const CHOICE: Style = Style {
    light: (0xD5, 0x5E, 0x00),
    dark: (0xFF, 0x8A, 0x3C),
    dash: Dash::Solid,
    symbol: Symbol::Circle,
    width: 4,
};
const C_LIBRARY: Style = Style {
    light: (0x1C, 0x1E, 0x21),
    dark: (0xE6, 0xE8, 0xEB),
    dash: Dash::Dashed,
    symbol: Symbol::Frame,
    width: 2,
};
const REFERENCE: Style = Style {
    light: (0x6B, 0x72, 0x80),
    dark: (0xA3, 0xAB, 0xB5),
    dash: Dash::Dotted,
    symbol: Symbol::Ring,
    width: 2,
};

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

impl Symbol {
    /// Returns the name in ECharts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Symbol::Circle => "circle",
            Symbol::Square => "rect",
            Symbol::Triangle => "triangle",
            Symbol::Diamond => "diamond",
            Symbol::Ring => "emptyCircle",
            Symbol::Frame => "emptyRect",
        }
    }
}

impl Dash {
    /// Returns the name in ECharts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Dash::Solid => "solid",
            Dash::Dashed => "dashed",
            Dash::Dotted => "dotted",
        }
    }
}

/// Returns a colour as style sheets have it.
pub(super) fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
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
        let shapes: Vec<_> = seen[..6].iter().map(|it| (it.dash.name(), it.symbol.name())).collect();
        for (at, shape) in shapes.iter().enumerate() {
            assert!(!shapes[..at].contains(shape), "{at}: {shape:?}");
        }
    }
}
