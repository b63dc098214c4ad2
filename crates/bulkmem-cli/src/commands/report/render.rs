//! One chart as a picture: SVG or PNG, with its legend in it, in a font of our own.

use std::sync::Once;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE, register_font};

use super::look::{Dash, Look, Looks, Symbol};
use super::model::{Axis, Chart, Scale, Series, Shape};
use super::names::digits;
use crate::failure::Failure;
use crate::output::size;

/// In pixels, before scaling.
const WIDTH: u32 = 1000;
const LINES_HEIGHT: u32 = 500;
/// What the title takes.
const TITLE: i32 = 44;
/// Of a bar, with its gap.
const BAR: i32 = 26;
const LEGEND_ROW: i32 = 24;
/// Pixels of a PNG for each of the above: sharp on paper, too.
const SHARP: u32 = 2;

const INK: RGBColor = RGBColor(0x1C, 0x1E, 0x21);
const FAINT: RGBColor = RGBColor(0x59, 0x60, 0x6A);
const GRID: RGBColor = RGBColor(0xD9, 0xDD, 0xE2);
const FONT: &str = "sans-serif";

const FONT_BYTES: &[u8] = include_bytes!("../../../assets/dejavu/DejaVuSans-subset.ttf");

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// The font that is carried, so that pictures need none of the system's.
fn font() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // A broken font would be found by a test; drawing would then say that there is none.
        _ = register_font(FONT, FontStyle::Normal, FONT_BYTES);
    });
}

/// The chart as SVG.
///
/// # Errors
/// Where it cannot be drawn.
pub(super) fn svg(chart: &Chart) -> Result<String, Failure> {
    font();
    let mut text = String::new();
    let looks = Looks::of([chart].into_iter());
    let picture = Picture { chart, looks: &looks, scale: 1 };
    let area = SVGBackend::with_string(&mut text, picture.size()).into_drawing_area();
    picture.draw(&area).map_err(failed)?;
    drop(area);
    Ok(text)
}

/// The chart as PNG.
///
/// # Errors
/// Where it cannot be drawn or encoded.
pub(super) fn png(chart: &Chart) -> Result<Vec<u8>, Failure> {
    font();
    let looks = Looks::of([chart].into_iter());
    let picture = Picture { chart, looks: &looks, scale: SHARP };
    let (width, height) = picture.size();
    let mut pixels = vec![0xFF; width as usize * height as usize * 3];
    let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    picture.draw(&area).map_err(failed)?;
    drop(area);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::new(format!("cannot draw the chart: {error}"))
}

struct Picture<'c> {
    chart: &'c Chart,
    looks: &'c Looks,
    scale: u32,
}

/// An entry of the legend: where it stands, relative to the legend's corner.
struct Entry<'c> {
    series: &'c Series,
    left: u32,
    row: u32,
}

impl Picture<'_> {
    fn shown(&self) -> impl DoubleEndedIterator<Item = &Series> {
        self.chart.series.iter().filter(|series| series.shown)
    }

    /// The legend's entries, wrapped. Widths are reckoned, so that the picture's size is known before it is drawn.
    fn legend(&self) -> Vec<Entry<'_>> {
        let (mut left, mut row) = (0, 0);
        let mut entries = Vec::new();
        for series in self.shown() {
            let width = 56 + series.name.chars().count() as u32 * 9;
            if left > 0 && left + width > WIDTH - 60 {
                (left, row) = (0, row + 1);
            }
            entries.push(Entry { series, left, row });
            left += width;
        }
        entries
    }

    /// How many bars there is room for.
    fn bar_count(&self) -> u32 {
        let Scale::Named(configs) = &self.chart.configs.scale else { return 0 };
        let each = if self.stacked() { 1 } else { self.shown().count().max(1) };
        (configs.len() * each) as u32
    }

    /// Whether each place has one bar, whoever's it is.
    fn stacked(&self) -> bool {
        self.chart.configs.name.is_empty()
    }

    /// The height of the title and the plot.
    fn plot_height(&self) -> u32 {
        match self.chart.shape {
            Shape::Lines => LINES_HEIGHT,
            Shape::Bars => self.bar_count() * BAR as u32 + TITLE as u32 + 60,
        }
    }

    fn size(&self) -> (u32, u32) {
        let legend = self.legend().last().map_or(0, |entry| (entry.row + 1) * LEGEND_ROW as u32) + 14;
        (WIDTH * self.scale, (self.plot_height() + legend) * self.scale)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        area.fill(&WHITE)?;
        let canvas = Canvas { area, scale: self.scale as i32 };
        canvas.text(&self.chart.title, (20, 14), 20, INK, HPos::Left, VPos::Top)?;
        match self.chart.shape {
            Shape::Lines => self.lines(&canvas, TITLE)?,
            Shape::Bars => self.bars(&canvas, TITLE)?,
        }
        self.draw_legend(&canvas, self.plot_height() as i32)?;
        area.present()
    }

    fn lines<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>, top: i32) -> Drawn<B> {
        let (left, right) = (86, WIDTH as i32 - 40);
        let (upper, lower) = (top + 40, top + LINES_HEIGHT as i32 - TITLE - 60);
        let (configs, values) = (&self.chart.configs, &self.chart.values);
        let points = || self.shown().flat_map(|series| &series.points);
        let (from, to) = ends(points().map(|point| along(configs, point.config)));
        let (low, high) = ends(points().map(|point| along(values, point.value)));
        let floor = if values.scale == Scale::Decades { low.floor() } else { low.min(0.0) };
        let ceiling = if values.scale == Scale::Decades { high.ceil() } else { high + (high - floor) * 0.05 };
        let x = |config: f64| spread(along(configs, config), from, to, left + 14, right - 14);
        let y = |value: f64| spread(along(values, value), floor, ceiling, lower, upper);
        for (at, name) in value_ticks(values, floor, ceiling) {
            let at = spread(at, floor, ceiling, lower, upper);
            canvas.line(&[(left, at), (right, at)], Dash::Solid, 1, GRID)?;
            canvas.text(&name, (left - 8, at), 14, FAINT, HPos::Right, VPos::Center)?;
        }
        canvas.line(&[(left, lower), (right, lower)], Dash::Solid, 1, FAINT)?;
        for (at, name) in place_ticks(configs, from, to) {
            let at = spread(at, from, to, left + 14, right - 14);
            canvas.line(&[(at, lower), (at, lower + 5)], Dash::Solid, 1, FAINT)?;
            canvas.text(&name, (at, lower + 9), 14, FAINT, HPos::Center, VPos::Top)?;
        }
        canvas.text(&values.name, (left, upper - 34), 14, FAINT, HPos::Left, VPos::Top)?;
        canvas.text(&configs.name, ((left + right) / 2, lower + 32), 14, FAINT, HPos::Center, VPos::Top)?;
        for (config, name) in &self.chart.marks {
            canvas.line(&[(x(*config), lower), (x(*config), upper)], Dash::Dashed, 1, FAINT)?;
            canvas.text(name, (x(*config), upper - 4), 13, FAINT, HPos::Center, VPos::Bottom)?;
        }
        // The first is drawn last, over the others.
        for series in self.shown().rev() {
            let look = self.looks.look(series.kind, &series.name);
            let points: Vec<Pixel> = series.points.iter().map(|it| (x(it.config), y(it.value))).collect();
            canvas.line(&points, look.dash, look.width, colour(look))?;
            for point in points {
                canvas.symbol(point, look)?;
            }
        }
        Ok(())
    }

    /// Bars that lie, each with its figure at its end.
    fn bars<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>, top: i32) -> Drawn<B> {
        let Scale::Named(names) = &self.chart.configs.scale else { return Ok(()) };
        let (left, right) = (380, WIDTH as i32 - 90);
        let lower = top + self.bar_count() as i32 * BAR;
        let points = || self.shown().flat_map(|series| &series.points);
        let (low, high) = ends(points().map(|point| point.value));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let x = |value: f64| spread(value, low, high, left, right);
        for (at, name) in value_ticks(&self.chart.values, low, high) {
            canvas.line(&[(x(at), top), (x(at), lower)], Dash::Solid, 1, GRID)?;
            canvas.text(&name, (x(at), lower + 6), 14, FAINT, HPos::Center, VPos::Top)?;
        }
        canvas.text(
            &self.chart.values.name,
            ((left + right) / 2, lower + 30),
            14,
            FAINT,
            HPos::Center,
            VPos::Top,
        )?;
        let each = if self.stacked() { 1 } else { self.shown().count().max(1) as i32 };
        for (at, name) in names.iter().enumerate() {
            let middle = top + (at as i32 * each) * BAR + each * BAR / 2;
            canvas.text(&shortened(name, 44), (left - 10, middle), 14, INK, HPos::Right, VPos::Center)?;
        }
        for (number, series) in self.shown().enumerate() {
            let look = self.looks.look(series.kind, &series.name);
            for point in &series.points {
                let slot = if self.stacked() { 0 } else { number as i32 };
                let upper = top + (point.config as i32 * each + slot) * BAR;
                canvas.bar((x(0.0), upper + 4), (x(point.value), upper + BAR - 4), colour(look))?;
                let end = x(point.value.max(0.0));
                canvas.symbol((end, upper + BAR / 2), look)?;
                let figure = digits(point.value);
                canvas.text(&figure, (end + 12, upper + BAR / 2), 14, INK, HPos::Left, VPos::Center)?;
            }
        }
        canvas.line(&[(x(0.0), top), (x(0.0), lower)], Dash::Solid, 1, FAINT)
    }

    fn draw_legend<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>, top: i32) -> Drawn<B> {
        for Entry { series, left, row } in self.legend() {
            let look = self.looks.look(series.kind, &series.name);
            let (left, middle) = (30 + left as i32, top + row as i32 * LEGEND_ROW + LEGEND_ROW / 2);
            match self.chart.shape {
                Shape::Lines => {
                    canvas.line(
                        &[(left, middle), (left + 32, middle)],
                        look.dash,
                        look.width,
                        colour(look),
                    )?;
                }
                Shape::Bars => canvas.bar((left, middle - 6), (left + 32, middle + 6), colour(look))?,
            }
            canvas.symbol((left + if self.chart.shape == Shape::Lines { 16 } else { 32 }, middle), look)?;
            canvas.text(&series.name, (left + 42, middle), 14, INK, HPos::Left, VPos::Center)?;
        }
        Ok(())
    }
}

type Pixel = (i32, i32);

/// An area that is drawn on in pixels of its own, each as large as the scale says.
struct Canvas<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    scale: i32,
}

impl<B: DrawingBackend> Canvas<'_, B> {
    fn at(&self, (x, y): Pixel) -> Pixel {
        (x * self.scale, y * self.scale)
    }

    fn stroke(&self, width: u32, colour: RGBColor) -> ShapeStyle {
        colour.stroke_width(width * self.scale as u32)
    }

    fn line(&self, points: &[Pixel], dash: Dash, width: u32, colour: RGBColor) -> Drawn<B> {
        let points: Vec<Pixel> = points.iter().map(|point| self.at(*point)).collect();
        let style = self.stroke(width, colour);
        let broken = |length: i32, gap: i32| {
            DashedPathElement::new(points.clone(), length * self.scale, gap * self.scale, style)
        };
        match dash {
            Dash::Solid => self.area.draw(&PathElement::new(points, style)),
            Dash::Dashed => self.area.draw(&broken(8, 5)),
            Dash::Dotted => self.area.draw(&broken(2, 4)),
        }
    }

    fn text(&self, text: &str, at: Pixel, size: i32, colour: RGBColor, h: HPos, v: VPos) -> Drawn<B> {
        let style: TextStyle<'_> = (FONT, f64::from(size * self.scale)).into_font().color(&colour);
        self.area.draw(&Text::new(text.to_owned(), self.at(at), style.pos(Pos::new(h, v))))
    }

    fn bar(&self, from: Pixel, to: Pixel, colour: RGBColor) -> Drawn<B> {
        self.area.draw(&Rectangle::new([self.at(from), self.at(to)], colour.filled()))
    }

    fn symbol(&self, (x, y): Pixel, look: Look) -> Drawn<B> {
        let size = if look.width > 3 { 6 } else { 5 };
        let corners = |shape: &[Pixel]| -> Vec<Pixel> {
            shape.iter().map(|(dx, dy)| self.at((x + dx * size / 5, y + dy * size / 5))).collect()
        };
        let square = corners(&[(-4, -4), (4, -4), (4, 4), (-4, 4), (-4, -4)]);
        let filled = colour(look).filled();
        let outline = self.stroke(2, colour(look));
        let centre = self.at((x, y));
        match look.symbol {
            Symbol::Circle => self.area.draw(&Circle::new(centre, size * self.scale, filled)),
            Symbol::Square => self.area.draw(&Polygon::new(square, filled)),
            Symbol::Triangle => self.area.draw(&Polygon::new(corners(&[(0, -6), (5, 4), (-5, 4)]), filled)),
            Symbol::Diamond => {
                self.area.draw(&Polygon::new(corners(&[(0, -6), (6, 0), (0, 6), (-6, 0)]), filled))
            }
            Symbol::Ring => {
                self.area.draw(&Circle::new(centre, 4 * self.scale, WHITE.filled()))?;
                self.area.draw(&Circle::new(centre, 4 * self.scale, outline))
            }
            Symbol::Frame => {
                self.area.draw(&Polygon::new(square.clone(), WHITE.filled()))?;
                self.area.draw(&PathElement::new(square, outline))
            }
        }
    }
}

fn colour(look: Look) -> RGBColor {
    let (red, green, blue) = look.light;
    RGBColor(red, green, blue)
}

/// Where a figure stands along an axis, in steps that are even on paper.
fn along(axis: &Axis, figure: f64) -> f64 {
    match axis.scale {
        Scale::Bytes => figure.max(1.0).log2(),
        Scale::Decades => figure.max(1e-12).log10(),
        Scale::Even | Scale::Named(_) => figure,
    }
}

/// The least and the most; apart, even where all are the same or there are none.
fn ends(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = figures.filter(|figure| figure.is_finite());
    let (low, high) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
    match high - low {
        apart if apart > 0.0 => (low, high),
        _ if low.is_finite() => (low, low + low.abs().max(1.0)),
        _ => (0.0, 1.0),
    }
}

/// The pixel of a figure between two ends.
fn spread(figure: f64, from: f64, to: f64, first: i32, last: i32) -> i32 {
    let share = if figure.is_finite() { (figure - from) / (to - from) } else { 0.0 };
    first + (share * f64::from(last - first)).round() as i32
}

/// Some round figures between two ends, about six.
fn round_figures(from: f64, to: f64) -> Vec<f64> {
    let raw = (to - from) / 6.0;
    let decade = 10f64.powf(raw.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|it| it * decade).find(|it| *it >= raw).unwrap_or(raw);
    let first = (from / step).ceil() as i64;
    let last = (to / step).floor() as i64;
    (first..=last).map(|at| at as f64 * step).collect()
}

fn value_ticks(axis: &Axis, from: f64, to: f64) -> Vec<(f64, String)> {
    if axis.scale == Scale::Decades {
        return (from as i32..=to as i32).map(|at| (f64::from(at), digits(10f64.powi(at)))).collect();
    }
    let plain = |at: f64| format!("{}", (at * 1e9).round() / 1e9);
    let named = |at: f64| if at.abs() >= 10_000.0 { digits(at) } else { plain(at) };
    round_figures(from, to).into_iter().map(|at| (at, named(at))).collect()
}

fn place_ticks(axis: &Axis, from: f64, to: f64) -> Vec<(f64, String)> {
    match &axis.scale {
        Scale::Named(names) => names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(),
        Scale::Bytes => {
            let (first, last) = (from.ceil() as u32, to.floor() as u32);
            let step = (last.saturating_sub(first) / 10 + 1) as usize;
            (first..=last.min(63)).step_by(step).map(|at| (f64::from(at), size(1 << at))).collect()
        }
        Scale::Even | Scale::Decades => {
            round_figures(from, to).into_iter().map(|at| (at, format!("{at}"))).collect()
        }
    }
}

/// A name of at most so many letters.
fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::Kind;

    use super::super::model::{Grid, Point};
    use super::*;

    fn chart(shape: Shape, scale: Scale, figures: &[(f64, f64)]) -> Chart {
        let point = |(config, value): &(f64, f64)| Point {
            config: *config,
            value: *value,
            interval: None,
            remark: String::new(),
        };
        let series = |name: &str, kind| Series {
            name: name.to_owned(),
            kind,
            shown: true,
            points: figures.iter().map(point).collect(),
        };
        Chart {
            name: "test".into(),
            title: "A <title> & more".into(),
            shape,
            more: true,
            configs: Axis { name: "size".into(), scale },
            values: Axis { name: "speed, GB/s".into(), scale: Scale::Even },
            series: vec![series("bulkmem's choice", Kind::Policy), series("a <method>", Kind::Method)],
            marks: vec![(65536.0, "L1 64 KiB".into())],
            group: String::new(),
            folded: false,
            brief: Grid::default(),
            figures: Grid::default(),
        }
    }

    fn charts() -> Vec<Chart> {
        let names = || Scale::Named(vec!["first".into(), "second".into()]);
        let mut latency = chart(Shape::Lines, names(), &[(0.0, 100.0), (1.0, 90_000.0)]);
        latency.values.scale = Scale::Decades;
        vec![
            chart(Shape::Lines, Scale::Bytes, &[(4096.0, 10.0), (1e9, 4.0)]),
            chart(Shape::Lines, Scale::Bytes, &[(4096.0, 10.0)]),
            chart(Shape::Lines, Scale::Even, &[(0.0, -3.0), (100.0, f64::NAN)]),
            chart(Shape::Lines, Scale::Even, &[]),
            chart(Shape::Bars, names(), &[(0.0, -5.0), (1.0, 7.0)]),
            latency,
        ]
    }

    #[test]
    fn svg_is_well_formed_and_names_everybody() {
        for chart in charts() {
            let text = svg(&chart).unwrap();
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
            assert!(text.contains("a &lt;method&gt;") && !text.contains("<method>"), "{text}");
            assert!(text.contains("#D55E00"), "the choice's colour: {text}");
        }
    }

    #[test]
    fn png_is_drawn_in_several_colours() {
        for chart in charts() {
            let bytes = png(&chart).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            let frame = reader.next_frame(&mut pixels).unwrap();
            assert_eq!((frame.width, frame.color_type), (WIDTH * SHARP, png::ColorType::Rgb));
            for wanted in [[0xFF, 0xFF, 0xFF], [0xD5, 0x5E, 0x00], [0x00, 0x72, 0xB2]] {
                let count = pixels.chunks_exact(3).filter(|pixel| *pixel == wanted).count();
                assert!(count > 50, "{wanted:?} in {count} pixels");
            }
        }
    }

    /// Every letter of our charts is in the font: none is drawn as a box.
    #[test]
    fn the_font_has_the_letters() {
        use ab_glyph::{Font, FontRef};
        let font = FontRef::try_from_slice(FONT_BYTES).unwrap();
        for letter in "GB/s ns 95 % ± × – … ⁹ ² “” ≤ µ ÄÖÜß éè 1\u{a0}000 [=]()".chars()
        {
            assert!(font.glyph_id(letter).0 != 0, "{letter:?}");
        }
    }

    #[test]
    fn round_figures_are_round() {
        assert_eq!(round_figures(0.0, 12.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(round_figures(-10.0, 20.0), [-10.0, -5.0, 0.0, 5.0, 10.0, 15.0, 20.0]);
    }
}
