//! Measured rungs -> a plot: the peak of each as a bar, and a mark where the plan puts it.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::rung::MeasuredRung;

const SIZE: (u32, u32) = (1080, 420);
const PEAK: RGBColor = RGBColor(0x1f, 0x6f, 0xb2);
const PLAN: RGBColor = RGBColor(0xc4, 0x5a, 0x1b);

/// Draws a panel for each ladder.
///
/// # Errors
/// Where the file cannot be written.
pub fn draw(path: &Path, ladders: &[(&str, Vec<MeasuredRung>)]) -> Result<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let file = || format!("cannot write {}", path.display());
    area.fill(&WHITE).with_context(file)?;
    for (panel_area, (name, rungs)) in area.split_evenly((1, ladders.len())).iter().zip(ladders) {
        panel(panel_area, name, rungs)?;
    }
    area.present().with_context(file)
}

type Panel<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A panel with a bar for each rung, the first on top, and its name beside it.
fn panel(area: &Panel<'_>, name: &str, rungs: &[MeasuredRung]) -> Result<()> {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let bytes = rungs
        .iter()
        .flat_map(|rung| [rung.peak_bytes, rung.planned_bytes]);
    let most = 1.05 * mb(bytes.max().unwrap_or(1));
    let count = rungs.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(200)
        .build_cartesian_2d(0.0..most, 0.0..count)?;
    let label = |at: &f64| {
        // The ticks are at the middle of each bar.
        let from_top = count - at - 0.5;
        let rung = rungs.get(from_top.round() as usize);
        let rung = rung.filter(|_| (from_top - from_top.round()).abs() < 1e-6);
        rung.map_or(String::new(), |rung| {
            format!("{} {}", rung.number, rung.name)
        })
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc(format!("{name}: peak, MB"))
        .x_labels(6)
        .y_labels(2 * rungs.len() + 1)
        .x_label_formatter(&|mb| format!("{mb:.0}"))
        .y_label_formatter(&label)
        .max_light_lines(1)
        .draw()?;
    let middle = |index: usize| count - index as f64 - 0.5;
    let bars = rungs.iter().enumerate().map(|(index, rung)| {
        let (low, high) = (middle(index) - 0.3, middle(index) + 0.3);
        Rectangle::new([(0.0, low), (mb(rung.peak_bytes), high)], PEAK.filled())
    });
    chart
        .draw_series(bars)?
        .label("measured")
        .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], PEAK.filled()));
    let marks = rungs.iter().enumerate().map(|(index, rung)| {
        let at = mb(rung.planned_bytes);
        let (low, high) = (middle(index) - 0.4, middle(index) + 0.4);
        PathElement::new([(at, low), (at, high)], PLAN.stroke_width(3))
    });
    chart
        .draw_series(marks)?
        .label("planned")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], PLAN.stroke_width(3)));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    Ok(())
}
