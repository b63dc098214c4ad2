//! One chart as SVG or PNG, with its legend, in an embedded font.

use std::f64::consts::TAU;
use std::sync::Once;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{DashedPathElement, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE, register_font};

use super::model::{Axis, Chart, Point, Scale, Series, Shape};
use super::style::{Dash, Style, Styles, Symbol};
use crate::failure::Failure;
use crate::output::{count, digits, size};

// Sizes in pixels, before scaling.
const WIDTH: i32 = 1000;
const LINES_HEIGHT: i32 = 500;
const TITLE_HEIGHT: i32 = 44;
/// Height of a bar with its gap.
const BAR_HEIGHT: i32 = 26;
const LEGEND_ROW_HEIGHT: i32 = 24;
/// Scale of a PNG, so that it is sharp on paper, too.
const PNG_SCALE: i32 = 2;

const INK: RGBColor = RGBColor(0x1C, 0x1E, 0x21);
const FAINT: RGBColor = RGBColor(0x59, 0x60, 0x6A);
const GRID: RGBColor = RGBColor(0xD9, 0xDD, 0xE2);
const FONT: &str = "sans-serif";
const FONT_BYTES: &[u8] = include_bytes!("../../../assets/dejavu/DejaVuSans-subset.ttf");

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// Returns the chart as SVG.
///
/// # Errors
/// If it cannot be drawn.
pub(super) fn svg(chart: &Chart) -> Result<String, Failure> {
    let mut text = String::new();
    let picture = Picture::new(chart, 1);
    let area = SVGBackend::with_string(&mut text, picture.size()).into_drawing_area();
    picture.draw(&area).map_err(failed)?;
    drop(area);
    Ok(text)
}

/// Returns the chart as PNG.
///
/// # Errors
/// If it cannot be drawn or encoded.
pub(super) fn png(chart: &Chart) -> Result<Vec<u8>, Failure> {
    let picture = Picture::new(chart, PNG_SCALE);
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
    /// The series that are drawn.
    series: Vec<(&'c Series, Style)>,
    scale: i32,
}

impl<'c> Picture<'c> {
    fn new(chart: &'c Chart, scale: i32) -> Picture<'c> {
        static REGISTERED: Once = Once::new();
        // Drawing fails if the font is damaged.
        REGISTERED.call_once(|| _ = register_font(FONT, FontStyle::Normal, FONT_BYTES));
        let styles = Styles::of([chart].into_iter());
        let shown = chart.series.iter().filter(|series| series.shown);
        let series = shown.map(|series| (series, styles.style(series.kind, &series.name))).collect();
        Picture { chart, series, scale }
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|(series, _)| &series.points)
    }

    /// Returns the entries of the legend, wrapped: each with its distance from the left, and its row. Widths are
    /// estimated, because the size of the picture must be known before it is drawn.
    fn legend(&self) -> Vec<(&Series, Style, i32, i32)> {
        let (mut left, mut row) = (0, 0);
        let entries = self.series.iter().map(|(series, style)| {
            let width = 56 + series.name.chars().count() as i32 * 9;
            if left > 0 && left + width > WIDTH - 60 {
                (left, row) = (0, row + 1);
            }
            left += width;
            (*series, *style, left - width, row)
        });
        entries.collect()
    }

    /// Returns the names along the vertical axis of bars, and the number of bars for each.
    fn bar_groups(&self) -> (&[String], i32) {
        let Scale::Named(names) = &self.chart.x_axis.scale else { return (&[], 1) };
        (names, if self.stacked() { 1 } else { self.series.len().max(1) as i32 })
    }

    /// Returns true if each position has one bar.
    fn stacked(&self) -> bool {
        self.chart.x_axis.name.is_empty()
    }

    /// Returns the height of title and plot.
    fn plot_height(&self) -> i32 {
        let (names, each) = self.bar_groups();
        match self.chart.shape {
            Shape::Lines => LINES_HEIGHT,
            Shape::Bars => names.len() as i32 * each * BAR_HEIGHT + TITLE_HEIGHT + 60,
        }
    }

    fn size(&self) -> (u32, u32) {
        let legend = self.legend().last().map_or(0, |(.., row)| (row + 1) * LEGEND_ROW_HEIGHT) + 14;
        ((WIDTH * self.scale) as u32, ((self.plot_height() + legend) * self.scale) as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        area.fill(&WHITE)?;
        let canvas = Canvas { area, scale: self.scale };
        canvas.text(&self.chart.title, (20, 14), 20, INK, HPos::Left, VPos::Top)?;
        match self.chart.shape {
            Shape::Lines => self.lines(&canvas)?,
            Shape::Bars => self.bars(&canvas)?,
        }
        self.draw_legend(&canvas)?;
        area.present()
    }

    fn lines<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>) -> Drawn<B> {
        let (left, right) = (86, WIDTH - 40);
        let (upper, lower) = (TITLE_HEIGHT + 40, LINES_HEIGHT - 60);
        let (x_axis, y_axis) = (&self.chart.x_axis, &self.chart.y_axis);
        let (from, to) = ends(self.points().map(|point| linear(x_axis, point.x)));
        let (low, high) = ends(self.points().map(|point| linear(y_axis, point.value)));
        let (low, high) = match y_axis.scale {
            Scale::Decades => (low.floor(), high.ceil()),
            _ => (low.min(0.0), high + (high - low.min(0.0)) * 0.05),
        };
        let across = |at: f64| spread(at, (from, to), left + 14, right - 14);
        let up = |at: f64| spread(at, (low, high), lower, upper);
        for (at, name) in value_ticks(y_axis, low, high) {
            canvas.line(&[(left, up(at)), (right, up(at))], Dash::Solid, 1, GRID)?;
            canvas.text(&name, (left - 8, up(at)), 14, FAINT, HPos::Right, VPos::Center)?;
        }
        canvas.line(&[(left, lower), (right, lower)], Dash::Solid, 1, FAINT)?;
        for (at, name) in position_ticks(x_axis, from, to) {
            canvas.line(&[(across(at), lower), (across(at), lower + 5)], Dash::Solid, 1, FAINT)?;
            canvas.text(&name, (across(at), lower + 9), 14, FAINT, HPos::Center, VPos::Top)?;
        }
        canvas.text(&y_axis.name, (left, upper - 34), 14, FAINT, HPos::Left, VPos::Top)?;
        canvas.text(&x_axis.name, ((left + right) / 2, lower + 32), 14, FAINT, HPos::Center, VPos::Top)?;
        for (x, name) in &self.chart.marks {
            let x = across(linear(x_axis, *x));
            canvas.line(&[(x, lower), (x, upper)], Dash::Dashed, 1, FAINT)?;
            canvas.text(name, (x, upper - 4), 13, FAINT, HPos::Center, VPos::Bottom)?;
        }
        // The first series is drawn last, on top of the others.
        for (series, style) in self.series.iter().rev() {
            let pixel = |it: &Point| (across(linear(x_axis, it.x)), up(linear(y_axis, it.value)));
            let points: Vec<Pixel> = series.points.iter().map(pixel).collect();
            canvas.line(&points, style.dash, style.width, colour(*style))?;
            for point in points {
                canvas.symbol(point, *style)?;
            }
        }
        Ok(())
    }

    /// Draws horizontal bars, each with its figure at the end.
    fn bars<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>) -> Drawn<B> {
        let (names, each) = self.bar_groups();
        let (left, right, top) = (380, WIDTH - 90, TITLE_HEIGHT);
        let lower = top + names.len() as i32 * each * BAR_HEIGHT;
        let (low, high) = ends(self.points().map(|point| point.value));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let x = |value: f64| spread(value, (low, high), left, right);
        for (at, name) in value_ticks(&self.chart.y_axis, low, high) {
            canvas.line(&[(x(at), top), (x(at), lower)], Dash::Solid, 1, GRID)?;
            canvas.text(&name, (x(at), lower + 6), 14, FAINT, HPos::Center, VPos::Top)?;
        }
        let middle = ((left + right) / 2, lower + 30);
        canvas.text(&self.chart.y_axis.name, middle, 14, FAINT, HPos::Center, VPos::Top)?;
        for (at, name) in names.iter().enumerate() {
            let middle = top + at as i32 * each * BAR_HEIGHT + each * BAR_HEIGHT / 2;
            canvas.text(&shortened(name, 44), (left - 10, middle), 14, INK, HPos::Right, VPos::Center)?;
        }
        for (number, (series, style)) in self.series.iter().enumerate() {
            let slot = if self.stacked() { 0 } else { number as i32 };
            for point in &series.points {
                let upper = top + (point.x as i32 * each + slot) * BAR_HEIGHT;
                let (end, middle) = (x(point.value.max(0.0)), upper + BAR_HEIGHT / 2);
                canvas.bar((x(0.0), upper + 4), (x(point.value), upper + BAR_HEIGHT - 4), colour(*style))?;
                canvas.symbol((end, middle), *style)?;
                canvas.text(&digits(point.value), (end + 12, middle), 14, INK, HPos::Left, VPos::Center)?;
            }
        }
        canvas.line(&[(x(0.0), top), (x(0.0), lower)], Dash::Solid, 1, FAINT)
    }

    fn draw_legend<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>) -> Drawn<B> {
        for (series, style, left, row) in self.legend() {
            let left = 30 + left;
            let middle = self.plot_height() + row * LEGEND_ROW_HEIGHT + LEGEND_ROW_HEIGHT / 2;
            if self.chart.shape == Shape::Lines {
                let line = [(left, middle), (left + 32, middle)];
                canvas.line(&line, style.dash, style.width, colour(style))?;
                canvas.symbol((left + 16, middle), style)?;
            } else {
                canvas.bar((left, middle - 6), (left + 32, middle + 6), colour(style))?;
                canvas.symbol((left + 32, middle), style)?;
            }
            canvas.text(&series.name, (left + 42, middle), 14, INK, HPos::Left, VPos::Center)?;
        }
        Ok(())
    }
}

type Pixel = (i32, i32);

/// A drawing area with scaled pixels.
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
        let (length, gap) = match dash {
            Dash::Solid => return self.area.draw(&PathElement::new(points, style)),
            Dash::Dashed => (8, 5),
            Dash::Dotted => (2, 4),
        };
        self.area.draw(&DashedPathElement::new(points, length * self.scale, gap * self.scale, style))
    }

    fn text(&self, text: &str, at: Pixel, size: i32, colour: RGBColor, h: HPos, v: VPos) -> Drawn<B> {
        let style: TextStyle<'_> = (FONT, f64::from(size * self.scale)).into_font().color(&colour);
        self.area.draw(&Text::new(text.to_owned(), self.at(at), style.pos(Pos::new(h, v))))
    }

    fn bar(&self, from: Pixel, to: Pixel, colour: RGBColor) -> Drawn<B> {
        self.area.draw(&Rectangle::new([self.at(from), self.at(to)], colour.filled()))
    }

    fn symbol(&self, (x, y): Pixel, style: Style) -> Drawn<B> {
        let size = if style.width > 3 { 6 } else { 5 };
        let circle =
            || (0..=24).map(|step| f64::from(step) / 24.0 * TAU).map(|at| (at.cos() * 5.0, at.sin() * 5.0));
        let corners: Vec<(f64, f64)> = match style.symbol {
            Symbol::Circle | Symbol::EmptyCircle => circle().collect(),
            Symbol::Rect | Symbol::EmptyRect => vec![(-4., -4.), (4., -4.), (4., 4.), (-4., 4.), (-4., -4.)],
            Symbol::Triangle => vec![(0., -6.), (5., 4.), (-5., 4.)],
            Symbol::Diamond => vec![(0., -6.), (6., 0.), (0., 6.), (-6., 0.)],
        };
        let scaled = |at: i32, distance: f64| {
            ((f64::from(at) + distance * f64::from(size) / 5.0) * f64::from(self.scale)).round() as i32
        };
        let points: Vec<Pixel> = corners.into_iter().map(|(dx, dy)| (scaled(x, dx), scaled(y, dy))).collect();
        if matches!(style.symbol, Symbol::EmptyCircle | Symbol::EmptyRect) {
            self.area.draw(&Polygon::new(points.clone(), WHITE.filled()))?;
            return self.area.draw(&PathElement::new(points, self.stroke(2, colour(style))));
        }
        self.area.draw(&Polygon::new(points, colour(style).filled()))
    }
}

fn colour(style: Style) -> RGBColor {
    let [_, red, green, blue] = u32::from_str_radix(&style.light[1..], 16).unwrap_or_default().to_be_bytes();
    RGBColor(red, green, blue)
}

/// Returns the position of a figure along an axis, on a linear scale.
fn linear(axis: &Axis, figure: f64) -> f64 {
    match axis.scale {
        Scale::Bytes => figure.max(1.0).log2(),
        Scale::Decades => figure.max(1e-12).log10(),
        Scale::Linear | Scale::Named(_) => figure,
    }
}

/// Returns the smallest and the largest figure; different, even if all figures are equal or there are none.
fn ends(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
    let low = finite.iter().copied().reduce(f64::min).unwrap_or(0.0);
    let high = finite.iter().copied().reduce(f64::max).unwrap_or(1.0);
    if high > low { (low, high) } else { (low, low + low.abs().max(1.0)) }
}

/// Returns the pixel of a figure between two ends.
fn spread(figure: f64, (from, to): (f64, f64), first: i32, last: i32) -> i32 {
    let share = if figure.is_finite() { (figure - from) / (to - from) } else { 0.0 };
    first + (share * f64::from(last - first)).round() as i32
}

/// Returns about six round figures between two ends.
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
        return (from as i32..=to as i32).map(|at| (f64::from(at), tick(10f64.powi(at)))).collect();
    }
    round_figures(from, to).into_iter().map(|at| (at, tick(at))).collect()
}

fn tick(figure: f64) -> String {
    if figure >= 10_000.0 { count(figure) } else { format!("{}", (figure * 1e9).round() / 1e9) }
}

fn position_ticks(axis: &Axis, from: f64, to: f64) -> Vec<(f64, String)> {
    match &axis.scale {
        Scale::Named(names) => names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(),
        Scale::Bytes => {
            let (first, last) = (from.ceil() as u32, to.floor() as u32);
            let step = (last.saturating_sub(first) / 10 + 1) as usize;
            (first..=last.min(63)).step_by(step).map(|at| (f64::from(at), size(1 << at))).collect()
        }
        Scale::Linear | Scale::Decades => {
            round_figures(from, to).into_iter().map(|at| (at, tick(at))).collect()
        }
    }
}

/// Shortens a name to at most so many letters.
fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::Kind;

    use super::super::model::Grid;
    use super::*;

    fn chart(shape: Shape, scale: Scale, figures: &[(f64, f64)]) -> Chart {
        let point =
            |(x, value): &(f64, f64)| Point { x: *x, value: *value, interval: None, remark: String::new() };
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
            higher_is_better: true,
            x_axis: Axis { name: "size".into(), scale },
            y_axis: Axis { name: "speed, GB/s".into(), scale: Scale::Linear },
            series: vec![series("the policy's choice", Kind::Policy), series("a <method>", Kind::Method)],
            marks: vec![(65536.0, "L1 64 KiB".into())],
            group: String::new(),
            folded: false,
            overview: Grid::default(),
            details: Grid::default(),
        }
    }

    fn charts() -> Vec<Chart> {
        let names = || Scale::Named(vec!["first".into(), "second".into()]);
        let mut latency = chart(Shape::Lines, names(), &[(0.0, 100.0), (1.0, 90_000.0)]);
        latency.y_axis.scale = Scale::Decades;
        vec![
            chart(Shape::Lines, Scale::Bytes, &[(4096.0, 10.0), (1e9, 4.0)]),
            chart(Shape::Lines, Scale::Bytes, &[(4096.0, 10.0)]),
            chart(Shape::Lines, Scale::Linear, &[(0.0, -3.0), (100.0, f64::NAN)]),
            chart(Shape::Lines, Scale::Linear, &[]),
            chart(Shape::Bars, names(), &[(0.0, -5.0), (1.0, 7.0)]),
            latency,
        ]
    }

    #[test]
    fn svg_is_well_formed_and_names_every_series() {
        for chart in charts() {
            let text = svg(&chart).unwrap();
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
            assert!(text.contains("a &lt;method&gt;") && !text.contains("<method>"), "{text}");
            assert!(text.contains("#D55E00"), "the colour of the policy: {text}");
        }
    }

    #[test]
    fn png_is_drawn_in_several_colours() {
        for chart in charts() {
            let bytes = png(&chart).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            let frame = reader.next_frame(&mut pixels).unwrap();
            assert_eq!((frame.width, frame.color_type), ((WIDTH * PNG_SCALE) as u32, png::ColorType::Rgb));
            for wanted in [[0xFF, 0xFF, 0xFF], [0xD5, 0x5E, 0x00], [0x00, 0x72, 0xB2]] {
                let count = pixels.chunks_exact(3).filter(|pixel| *pixel == wanted).count();
                assert!(count > 50, "{wanted:?} in {count} pixels");
            }
        }
    }

    /// Letters without a glyph would be drawn as boxes.
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
