//! Plots of speed over length, as SVG that the page's style sheet colours.

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::combinators::IntoLogRange;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Circle;
use plotters::series::LineSeries;
use plotters::style::{Color, IntoFont, RGBColor};

use crate::output::size;

/// Size of a plot in its own units; the page scales it.
const SIZE: (u32, u32) = (720, 400);

/// The colours that plots are drawn with. They only mark what is what: the style sheet replaces them by colours
/// that suit a light or a dark page.
pub(super) const INK: RGBColor = RGBColor(1, 0, 0);
pub(super) const GRID: RGBColor = RGBColor(2, 0, 0);
/// The colour of the line with a given number.
pub(super) fn line_colour(number: usize) -> RGBColor {
    RGBColor(16 + number as u8, 0, 0)
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// (bytes, GB/s), by rising bytes.
    pub(super) points: Vec<(u64, f64)>,
}

/// Draws lines over a logarithmic axis of lengths.
pub(super) fn svg(lines: &[Line]) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let from = points().map(|(length, _)| *length).min().unwrap_or(1) as f64;
    let to = points().map(|(length, _)| *length).max().unwrap_or(2) as f64;
    let top = points().map(|(_, rate)| *rate).fold(0.0, f64::max).max(0.1) * 1.08;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let font = || ("sans-serif", 18).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(40)
            .x_label_area_size(38)
            .y_label_area_size(56)
            .build_cartesian_2d((from..to.max(from * 2.0)).log_scale().base(2.0), 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(plotters::style::TRANSPARENT)
            .axis_style(GRID)
            .x_labels(9)
            .y_labels(6)
            .x_label_formatter(&|length| size(length.round() as u64))
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .label_style(font())
            .draw()?;
        // The first line is drawn last, over the others.
        for (number, line) in lines.iter().enumerate().rev() {
            let colour = line_colour(number);
            let points = || line.points.iter().map(|(length, rate)| (*length as f64, *rate));
            chart.draw_series(LineSeries::new(
                points(),
                colour.stroke_width(if number < 2 { 3 } else { 2 }),
            ))?;
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        area.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_in_their_marker_colours() {
        let line = |name: &str, rate: f64| Line {
            name: name.into(),
            points: vec![(64, rate), (1 << 30, rate * 2.0)],
        };
        let text = svg(&[line("a", 10.0), line("b", 4.0)]).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for colour in [INK, line_colour(0), line_colour(1)] {
            assert!(text.contains(&format!("#{:02X}0000", colour.0)), "{colour:?}\n{text}");
        }
        assert!(text.contains("MiB"), "{text}");
    }

    #[test]
    fn a_single_point_and_no_point_are_drawn() {
        assert!(svg(&[Line { name: "a".into(), points: vec![(4096, 1.0)] }]).is_ok());
        assert!(svg(&[]).is_ok());
    }
}
