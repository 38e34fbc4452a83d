//! Values -> SVG path data on a canvas of 1000 x 1000.

use std::fmt::Write;

use super::Span;
use crate::axis::Axis;
use crate::series::Point;

/// Width and height of the canvas; the page scales it.
const CANVAS: f64 = 1000.0;

/// A point on the canvas, whose origin is at the top left.
fn place((x, y): Point, across: &Axis, up: &Axis) -> (f64, f64) {
    let (x, y) = (across.at(x) * CANVAS, (1.0 - up.at(y)) * CANVAS);
    // Points far outside are clamped, which saves digits.
    (
        (x * 10.0).round() / 10.0,
        y.clamp(-CANVAS, 2.0 * CANVAS).round(),
    )
}

/// The curve as SVG path data; a value that is not a number breaks it.
pub(super) fn path(points: &[Point], across: &Axis, up: &Axis) -> String {
    let mut path = String::new();
    let mut pen = 'M';
    for point in points {
        if !point.1.is_finite() {
            pen = 'M';
            continue;
        }
        let (x, y) = place(*point, across, up);
        write!(path, "{pen}{x} {y}").expect("a string takes everything");
        pen = 'L';
    }
    path
}

/// The outline of a band: along its greatest values, and back along its least.
pub(super) fn band(spans: &[Span], across: &Axis, up: &Axis) -> String {
    let finite = spans
        .iter()
        .filter(|(_, low, high)| low.is_finite() && high.is_finite());
    let (upper, mut lower): (Vec<Point>, Vec<Point>) = finite
        .map(|(x, low, high)| ((*x, *high), (*x, *low)))
        .unzip();
    if upper.len() < 2 {
        return String::new();
    }
    lower.reverse();
    path(&[upper, lower].concat(), across, up) + "Z"
}

/// The points alone: lines of length 0, which round caps draw as dots.
pub(super) fn dots(points: &[Point], across: &Axis, up: &Axis) -> String {
    let finite = points.iter().filter(|(_, y)| y.is_finite());
    let dot = |point: &Point| {
        let (x, y) = place(*point, across, up);
        format!("M{x} {y}h0")
    };
    finite.map(dot).collect()
}
