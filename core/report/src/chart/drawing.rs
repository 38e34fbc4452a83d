//! A chart -> its drawing on the page: paths, ticks, curve labels and hover values.

use std::fmt::Write;

use espalier_system::number::significant;
use serde::Serialize;

use super::canvas::{band, dots, path};
use super::{Chart, Curve, Style};
use crate::axis::{Axis, Tick};

/// Height of a curve label in percent of a large chart.
const END_ROOM: f64 = 6.0;
/// From this share of the width on, an event is labelled on the left.
const LATE: f64 = 0.9;

/// A chart ready to be drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Drawing {
    title: String,
    unit: String,
    description: String,
    over: &'static str,
    wide: bool,
    under: bool,
    /// Position of 0, if it is in range.
    zero: Option<f64>,
    ends: Vec<End>,
    curves: Vec<DrawnCurve>,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    marks: Vec<Mark>,
    note: String,
    hover: String,
}

impl Drawing {
    /// The drawing with `events`, each after its step; `steps` as in [`Chart::drawing`].
    pub fn marked(mut self, events: &[ChartEvent], steps: [u64; 2]) -> Self {
        let across = Axis::whole(steps[0] as f64, steps[1] as f64, 5);
        let mark = |event: &ChartEvent| {
            let between = across.at(event.step as f64 + 0.5).clamp(0.0, 1.0);
            Mark {
                percent: (between * 1e4).round() / 1e2,
                late: between > LATE,
                event: event.clone(),
            }
        };
        self.marks = events.iter().map(mark).collect();
        self
    }
}

/// What happened between two steps of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ChartEvent {
    /// Completed steps before it.
    pub step: u64,
    /// A few words.
    pub label: String,
    /// All of it.
    pub text: String,
}

/// An event at its place.
#[derive(Clone, Debug, Serialize)]
struct Mark {
    percent: f64,
    /// Whether the label is on the left, so that it stays within the chart.
    late: bool,
    event: ChartEvent,
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

/// A curve label.
#[derive(Clone, Debug, Serialize)]
struct End {
    percent: f64,
    text: String,
    colour: usize,
}

impl Chart {
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
                1 => "1 value is above".to_owned(),
                more => format!("{more} values are above"),
            },
            hover: self.hover(&across, &up),
        }
    }

    /// The labels of curves with fixed colours, each at its curve's end, without overlap.
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

    /// The chart in a sentence, for screen readers.
    fn description(&self) -> String {
        let over = self.over;
        let mut text = format!("{} by {over}.", self.title);
        for curve in self.curves.iter().filter(|curve| curve.style != Style::Raw) {
            let mut finite = curve.points.iter().filter(|(_, y)| y.is_finite());
            if let Some(first) = finite.next() {
                let last = finite.next_back().unwrap_or(first);
                let [from, to] = [first, last].map(|(_, y)| significant(*y, 4));
                let (begin, end, unit) = (first.0, last.0, self.own_unit());
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

    /// The input of the page's script, as JSON that is safe inside HTML.
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
            "unit": self.own_unit(),
            "over": self.over,
            "x": [across.low, across.high],
            "y": [up.low, up.high],
            "curves": curves,
        });
        hover.to_string().replace('<', "\\u003c")
    }
}

/// Moves positions on an axis, in ascending order, until each is `room` percent from the next, none
/// above 100.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Point;

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
    fn marks_are_placed_between_two_steps() {
        let marks = [2, 9].map(|step| ChartEvent {
            step,
            label: "nf4 -> fp4".to_owned(),
            text: "quantizer nf4 -> fp4".to_owned(),
        });
        let drawn = drawing(&[(1.0, 4.0), (2.0, 3.0), (3.0, 2.0)]).marked(&marks, [1, 3]);
        let at = drawn.marks.iter().map(|mark| (mark.percent, mark.late));
        assert_eq!(at.collect::<Vec<_>>(), [(75.0, false), (100.0, true)]);
    }

    #[test]
    fn curve_labels_do_not_overlap() {
        let mut places = [10.0, 11.0, 50.0, 99.0, 100.0];
        set_apart(places.iter_mut(), 5.0);
        assert_eq!(places, [10.0, 15.0, 50.0, 95.0, 100.0]);
    }

    #[test]
    fn one_spike_does_not_flatten_the_curve() {
        let mut points: Vec<Point> = (1..=200).map(|i| (f64::from(i), 1.0)).collect();
        points[100].1 = 1000.0;
        let drawn = drawing(&points);
        assert_eq!(drawn.note, "1 value is above");
        assert!(drawn.y_ticks.iter().all(|tick| tick.text.len() < 4));
    }

    #[test]
    fn script_input_cannot_close_the_script() {
        let chart = Chart::new("a", "").with("</script>", Style::Line, &[(1.0, 1.0)]);
        let hover = chart.drawing([1, 1]).hover;
        assert!(!hover.contains('<'), "{hover}");
        assert!(serde_json::from_str::<serde_json::Value>(&hover).is_ok());
    }
}
