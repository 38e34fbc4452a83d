//! Several series on one axis -> rows of marks: the differences of pairs, the error by kind of
//! projection.

use espalier_report::axis::{Axis, Tick};
use espalier_system::number::{signed, significant};
use serde::Serialize;

use super::findings::Findings;
use super::pair::{Pair, shown, shown_width};
use super::row::relative_error;
use crate::record::WeightError;
use crate::statistics::{Interval, Noise};

/// The noise floor is plotted up to this multiple of the intervals' extent.
const FLOOR_REACH: f64 = 1.25;

/// Rows of marks over one axis.
#[derive(Clone, Debug, Serialize)]
pub struct Strips {
    rows: Vec<Strip>,
    ticks: Vec<Tick>,
    /// Position of 0, if it is on the axis.
    zero: Option<f64>,
    /// Start and end of the noise floor.
    floor: Option<[f64; 2]>,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
struct Strip {
    name: String,
    marks: Vec<Mark>,
    /// The number as text, beside the marks.
    text: String,
    /// The conclusion.
    verdict: &'static str,
    is_real: bool,
}

/// A mark in an arm's colour, with its interval where there is one.
#[derive(Clone, Debug, Serialize)]
struct Mark {
    colour: usize,
    percent: f64,
    from_to: Option<[f64; 2]>,
    title: String,
}

/// The differences of pairs with their intervals, and the noise floor.
pub fn forest(
    pairs: &[Pair],
    noise: Option<&Noise>,
    colour: impl Fn(usize) -> usize,
) -> Option<Strips> {
    let intervals = || {
        pairs
            .iter()
            .filter_map(|pair| Some(pair.ranked_by()?.together))
    };
    intervals().next()?;
    let mut ends: Vec<f64> = intervals().flat_map(|interval| interval.0).collect();
    let reach = ends.iter().fold(0.0f64, |reach, end| reach.max(end.abs()));
    let floor = noise.map(|noise| Interval([-noise.range, noise.range]));
    // A floor far wider than all intervals is clipped, so that the intervals stay readable.
    let drawn = noise.map(|noise| noise.range.min(FLOOR_REACH * reach));
    ends.extend(drawn.iter().flat_map(|range| [-range, *range]));
    let widths: Vec<f64> = intervals().map(Interval::width).collect();
    let axis = Axis::signed(&ends, &widths);
    let row = |pair: &Pair| Strip {
        name: format!("{} \u{2212} {}", pair.arms[0], pair.arms[1]),
        marks: pair
            .ranked_by()
            .iter()
            .map(|difference| Mark {
                colour: colour(pair.places[0]),
                percent: axis.percent(difference.estimate),
                from_to: Some(difference.together.0.map(|end| axis.percent(end))),
                title: shown(difference.together),
            })
            .collect(),
        text: match pair.ranked_by() {
            Some(difference) => format!(
                "{} ({})",
                signed(difference.estimate, shown_width(difference.together)),
                shown(difference.together)
            ),
            None => pair.missing.clone().unwrap_or_default(),
        },
        verdict: match pair.ranked_by() {
            Some(_) => pair.conclusion(),
            None => "",
        },
        is_real: pair.is_real,
    };
    Some(Strips {
        rows: pairs
            .iter()
            .filter(|pair| pair.is_shown())
            .map(row)
            .collect(),
        ticks: axis.ticks.iter().map(|tick| axis.tick(*tick)).collect(),
        zero: Some(axis.percent(0.0)),
        floor: floor.map(|floor| floor.0.map(|end| axis.percent(end).clamp(0.0, 100.0))),
    })
}

/// The relative error by kind of projection, one mark per arm.
pub fn kinds(findings: &Findings, colour: impl Fn(usize) -> usize) -> Option<Strips> {
    let weights = |place: usize| -> &[WeightError] {
        let base = findings.arms[place].base.as_ref();
        base.map_or(&[], |base| &base.weights)
    };
    let places = 0..findings.arms.len();
    let mut kinds: Vec<&str> = Vec::new();
    for weight in places.clone().flat_map(weights) {
        if !kinds.contains(&weight.kind.as_str()) {
            kinds.push(&weight.kind);
        }
    }
    let error = |place: usize, kind: &str| {
        let same = weights(place).iter().filter(|weight| weight.kind == kind);
        relative_error(same).filter(|error| *error > 0.0)
    };
    let errors = || {
        kinds
            .iter()
            .flat_map(|kind| places.clone().filter_map(|place| error(place, kind)))
    };
    let (low, high) = errors().fold((f64::INFINITY, 0.0f64), |(low, high), error| {
        (low.min(error), high.max(error))
    });
    if high == 0.0 {
        return None;
    }
    let axis = Axis::logarithmic(low, high);
    let row = |kind: &&str| {
        let marks = places.clone().filter_map(|place| {
            let error = error(place, kind)?;
            let name = &findings.arms[place].arm.name;
            Some(Mark {
                colour: colour(place),
                percent: axis.percent(error),
                from_to: None,
                title: format!("{name}: {}", significant(error, 3)),
            })
        });
        Strip {
            name: (*kind).to_owned(),
            marks: marks.collect(),
            text: String::new(),
            verdict: "",
            is_real: false,
        }
    };
    Some(Strips {
        rows: kinds.iter().map(row).collect(),
        ticks: axis.ticks.iter().map(|tick| axis.tick(*tick)).collect(),
        zero: None,
        floor: None,
    })
}
