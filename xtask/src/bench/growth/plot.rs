//! Measurements -> a plot: seconds of a step over operations, and bytes over parameters and over
//! tokens.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::point::Point;

const SIZE: (u32, u32) = (1080, 420);
const COLORS: [RGBColor; 2] = [RGBColor(0x1f, 0x6f, 0xb2), RGBColor(0xc4, 0x5a, 0x1b)];
const NAMES: [&str; 2] = ["parameters grow", "tokens grow"];

/// Draws three panels: time, and memory by either.
///
/// # Errors
/// Where the file cannot be written.
pub fn draw(path: &Path, series: [&[Point]; 2]) -> Result<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let file = || format!("cannot write {}", path.display());
    area.fill(&WHITE).with_context(file)?;
    let panels = area.split_evenly((1, 3));
    let points = |series: &[Point], of: fn(&Point) -> (f64, f64)| -> Vec<(f64, f64)> {
        series.iter().map(of).collect()
    };
    let time = series.map(|of| points(of, |point| (point.flops / 1e9, point.secs)));
    panel(
        &panels[0],
        ["GFLOP a step", "seconds a step"],
        &[&time[0], &time[1]],
    )?;
    let [by_params, by_tokens] = series;
    let by_params = points(by_params, |point| {
        (point.params / 1e6, point.peak_bytes / 1e6)
    });
    panel(
        &panels[1],
        ["million parameters", "peak, MB"],
        &[&by_params],
    )?;
    let by_tokens = points(by_tokens, |point| (point.tokens, point.peak_bytes / 1e6));
    panel(
        &panels[2],
        ["tokens of a row", "peak, MB"],
        &[&[], &by_tokens],
    )?;
    area.present().with_context(file)
}

type Panel<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A panel with logarithmic axes, whose labels are powers of ten, or of two where the values span
/// less than two decades.
fn panel(area: &Panel<'_>, [x, y]: [&str; 2], series: &[&[(f64, f64)]]) -> Result<()> {
    let all = || series.iter().copied().flatten();
    let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let least = all().map(of).min_by(f64::total_cmp).unwrap_or(1.0);
        let most = all().map(of).max_by(f64::total_cmp).unwrap_or(1.0);
        let base = if most < 100.0 * least { 2.0 } else { 10.0 };
        (least / 1.5..most * 1.5).log_scale().base(base)
    };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(range(&|point| point.0), range(&|point| point.1))?;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .x_label_formatter(&|value| format!("{value}"))
        .y_label_formatter(&|value| format!("{value}"))
        .max_light_lines(1)
        .draw()?;
    for ((points, color), name) in series.iter().zip(COLORS).zip(NAMES) {
        if points.is_empty() {
            continue;
        }
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        chart
            .draw_series(line)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    Ok(())
}
