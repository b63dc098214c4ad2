//! One chart as SVG or PNG, with its legend, in an embedded font.

use std::f64::consts::TAU;
use std::sync::Once;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{DashedPathElement, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, TextStyle, WHITE, register_font};

use super::model::{Axis, Chart, Point, Scale, Series, Shape};
use super::style::{Style, Styles};
use crate::failure::Failure;
use crate::output::{count, digits, size};

// Sizes in pixels of a PNG, which is sharp on paper, too. An SVG is shown at half the size.
const WIDTH: i32 = 2000;
const LINES_HEIGHT: i32 = 1000;
const TITLE_HEIGHT: i32 = 88;
/// Height of a bar with its gap.
const BAR_HEIGHT: i32 = 52;
const LEGEND_ROW_HEIGHT: i32 = 48;

const INK: RGBColor = RGBColor(0x1C, 0x1E, 0x21);
const FAINT: RGBColor = RGBColor(0x59, 0x60, 0x6A);
const GRID: RGBColor = RGBColor(0xD9, 0xDD, 0xE2);
const FONT: &str = "sans-serif";
const FONT_BYTES: &[u8] = include_bytes!("../../../assets/dejavu/DejaVuSans-subset.ttf");

type Area<B> = DrawingArea<B, Shift>;
type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

pub(super) fn svg(chart: &Chart) -> Result<String, Failure> {
    let mut text = String::new();
    let picture = Picture::new(chart);
    let (width, height) = picture.size();
    let area = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
    picture.draw(&area).map_err(failed)?;
    drop(area);
    let size = |by: u32| format!("width=\"{}\" height=\"{}\"", width / by, height / by);
    Ok(text.replacen(&size(1), &size(2), 1))
}

pub(super) fn png(chart: &Chart) -> Result<Vec<u8>, Failure> {
    let picture = Picture::new(chart);
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

/// A chart with what must be known of its size before it is drawn.
struct Picture<'c> {
    chart: &'c Chart,
    /// The series that are drawn, each with its distance from the left in the legend, and its row there.
    series: Vec<(&'c Series, Style, Pixel)>,
    /// The names along the vertical axis of bars.
    names: &'c [String],
    /// The number of bars for each name; if it is 1, all series share them.
    each: i32,
    /// The height of title and plot.
    plot_height: i32,
}

impl<'c> Picture<'c> {
    fn new(chart: &'c Chart) -> Picture<'c> {
        static REGISTERED: Once = Once::new();
        // Drawing fails if the font is damaged.
        REGISTERED.call_once(|| _ = register_font(FONT, FontStyle::Normal, FONT_BYTES));
        let styles = Styles::of([chart].into_iter());
        let (mut left, mut row) = (0, 0);
        let shown = chart.series.iter().filter(|series| series.shown).map(|series| {
            // Estimated: letters are measured when they are drawn.
            let width = 112 + series.name.chars().count() as i32 * 18;
            if left > 0 && left + width > WIDTH - 120 {
                (left, row) = (0, row + 1);
            }
            left += width;
            (series, styles.style(series.kind, &series.name), (left - width, row))
        });
        let series: Vec<_> = shown.collect();
        let names = if let Scale::Named(names) = &chart.x_axis.scale { &names[..] } else { &[] };
        let each = if chart.x_axis.name.is_empty() { 1 } else { series.len().max(1) as i32 };
        let plot_height = match chart.shape {
            Shape::Lines => LINES_HEIGHT,
            Shape::Bars => names.len() as i32 * each * BAR_HEIGHT + TITLE_HEIGHT + 120,
        };
        Picture { chart, series, names, each, plot_height }
    }

    fn size(&self) -> (u32, u32) {
        let legend = self.series.last().map_or(0, |(.., (_, row))| (row + 1) * LEGEND_ROW_HEIGHT);
        (WIDTH as u32, (self.plot_height + legend + 28) as u32)
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|(series, ..)| &series.points)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        area.fill(&WHITE)?;
        text(area, &self.chart.title, (40, 28), (40, INK, HPos::Left, VPos::Top))?;
        match self.chart.shape {
            Shape::Lines => self.lines(area)?,
            Shape::Bars => self.bars(area)?,
        }
        for (series, style, (left, row)) in &self.series {
            let left = 60 + left;
            let middle = self.plot_height + row * LEGEND_ROW_HEIGHT + LEGEND_ROW_HEIGHT / 2;
            if self.chart.shape == Shape::Lines {
                line(area, &[(left, middle), (left + 64, middle)], stroke(*style))?;
                symbol(area, (left + 32, middle), *style)?;
            } else {
                bar(area, (left, middle - 12), (left + 64, middle + 12), *style)?;
                symbol(area, (left + 64, middle), *style)?;
            }
            text(area, &series.name, (left + 84, middle), (28, INK, HPos::Left, VPos::Center))?;
        }
        area.present()
    }

    fn lines<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let (left, right) = (172, WIDTH - 80);
        let (upper, lower) = (TITLE_HEIGHT + 80, LINES_HEIGHT - 120);
        let (x_axis, y_axis) = (&self.chart.x_axis, &self.chart.y_axis);
        let (from, to) = ends(self.points().map(|point| linear(x_axis, point.x)));
        let (low, high) = ends(self.points().map(|point| linear(y_axis, point.value)));
        let (low, high) = match y_axis.scale {
            Scale::Decades => (low.floor(), high.ceil()),
            _ => (low.min(0.0), high + (high - low.min(0.0)) * 0.05),
        };
        let across = |at: f64| spread(at, (from, to), left + 28, right - 28);
        let up = |at: f64| spread(at, (low, high), lower, upper);
        for (at, name) in ticks(y_axis, low, high) {
            line(area, &[(left, up(at)), (right, up(at))], ("solid", 1, GRID))?;
            text(area, &name, (left - 16, up(at)), (28, FAINT, HPos::Right, VPos::Center))?;
        }
        line(area, &[(left, lower), (right, lower)], ("solid", 1, FAINT))?;
        for (at, name) in ticks(x_axis, from, to) {
            line(area, &[(across(at), lower), (across(at), lower + 10)], ("solid", 1, FAINT))?;
            text(area, &name, (across(at), lower + 18), (28, FAINT, HPos::Center, VPos::Top))?;
        }
        text(area, &y_axis.name, (left, upper - 68), (28, FAINT, HPos::Left, VPos::Top))?;
        text(area, &x_axis.name, ((left + right) / 2, lower + 64), (28, FAINT, HPos::Center, VPos::Top))?;
        for (x, name) in &self.chart.marks {
            let x = across(linear(x_axis, *x));
            line(area, &[(x, lower), (x, upper)], ("dashed", 1, FAINT))?;
            text(area, name, (x, upper - 8), (26, FAINT, HPos::Center, VPos::Bottom))?;
        }
        // The first series is drawn last, on top of the others.
        for (series, style, _) in self.series.iter().rev() {
            let pixel = |it: &Point| (across(linear(x_axis, it.x)), up(linear(y_axis, it.value)));
            let points: Vec<Pixel> = series.points.iter().map(pixel).collect();
            line(area, &points, stroke(*style))?;
            points.into_iter().try_for_each(|point| symbol(area, point, *style))?;
        }
        Ok(())
    }

    /// Draws horizontal bars, each with its interval, and its figure at the end.
    fn bars<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let height = self.each * BAR_HEIGHT;
        let (left, right, top) = (760, WIDTH - 180, TITLE_HEIGHT);
        let lower = top + self.names.len() as i32 * height;
        let (low, high) = ends(self.points().flat_map(Point::ends));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let x = |value: f64| spread(value, (low, high), left, right);
        for (at, name) in ticks(&self.chart.y_axis, low, high) {
            line(area, &[(x(at), top), (x(at), lower)], ("solid", 1, GRID))?;
            text(area, &name, (x(at), lower + 12), (28, FAINT, HPos::Center, VPos::Top))?;
        }
        let middle = ((left + right) / 2, lower + 60);
        text(area, &self.chart.y_axis.name, middle, (28, FAINT, HPos::Center, VPos::Top))?;
        for (at, name) in self.names.iter().enumerate() {
            let middle = top + at as i32 * height + height / 2;
            text(area, &shortened(name, 44), (left - 20, middle), (28, INK, HPos::Right, VPos::Center))?;
        }
        for (number, (series, style, _)) in self.series.iter().enumerate() {
            for point in &series.points {
                let upper = top + point.x as i32 * height + (number as i32 % self.each) * BAR_HEIGHT;
                let (end, middle) = (x(point.value.max(0.0)), upper + BAR_HEIGHT / 2);
                bar(area, (x(0.0), upper + 8), (x(point.value), upper + BAR_HEIGHT - 8), *style)?;
                symbol(area, (end, middle), *style)?;
                let [from, to] = point.ends().map(x);
                if from < to {
                    line(area, &[(from, middle), (to, middle)], ("solid", 2, INK))?;
                    for end in [from, to] {
                        line(area, &[(end, middle - 10), (end, middle + 10)], ("solid", 2, INK))?;
                    }
                }
                let figure = (end.max(to) + 24, middle);
                text(area, &digits(point.value), figure, (28, INK, HPos::Left, VPos::Center))?;
            }
        }
        line(area, &[(x(0.0), top), (x(0.0), lower)], ("solid", 1, FAINT))
    }
}

type Pixel = (i32, i32);
/// Dash, width in pixels of an SVG, and colour.
type Stroke = (&'static str, u32, RGBColor);
/// Size, colour, and the side of the text that its position is on.
type Look = (i32, RGBColor, HPos, VPos);

fn line<B: DrawingBackend>(area: &Area<B>, points: &[Pixel], (dash, width, colour): Stroke) -> Drawn<B> {
    let (points, style) = (points.to_vec(), colour.stroke_width(2 * width));
    match dash {
        "dashed" => area.draw(&DashedPathElement::new(points, 16, 10, style)),
        "dotted" => area.draw(&DashedPathElement::new(points, 4, 8, style)),
        _ => area.draw(&PathElement::new(points, style)),
    }
}

fn text<B: DrawingBackend>(area: &Area<B>, text: &str, at: Pixel, (size, colour, h, v): Look) -> Drawn<B> {
    let style: TextStyle<'_> = (FONT, size).into_font().color(&colour);
    area.draw(&Text::new(text.to_owned(), at, style.pos(Pos::new(h, v))))
}

fn bar<B: DrawingBackend>(area: &Area<B>, from: Pixel, to: Pixel, style: Style) -> Drawn<B> {
    area.draw(&Rectangle::new([from, to], colour(style).filled()))
}

fn symbol<B: DrawingBackend>(area: &Area<B>, (x, y): Pixel, style: Style) -> Drawn<B> {
    let corners = match style.symbol {
        "rect" | "emptyRect" => vec![(-8., -8.), (8., -8.), (8., 8.), (-8., 8.), (-8., -8.)],
        "triangle" => vec![(0., -12.), (10., 8.), (-10., 8.)],
        "diamond" => vec![(0., -12.), (12., 0.), (0., 12.), (-12., 0.)],
        _ => {
            let angles = (0..=24).map(|step| f64::from(step) / 24.0 * TAU);
            angles.map(|at| (at.cos() * 10.0, at.sin() * 10.0)).collect()
        }
    };
    let larger = if style.width > 3 { 1.2 } else { 1.0 };
    let scaled = |at: i32, distance: f64| at + (distance * larger).round() as i32;
    let points: Vec<Pixel> = corners.into_iter().map(|(dx, dy)| (scaled(x, dx), scaled(y, dy))).collect();
    if style.symbol.starts_with("empty") {
        area.draw(&Polygon::new(points.clone(), WHITE.filled()))?;
        return area.draw(&PathElement::new(points, colour(style).stroke_width(4)));
    }
    area.draw(&Polygon::new(points, colour(style).filled()))
}

fn stroke(style: Style) -> Stroke {
    (style.dash, style.width, colour(style))
}

fn colour(style: Style) -> RGBColor {
    let [_, red, green, blue] = u32::from_str_radix(&style.light[1..], 16).unwrap_or_default().to_be_bytes();
    RGBColor(red, green, blue)
}

/// Returns the position of a figure along an axis, on a linear scale.
fn linear(axis: &Axis, figure: f64) -> f64 {
    match axis.scale {
        Scale::Bytes | Scale::Powers => figure.max(1.0).log2(),
        Scale::Decades => figure.max(1e-12).log10(),
        Scale::Linear | Scale::Whole | Scale::Named(_) => figure,
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

/// Returns about six round figures between two ends; whole ones if `whole`.
fn round_figures(from: f64, to: f64, whole: bool) -> Vec<f64> {
    let raw = (to - from) / 6.0;
    let decade = 10f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|it| it * decade);
    let step = steps.into_iter().find(|it| *it >= raw && (!whole || it.fract() == 0.0)).unwrap_or(raw);
    ((from / step).ceil() as i64..=(to / step).floor() as i64).map(|at| at as f64 * step).collect()
}

/// Returns the labelled positions of an axis between two ends, on a linear scale.
fn ticks(axis: &Axis, from: f64, to: f64) -> Vec<(f64, String)> {
    let number = |it: f64| if it >= 10_000.0 { count(it) } else { format!("{}", (it * 1e9).round() / 1e9) };
    match &axis.scale {
        Scale::Named(names) => names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(),
        Scale::Bytes | Scale::Powers => {
            let (first, last) = (from.ceil() as u32, to.floor() as u32);
            let step = (last.saturating_sub(first) / 10 + 1) as usize;
            let name =
                |power: u64| if axis.scale == Scale::Bytes { size(power) } else { number(power as f64) };
            (first..=last.min(63)).step_by(step).map(|at| (f64::from(at), name(1 << at))).collect()
        }
        Scale::Decades => {
            (from as i32..=to as i32).map(|at| (f64::from(at), number(10f64.powi(at)))).collect()
        }
        Scale::Linear | Scale::Whole => {
            let figures = round_figures(from, to, axis.scale == Scale::Whole);
            figures.into_iter().map(|at| (at, number(at))).collect()
        }
    }
}

fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::Kind;

    use super::*;

    fn chart(shape: Shape, scale: Scale, figures: &[(f64, f64)]) -> Chart {
        let point = |(x, value): &(f64, f64)| Point { x: *x, value: *value, ..Point::default() };
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
            ..Chart::default()
        }
    }

    fn charts() -> Vec<Chart> {
        let names = || Scale::Named(vec!["first".into(), "second".into()]);
        let mut latency = chart(Shape::Lines, names(), &[(0.0, 100.0), (1.0, 90_000.0)]);
        latency.y_axis.scale = Scale::Decades;
        vec![
            chart(Shape::Lines, Scale::Bytes, &[(4096.0, 10.0), (1e9, 4.0)]),
            chart(Shape::Lines, Scale::Bytes, &[(4096.0, 10.0)]),
            chart(Shape::Lines, Scale::Powers, &[(1.0, 10.0), (8.0, 11.0), (64.0, 4.0)]),
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
            assert_eq!((frame.width, frame.color_type), (WIDTH as u32, png::ColorType::Rgb));
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

    /// A line and its two ends for each of two bars.
    #[test]
    fn bars_have_their_intervals() {
        let mut chart = chart(Shape::Bars, Scale::Named(vec!["first".into()]), &[(0.0, 10.0)]);
        let lines = |chart: &Chart| svg(chart).unwrap().matches("stroke=\"#1C1E21\"").count();
        assert_eq!(lines(&chart), 0);
        chart.series.iter_mut().for_each(|it| it.points[0].interval = Some([2.0, 40.0]));
        assert_eq!(lines(&chart), 6);
        assert!(svg(&chart).unwrap().contains("\n40\n"), "the axis ends with the intervals");
    }

    #[test]
    fn powers_of_two_are_equally_far_apart() {
        let axis = Axis { name: "group".into(), scale: Scale::Powers };
        let [first, second, third] = [1.0, 8.0, 64.0].map(|at| linear(&axis, at));
        assert_eq!(second - first, third - second);
        let names: Vec<String> = ticks(&axis, first, third).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["1", "2", "4", "8", "16", "32", "64"]);
    }

    #[test]
    fn round_figures_are_round() {
        assert_eq!(round_figures(0.0, 12.0, false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(round_figures(-10.0, 20.0, false), [-10.0, -5.0, 0.0, 5.0, 10.0, 15.0, 20.0]);
        // A number of threads.
        assert_eq!(round_figures(1.0, 2.0, true), [1.0, 2.0]);
        assert_eq!(round_figures(1.0, 16.0, true), [5.0, 10.0, 15.0]);
    }
}
