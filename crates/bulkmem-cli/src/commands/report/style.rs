//! Colours, dashes and symbols: the same method looks the same in every chart, and nobody needs to see colours.

use bulkmem_measure::Kind;

use super::model::Chart;

/// Red, green and blue.
type Rgb = (u8, u8, u8);

/// How a series looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
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

/// What stands at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Circle,
    Square,
    Triangle,
    Diamond,
    Ring,
    Frame,
}

/// Okabe and Ito's colours (2008), which people with any colour vision tell apart, on white the light ones darker; then
/// two of Tol's (2021).
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

/// The looks of all series of some charts, by name.
#[derive(Debug, Default)]
pub(super) struct Looks {
    names: Vec<String>,
}

impl Looks {
    /// Looks for the series of some charts.
    pub(super) fn of<'c>(charts: impl Iterator<Item = &'c Chart>) -> Looks {
        let mut names: Vec<String> = Vec::new();
        // Who is shown at once comes first, so that these differ the most.
        let mut hidden = Vec::new();
        for series in
            charts.flat_map(|chart| &chart.series).filter(|series| own(series.kind, &series.name).is_none())
        {
            let list = if series.shown { &mut names } else { &mut hidden };
            if !list.contains(&series.name) {
                list.push(series.name.clone());
            }
        }
        hidden.retain(|name| !names.contains(name));
        names.extend(hidden);
        Looks { names }
    }

    /// How a series looks.
    pub(super) fn look(&self, kind: Kind, name: &str) -> Look {
        if let Some(look) = own(kind, name) {
            return look;
        }
        let at = self.names.iter().position(|known| known == name).unwrap_or_default();
        let (light, dark) = COLOURS[at % COLOURS.len()];
        let symbol = SYMBOLS[at % SYMBOLS.len()];
        Look { light, dark, dash: DASHES[(at / SYMBOLS.len()) % DASHES.len()], symbol, width: 2 }
    }
}

/// Those who look the same in every report.
fn own(kind: Kind, name: &str) -> Option<Look> {
    let plain = Look {
        light: (0x1C, 0x1E, 0x21),
        dark: (0xE6, 0xE8, 0xEB),
        dash: Dash::Dashed,
        symbol: Symbol::Frame,
        width: 2,
    };
    match kind {
        Kind::Policy if name == CHOICE => Some(Look {
            light: (0xD5, 0x5E, 0x00),
            dark: (0xFF, 0x8A, 0x3C),
            dash: Dash::Solid,
            symbol: Symbol::Circle,
            width: 4,
        }),
        Kind::Peer if name == "C library" => Some(plain),
        Kind::Read | Kind::Control => Some(Look {
            light: (0x6B, 0x72, 0x80),
            dark: (0xA3, 0xAB, 0xB5),
            dash: Dash::Dotted,
            symbol: Symbol::Ring,
            ..plain
        }),
        _ => None,
    }
}

/// What the policy's plain choice is called.
const CHOICE: &str = "bulkmem's choice";

impl Symbol {
    /// As ECharts calls it.
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
    /// As ECharts calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Dash::Solid => "solid",
            Dash::Dashed => "dashed",
            Dash::Dotted => "dotted",
        }
    }
}

/// A colour as style sheets have it.
pub(super) fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many methods there are, the first eighteen differ in more than colour or in colour.
    #[test]
    fn nobody_looks_like_somebody_else() {
        let looks = Looks { names: (0..18).map(|at| format!("method {at}")).collect() };
        let mut seen: Vec<Look> = looks.names.iter().map(|name| looks.look(Kind::Method, name)).collect();
        seen.push(looks.look(Kind::Policy, CHOICE));
        seen.push(looks.look(Kind::Peer, "C library"));
        seen.push(looks.look(Kind::Read, "reading"));
        for (at, look) in seen.iter().enumerate() {
            assert!(!seen[..at].contains(look), "{at}: {look:?}");
        }
        // The first ones differ without their colours, too.
        let shapes: Vec<_> = seen[..6].iter().map(|look| (look.dash.name(), look.symbol.name())).collect();
        for (at, shape) in shapes.iter().enumerate() {
            assert!(!shapes[..at].contains(shape), "{at}: {shape:?}");
        }
    }
}
