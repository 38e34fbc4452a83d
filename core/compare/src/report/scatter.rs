//! The arms' bits and losses -> a scatter plot of size and quality.

use espalier_report::axis::{Axis, Tick};
use espalier_report::chart::set_apart;
use espalier_system::number::significant;
use serde::Serialize;

use super::findings::Findings;
use super::quality::Quality;
use super::row::ArmRow;

/// Height of a name in percent of the plot.
const NAME_ROOM: f64 = 7.0;

/// Bits per weight on the horizontal axis, held-out loss on the vertical axis.
#[derive(Clone, Debug, Serialize)]
pub struct Scatter {
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    dots: Vec<Dot>,
    /// The dense baseline's loss.
    measure: Option<f64>,
}

/// An arm.
#[derive(Clone, Debug, Serialize)]
struct Dot {
    name: String,
    colour: usize,
    left: f64,
    bottom: f64,
    /// The height of its name, without overlap with others.
    name_bottom: f64,
    /// From the best to the worst seed.
    from_to: [f64; 2],
    /// Whether its name is on its left.
    is_far_right: bool,
    title: String,
}

/// The arms with known bits and losses; `None` of fewer than two.
pub fn scatter(
    findings: &Findings,
    rows: &[ArmRow],
    colour: impl Fn(usize) -> usize,
) -> Option<Scatter> {
    let known = rows
        .iter()
        .enumerate()
        .filter_map(|(place, row)| Some((place, row, row.bits_per_weight?, row.quality?.loss)));
    let known: Vec<(usize, &ArmRow, f64, f64)> = known.collect();
    if known.len() < 2 {
        return None;
    }
    let by_seed = |place: usize| -> Vec<f64> {
        let Some(step) = findings.step else {
            return Vec::new();
        };
        let runs = findings.arms[place].held_out(step);
        let quality = runs.iter().filter_map(|(_, run)| Quality::of(run.total()));
        quality.map(|quality| quality.loss).collect()
    };
    let range = |place: usize, loss: f64| {
        let seeds = by_seed(place).into_iter();
        seeds.fold([loss, loss], |[low, high], loss| {
            [low.min(loss), high.max(loss)]
        })
    };
    let span = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
            (low.min(x), high.max(x))
        })
    };
    let (least, most) = span(&mut known.iter().map(|(_, _, bits, _)| *bits));
    let across = Axis::doubling(least * 0.85, most * 1.18);
    let (low, high) = span(
        &mut known
            .iter()
            .flat_map(|(place, _, _, loss)| range(*place, *loss)),
    );
    let up = Axis::rounded(low, high, 4);
    let dot = |(place, row, bits, loss): &(usize, &ArmRow, f64, f64)| Dot {
        name: row.name.clone(),
        colour: colour(*place),
        left: across.percent(*bits),
        bottom: up.percent(*loss),
        name_bottom: up.percent(*loss),
        from_to: range(*place, *loss).map(|end| up.percent(end)),
        is_far_right: across.at(*bits) > 0.8,
        title: format!(
            "{}: {} bits, {} nats",
            row.name,
            significant(*bits, 4),
            significant(*loss, 4)
        ),
    };
    let mut dots: Vec<Dot> = known.iter().map(dot).collect();
    dots.sort_by(|a, b| a.bottom.total_cmp(&b.bottom));
    set_apart(dots.iter_mut().map(|dot| &mut dot.name_bottom), NAME_ROOM);
    let measure = known.iter().find(|(_, row, _, _)| row.is_dense_baseline);
    Some(Scatter {
        x_ticks: across.ticks.iter().map(|tick| across.tick(*tick)).collect(),
        y_ticks: up.ticks.iter().map(|tick| up.tick(*tick)).collect(),
        measure: measure.map(|(_, _, _, loss)| up.percent(*loss)),
        dots,
    })
}
