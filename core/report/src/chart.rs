//! Curves by step -> what the page draws: paths on a canvas of 1000 x 1000, ticks, values to hover over.

use std::fmt::Write;

use espalier_system::number::significant;
use serde::Serialize;

use super::axis::{Axis, Tick};
use super::series::{Point, quantile, smoothed, smoothed_steps, thinned};

/// Percent of a large chart's height that a name at a curve's end takes.
const END_ROOM: f64 = 6.0;
/// Extent of the canvas both ways; the page stretches it.
const CANVAS: f64 = 1000.0;
/// A value that exceeds this many times the curve's usual height is cut off at the top.
const OUTLIER: f64 = 4.0;
/// Steps of a band that are drawn, at most about this many.
const MOST_OF_BAND: usize = 400;
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

/// How a chart's values lie along its height.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upward {
    /// From 0 on.
    #[default]
    FromZero,
    /// From the least to the greatest.
    Free,
    /// The same by their logarithms.
    Logarithmic,
    /// On both sides of 0.
    Signed,
}

/// From where to where values reach at a step: the step, the least, the greatest.
pub type Span = (f64, f64, f64);

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What it is, for the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// The number of its colour, where it has one of its own.
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
    /// What the curves are drawn over.
    #[serde(skip)]
    pub over: &'static str,
    /// How the values lie along the height.
    #[serde(skip)]
    pub upward: Upward,
    /// Whether it is drawn over the page's whole width.
    #[serde(skip)]
    pub wide: bool,
    /// Whether it belongs to the chart above it.
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
        let across = Axis::whole(steps[0] as f64, steps[1] as f64, 5);
        let (up, cut_off) = self.vertical();
        let curve = |curve: &Curve| DrawnCurve {
            name: curve.name.clone(),
            style: curve.style,
            colour: curve.colour,
            band: band(&curve.band, &across, &up),
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
            over: self.over,
            wide: self.wide,
            under: self.under,
            zero: (up.low < 0.0 && up.high > 0.0).then(|| up.percent(0.0)),
            ends: self.ends(&up),
            curves: self.curves.iter().map(curve).collect(),
            x_ticks: across.ticks.iter().map(|x| across.tick(*x)).collect(),
            y_ticks: up.ticks.iter().map(|y| up.tick(*y)).collect(),
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
            let curves = self.curves.iter();
            let all = curves.flat_map(|curve| {
                let ends = curve.band.iter().flat_map(|(_, low, high)| [*low, *high]);
                curve.points.iter().map(|(_, y)| *y).chain(ends)
            });
            all.filter(|y| y.is_finite())
        };
        let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| {
            (low.min(y), high.max(y))
        });
        match self.upward {
            Upward::Logarithmic => {
                let positive = values().filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
                return (Axis::logarithmic(positive.min(high), high), 0);
            }
            Upward::Signed => {
                let all: Vec<f64> = values().collect();
                let sizes: Vec<f64> = all.iter().map(|y| y.abs()).filter(|y| *y > 0.0).collect();
                return (Axis::signed(&all, &sizes), 0);
            }
            Upward::FromZero | Upward::Free => (),
        }
        let low = if self.upward == Upward::FromZero {
            low.min(0.0)
        } else {
            low
        };
        let usual = quantile(values(), USUAL).unwrap_or(high);
        let top = if high - low > OUTLIER * (usual - low) && usual > low {
            usual + (usual - low) * 0.25
        } else {
            high
        };
        let axis = Axis::rounded(low, top, 4);
        let cut_off = values().filter(|y| *y > axis.high).count();
        (axis, cut_off)
    }

    /// The names of curves with colours of their own, each beside its curve's end, none over another.
    fn ends(&self, up: &Axis) -> Vec<End> {
        let room = if self.wide && !self.under {
            END_ROOM
        } else {
            2.0 * END_ROOM
        };
        let ends = self.curves.iter().filter_map(|curve| {
            let (_, last) = curve.points.iter().rfind(|(_, y)| y.is_finite())?;
            Some(End {
                percent: up.percent(*last).clamp(0.0, 100.0),
                text: curve.name.clone(),
                colour: curve.colour?,
            })
        });
        let mut ends: Vec<End> = ends.collect();
        ends.sort_by(|a, b| a.percent.total_cmp(&b.percent));
        set_apart(ends.iter_mut().map(|end| &mut end.percent), room);
        ends
    }

    /// The chart in a sentence, for those who do not see it.
    fn description(&self) -> String {
        let over = self.over;
        let mut text = format!("{} by {over}.", self.title);
        for curve in self.curves.iter().filter(|curve| curve.style != Style::Raw) {
            let mut finite = curve.points.iter().filter(|(_, y)| y.is_finite());
            if let Some(first) = finite.next() {
                let last = finite.next_back().unwrap_or(first);
                let [from, to] = [first, last].map(|(_, y)| significant(*y, 4));
                let (begin, end, unit) = (first.0, last.0, &self.unit);
                let name = &curve.name;
                write!(
                    text,
                    " {name}: {from} {unit} at {over} {begin}, {to} {unit} at {over} {end}."
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
            "unit": self.unit.split(',').next(),
            "over": self.over,
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
    over: &'static str,
    wide: bool,
    under: bool,
    /// Where 0 lies, if it lies within.
    zero: Option<f64>,
    ends: Vec<End>,
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
        let across = Axis::whole(steps[0] as f64, steps[1] as f64, 5);
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
    colour: Option<usize>,
    band: String,
    path: String,
    dots: String,
}

/// A curve's name beside its end.
#[derive(Clone, Debug, Serialize)]
struct End {
    percent: f64,
    text: String,
    colour: usize,
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

/// Moves places along an axis, in rising order, until each is `room` percent from the next, none above 100.
pub fn set_apart<'a>(places: impl Iterator<Item = &'a mut f64>, room: f64) {
    let mut places: Vec<&mut f64> = places.collect();
    let mut least = f64::NEG_INFINITY;
    for place in &mut places {
        **place = place.max(least);
        least = **place + room;
    }
    let mut most = 100.0;
    for place in places.iter_mut().rev() {
        **place = place.min(most);
        most = **place - room;
    }
}

/// The outline of a band: along its greatest values, and back along its least.
fn band(spans: &[Span], across: &Axis, up: &Axis) -> String {
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
    fn names_at_the_ends_of_curves_stand_apart() {
        let mut places = [10.0, 11.0, 50.0, 99.0, 100.0];
        set_apart(places.iter_mut(), 5.0);
        assert_eq!(places, [10.0, 15.0, 50.0, 95.0, 100.0]);
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
