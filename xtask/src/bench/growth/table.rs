//! Measurements -> a page in Markdown: the tables, and by which powers time grows.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::GrowthOptions;
use super::point::Point;

/// Writes the page.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(
    path: &Path,
    options: &GrowthOptions,
    [by_params, by_tokens]: [&[Point]; 2],
) -> Result<()> {
    let machine = by_params.first().map_or("", |point| &point.machine);
    let mut page = format!(
        "# How time and memory of a step grow\n\n\
         `cargo xtask bench growth` makes this page and the plot. It trains Llamas of random \
         weights,\n`{}`, {}, no recompute, one row a step; medians of {} steps after {} others. \
         Measured on:\n{machine}. The share of peak is relative to the rate of products that\n\
         the same run measures.\n\n\
         ![Seconds of a step by operations, and bytes by parameters and tokens](growth.svg)\n",
        options.plugins,
        options.dtype,
        options.steps - super::UNCOUNTED_STEPS,
        super::UNCOUNTED_STEPS,
    );
    for (what, points) in [
        ("Parameters, on rows of the same length", by_params),
        ("Tokens of a row, on the same model", by_tokens),
    ] {
        write!(page, "\n## {what}\n\n{}", rows(points))?;
        let powers: Vec<String> = points
            .windows(2)
            .map(|pair| format!("{:.2}", power(&pair[0], &pair[1])))
            .collect();
        if !powers.is_empty() {
            writeln!(
                page,
                "\nFrom line to line time grows as operations to the power of {}.",
                powers.join(", ")
            )?;
        }
    }
    fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn rows(points: &[Point]) -> String {
    let mut text = String::from(
        "| million parameters | tokens | s a step | tokens/s | GFLOP a step | GFLOP/s | share of peak | peak, MB | planned, MB |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for point in points {
        let cells = [
            format!("{:.1}", point.params / 1e6),
            point.tokens.to_string(),
            format!("{:.4}", point.secs),
            format!("{:.0}", point.tokens / point.secs),
            format!("{:.1}", point.flops / 1e9),
            format!("{:.0}", point.flops / point.secs / 1e9),
            format!("{:.2}", point.share_of_peak),
            format!("{:.1}", point.peak_bytes / 1e6),
            format!("{:.1}", point.planned_bytes / 1e6),
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// The power of the operations by which time grows between two measurements.
fn power(from: &Point, to: &Point) -> f64 {
    (to.secs / from.secs).ln() / (to.flops / from.flops).ln()
}
