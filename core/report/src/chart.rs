//! Curves by step over one axis.

mod canvas;
mod drawing;
mod height;

use serde::Serialize;

use super::series::{Point, smoothed, smoothed_steps, thinned};

pub use drawing::{ChartEvent, Drawing, set_apart};

/// Approximate maximum of the drawn steps of a band.
const MOST_OF_BAND: usize = 400;
/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Thin and pale: values without smoothing.
    Raw,
    /// The main curve.
    Line,
    /// Points of another kind, joined.
    Points,
    /// Points of a third kind, joined.
    Others,
}

/// The vertical scale of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upward {
    /// From 0 on.
    #[default]
    FromZero,
    /// From the least to the greatest.
    Free,
    /// From the least to the greatest, logarithmic.
    Logarithmic,
    /// On both sides of 0.
    Signed,
}

/// The range of values at a step: the step, the least, the greatest.
pub type Span = (f64, f64, f64);

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// The index of its colour, where it has a fixed one.
    #[serde(skip)]
    pub colour: Option<usize>,
    /// Value by step.
    pub points: Vec<Point>,
    /// The band around it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub band: Vec<Span>,
}

/// Curves over one axis.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The values' unit; empty where they have none.
    pub unit: String,
    /// The curves, the last one on top.
    pub curves: Vec<Curve>,
    /// The horizontal axis.
    #[serde(skip)]
    pub over: &'static str,
    /// The vertical scale.
    #[serde(skip)]
    pub upward: Upward,
    /// Whether it is drawn over the page's whole width.
    #[serde(skip)]
    pub wide: bool,
    /// Whether it is grouped with the chart above it.
    #[serde(skip)]
    pub under: bool,
}

impl Chart {
    /// A chart without curves.
    pub fn new(title: &str, unit: &str) -> Self {
        Chart {
            title: title.to_owned(),
            unit: unit.to_owned(),
            curves: Vec::new(),
            over: "step",
            upward: Upward::FromZero,
            wide: false,
            under: false,
        }
    }

    /// The values' unit without the name of the scale.
    fn own_unit(&self) -> &str {
        self.unit.split(',').next().unwrap_or_default()
    }

    /// Adds a curve where it has a value.
    pub fn with(self, name: &str, style: Style, points: &[Point]) -> Self {
        self.with_curve(Curve {
            name: name.to_owned(),
            style,
            colour: None,
            points: points.to_vec(),
            band: Vec::new(),
        })
    }

    /// Adds a curve, thinned, where it has a value.
    pub fn with_curve(mut self, mut curve: Curve) -> Self {
        if curve.points.iter().any(|(_, y)| y.is_finite()) {
            curve.points = thinned(&curve.points);
            let every = curve.band.len().div_ceil(MOST_OF_BAND).max(1);
            curve.band = curve.band.into_iter().step_by(every).collect();
            self.curves.push(curve);
        }
        self
    }

    /// Adds noisy values both raw and smoothed; `name` precedes the legend entry of each.
    pub fn with_noisy(self, name: &str, points: &[Point]) -> Self {
        let steps = smoothed_steps(points.len());
        let smooth = format!("{name}mean of about {steps} steps");
        self.with(&format!("{name}each step"), Style::Raw, points)
            .with(&smooth, Style::Line, &smoothed(points))
    }
}
