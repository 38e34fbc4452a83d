//! Curves by step -> what the page draws: paths on a canvas of 1000 x 1000, ticks, values to hover over.

use std::fmt::Write;

use serde::Serialize;

use super::axis::Axis;
use super::number::significant;
use super::series::{Point, quantile, smoothed, smoothed_steps, thinned};

/// Extent of the canvas both ways; the page stretches it.
const CANVAS: f64 = 1000.0;
/// A value that exceeds this many times the curve's usual height is cut off at the top.
const OUTLIER: f64 = 4.0;
/// The share of values that make up the usual height.
const USUAL: f64 = 0.99;

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Thin and pale: values as they came.
    Raw,
    /// The curve that the eye should follow.
    Line,
    /// Points of another kind, joined.
    Points,
    /// Points of a third kind, joined.
    Others,
}

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What it is, for the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Value by step.
    pub points: Vec<Point>,
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
    /// Whether the axis begins at zero.
    #[serde(skip)]
    pub from_zero: bool,
    /// Whether it is drawn over the page's whole width.
    #[serde(skip)]
    pub wide: bool,
}

impl Chart {
    /// A chart without curves.
    pub fn new(title: &str, unit: &str) -> Self {
        Chart {
            title: title.to_owned(),
            unit: unit.to_owned(),
            curves: Vec::new(),
            from_zero: true,
            wide: false,
        }
    }

    /// Adds a curve where it has a value.
    pub fn with(mut self, name: &str, style: Style, points: &[Point]) -> Self {
        if points.iter().any(|(_, y)| y.is_finite()) {
            self.curves.push(Curve {
                name: name.to_owned(),
                style,
                points: thinned(points),
            });
        }
        self
    }

    /// Adds values that jump from step to step, as they came and smoothed; `name` comes before what
    /// the legend says of each.
    pub fn with_noisy(self, name: &str, points: &[Point]) -> Self {
        let steps = smoothed_steps(points.len());
        let smooth = format!("{name}mean of about {steps} steps");
        self.with(&format!("{name}each step"), Style::Raw, points)
            .with(&smooth, Style::Line, &smoothed(points))
    }

    /// The chart as the page draws it; `steps` are the first and the last of the run.
    pub fn drawing(&self, steps: [u64; 2]) -> Drawing {
        let across = Axis::exact(steps[0] as f64, steps[1] as f64, 5);
        let (up, cut_off) = self.vertical();
        let tick = |axis: &Axis, value: f64| Tick {
            percent: (axis.at(value) * 1e4).round() / 1e2,
            text: axis.label(value),
        };
        let curve = |curve: &Curve| DrawnCurve {
            name: curve.name.clone(),
            style: curve.style,
            path: path(&curve.points, &across, &up),
            dots: match curve.style {
                Style::Points | Style::Others => dots(&curve.points, &across, &up),
                Style::Raw | Style::Line => String::new(),
            },
        };
        Drawing {
            title: self.title.clone(),
            unit: self.unit.clone(),
            description: self.description(),
            wide: self.wide,
            curves: self.curves.iter().map(curve).collect(),
            x_ticks: across.ticks.iter().map(|x| tick(&across, *x)).collect(),
            y_ticks: up.ticks.iter().map(|y| tick(&up, *y)).collect(),
            marks: Vec::new(),
            note: match cut_off {
                0 => String::new(),
                1 => "1 value lies above".to_owned(),
                more => format!("{more} values lie above"),
            },
            hover: self.hover(&across, &up),
        }
    }

    /// The vertical axis, and how many values it leaves out.
    fn vertical(&self) -> (Axis, usize) {
        let values = || {
            let points = self.curves.iter().flat_map(|curve| &curve.points);
            points.map(|(_, y)| *y).filter(|y| y.is_finite())
        };
        let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| {
            (low.min(y), high.max(y))
        });
        let low = if self.from_zero { low.min(0.0) } else { low };
        let usual = quantile(values(), USUAL).unwrap_or(high);
        let top = match high - low > OUTLIER * (usual - low) && usual > low {
            true => usual + (usual - low) * 0.25,
            false => high,
        };
        let axis = Axis::rounded(low, top, 4);
        let cut_off = values().filter(|y| *y > axis.high).count();
        (axis, cut_off)
    }

    /// The chart in a sentence, for those who do not see it.
    fn description(&self) -> String {
        let mut text = format!("{} by step.", self.title);
        for curve in self.curves.iter().filter(|curve| curve.style != Style::Raw) {
            let mut finite = curve.points.iter().filter(|(_, y)| y.is_finite());
            if let Some(first) = finite.next() {
                let last = finite.next_back().unwrap_or(first);
                let [from, to] = [first, last].map(|(_, y)| significant(*y, 4));
                let (begin, end, unit) = (first.0, last.0, &self.unit);
                let name = &curve.name;
                write!(
                    text,
                    " {name}: {from} {unit} at step {begin}, {to} {unit} at step {end}."
                )
                .expect("a string takes everything");
            }
        }
        text
    }

    /// What the page's script reads, as JSON that may stand in a page.
    fn hover(&self, across: &Axis, up: &Axis) -> String {
        let rounded = |y: f64| y.is_finite().then(|| significant(y, 5));
        let curves: Vec<_> = self
            .curves
            .iter()
            .map(|curve| {
                let steps: Vec<u64> = curve.points.iter().map(|(x, _)| *x as u64).collect();
                let texts: Vec<_> = curve.points.iter().map(|(_, y)| rounded(*y)).collect();
                serde_json::json!({
                    "name": curve.name, "style": curve.style, "x": steps, "y": texts
                })
            })
            .collect();
        let hover = serde_json::json!({
            "unit": self.unit,
            "x": [across.low, across.high],
            "y": [up.low, up.high],
            "curves": curves,
        });
        hover.to_string().replace('<', "\\u003c")
    }
}

/// A chart ready to be drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Drawing {
    title: String,
    unit: String,
    description: String,
    wide: bool,
    curves: Vec<DrawnCurve>,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    marks: Vec<Tick>,
    note: String,
    hover: String,
}

impl Drawing {
    /// The drawing with a mark behind each of the steps of `marks`; `steps` as in [`Chart::drawing`].
    pub fn marked(mut self, marks: &[(u64, String)], steps: [u64; 2]) -> Self {
        let across = Axis::exact(steps[0] as f64, steps[1] as f64, 5);
        let mark = |(step, text): &(u64, String)| {
            let between = across.at(*step as f64 + 0.5).clamp(0.0, 1.0);
            Tick {
                percent: (between * 1e4).round() / 1e2,
                text: text.clone(),
            }
        };
        self.marks = marks.iter().map(mark).collect();
        self
    }
}

#[derive(Clone, Debug, Serialize)]
struct DrawnCurve {
    name: String,
    style: Style,
    path: String,
    dots: String,
}

/// A number beside an axis, so many percent along it.
#[derive(Clone, Debug, Serialize)]
struct Tick {
    percent: f64,
    text: String,
}

/// A point on the canvas, whose origin is at the top left.
fn place((x, y): Point, across: &Axis, up: &Axis) -> (f64, f64) {
    let (x, y) = (across.at(x) * CANVAS, (1.0 - up.at(y)) * CANVAS);
    // Far outside is as good as further outside, and has fewer digits.
    (
        (x * 10.0).round() / 10.0,
        y.clamp(-CANVAS, 2.0 * CANVAS).round(),
    )
}

/// The curve as SVG path data; a value that is not a number breaks it.
fn path(points: &[Point], across: &Axis, up: &Axis) -> String {
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

/// The points alone: lines without length, which round caps make dots of any canvas.
fn dots(points: &[Point], across: &Axis, up: &Axis) -> String {
    let finite = points.iter().filter(|(_, y)| y.is_finite());
    let dot = |point: &Point| {
        let (x, y) = place(*point, across, up);
        format!("M{x} {y}h0")
    };
    finite.map(dot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(points: &[Point]) -> Drawing {
        let chart = Chart::new("Loss", "").with("training", Style::Line, points);
        chart.drawing([1, points.len() as u64])
    }

    #[test]
    fn a_gap_breaks_the_path() {
        let drawn = drawing(&[(1.0, 4.0), (2.0, f64::NAN), (3.0, 0.0)]);
        assert_eq!(drawn.curves[0].path, "M0 0M1000 1000");
        let expected = "Loss by step. training: 4  at step 1, 0  at step 3.";
        assert_eq!(drawn.description, expected);
    }

    #[test]
    fn a_mark_stands_between_two_steps() {
        let marks = [(2, "nf4 -> fp4".to_owned()), (9, "late".to_owned())];
        let drawn = drawing(&[(1.0, 4.0), (2.0, 3.0), (3.0, 2.0)]).marked(&marks, [1, 3]);
        let at: Vec<f64> = drawn.marks.iter().map(|mark| mark.percent).collect();
        assert_eq!(at, [75.0, 100.0]);
    }

    #[test]
    fn one_spike_does_not_flatten_the_curve() {
        let mut points: Vec<Point> = (1..=200).map(|i| (f64::from(i), 1.0)).collect();
        points[100].1 = 1000.0;
        let drawn = drawing(&points);
        assert_eq!(drawn.note, "1 value lies above");
        assert!(drawn.y_ticks.iter().all(|tick| tick.text.len() < 4));
    }

    #[test]
    fn what_the_script_reads_cannot_end_it() {
        let chart = Chart::new("a", "").with("</script>", Style::Line, &[(1.0, 1.0)]);
        let hover = chart.drawing([1, 1]).hover;
        assert!(!hover.contains('<'), "{hover}");
        assert!(serde_json::from_str::<serde_json::Value>(&hover).is_ok());
    }
}
