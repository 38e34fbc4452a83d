//! The runs of all arms -> curves by step: held-out and training loss, and below each the excess
//! over the dense baseline on the same rows.

use std::collections::{BTreeMap, BTreeSet};

use espalier_report::chart::{Chart, Curve, Span, Style, Upward};
use espalier_report::series::{Point, mean, smoothed, smoothed_steps};

use super::contest::Contest;
use super::findings::{ArmFindings, Findings, RunFindings};
use super::quality::Quality;
use crate::statistics::{Basis, FEWEST_SEEDS, Family};

/// Draws of an interval that is only plotted: its ends are accurate to 1/50 of its width.
const DRAWS: u32 = 2000;
/// Most steps at which a difference is plotted with its interval.
const MOST_INTERVALS: usize = 16;

/// Stacked charts: two of held-out loss and two of training loss, without empty ones. `colour` maps
/// an arm to its colour.
pub fn charts(findings: &Findings, colour: impl Fn(usize) -> usize) -> Vec<Chart> {
    if findings.arms.is_empty() {
        return Vec::new();
    }
    let measure = findings.dense_baseline().unwrap_or_default();
    let name = |place: usize| findings.arms[place].arm.name.clone();
    let all = 0..findings.arms.len();
    let curve = |place: usize, style, (points, band)| Curve {
        name: name(place),
        style,
        colour: Some(colour(place)),
        points,
        band,
    };
    let mut held_out = Chart::new("Held-out loss", "nats a token");
    let mut above = Chart::new(&difference_title(findings, measure), "nats a token");
    let mut training = Chart::new("Training loss", &training_unit(findings));
    let mut training_above = Chart::new(
        &format!("Above {} on the same batches", name(measure)),
        "nats a token",
    );
    let families = families(findings);
    for place in all {
        let arm = &findings.arms[place];
        held_out = held_out.with_curve(curve(place, Style::Points, over_seeds(held_out_runs(arm))));
        training = training.with_curve(curve(place, Style::Line, over_seeds(training_runs(arm))));
        if place != measure {
            let differences = differences(&families, [place, measure]);
            let measure = &findings.arms[measure];
            above = above.with_curve(curve(place, Style::Points, differences));
            let paired = over_seeds(paired_runs(arm, measure));
            training_above = training_above.with_curve(curve(place, Style::Line, paired));
        }
    }
    for chart in [&mut held_out, &mut training] {
        (chart.upward, chart.wide) = (Upward::Free, true);
    }
    for chart in [&mut above, &mut training_above] {
        (chart.upward, chart.wide, chart.under) = (Upward::Signed, true, true);
    }
    let charts = [held_out, above, training, training_above];
    charts
        .into_iter()
        .filter(|chart| !chart.curves.is_empty())
        .collect()
}

fn difference_title(findings: &Findings, measure: usize) -> String {
    let basis = match findings.comparison.seeds.len() {
        0..FEWEST_SEEDS => "95 % interval over documents alone",
        _ => "95 % interval",
    };
    format!("Above {}, {basis}", findings.arms[measure].arm.name)
}

fn training_unit(findings: &Findings) -> String {
    let runs = findings.arms.iter().flat_map(|arm| &arm.runs);
    let steps = runs.map(|run| run.metrics.steps.len()).max();
    let steps = smoothed_steps(steps.unwrap_or_default());
    format!("nats a token, mean of about {steps} steps")
}

fn held_out_runs(arm: &ArmFindings) -> Vec<Vec<Point>> {
    let run = |run: &RunFindings| -> Vec<Point> {
        let points = run
            .held_out
            .iter()
            .filter_map(|(step, found)| Some((*step as f64, Quality::of(found.total())?.loss)));
        points.collect()
    };
    arm.runs.iter().map(run).collect()
}

fn training_points(run: &RunFindings) -> Vec<Point> {
    let steps = run.metrics.steps.iter();
    steps.map(|step| (step.step as f64, step.loss)).collect()
}

fn training_runs(arm: &ArmFindings) -> Vec<Vec<Point>> {
    let runs = arm.runs.iter().map(training_points);
    runs.map(|points| smoothed(&points)).collect()
}

/// Excess of a run's loss over the dense baseline's run under the same seed. Both see the same rows
/// in the same steps, so the effect of the rows cancels.
fn paired_runs(arm: &ArmFindings, measure: &ArmFindings) -> Vec<Vec<Point>> {
    let pair = |run: &RunFindings| {
        let other = measure.runs.iter().find(|other| other.seed == run.seed)?;
        let losses: BTreeMap<u64, f64> = other
            .metrics
            .steps
            .iter()
            .map(|step| (step.step, step.loss))
            .collect();
        let steps = run.metrics.steps.iter();
        let points: Vec<Point> = steps
            .filter_map(|step| Some((step.step as f64, step.loss - losses.get(&step.step)?)))
            .collect();
        Some(smoothed(&points))
    };
    arm.runs.iter().filter_map(pair).collect()
}

/// The mean over runs by step, and the range from the least to the greatest.
fn over_seeds(runs: Vec<Vec<Point>>) -> (Vec<Point>, Vec<Span>) {
    let mut by_step: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (step, value) in runs.into_iter().flatten() {
        by_step.entry(step as u64).or_default().push(value);
    }
    let several = by_step.values().any(|values| values.len() > 1);
    let points = by_step
        .iter()
        .map(|(step, values)| (*step as f64, mean(values.iter().copied())));
    let spans = by_step.iter().filter(|_| several).map(|(step, values)| {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        (
            *step as f64,
            finite().fold(f64::INFINITY, f64::min),
            finite().fold(f64::NEG_INFINITY, f64::max),
        )
    });
    (points.collect(), spans.collect())
}

/// The arms' places and differences after each evaluated step, or after a subset of many steps.
fn families(findings: &Findings) -> Vec<(f64, Vec<usize>, Family)> {
    let runs = findings.arms.iter().flat_map(|arm| &arm.runs);
    let steps = runs.flat_map(|run| run.held_out.keys().copied());
    let steps: Vec<u64> = BTreeSet::from_iter(steps).into_iter().collect();
    let every = steps.len().div_ceil(MOST_INTERVALS).max(1);
    let last = steps.len().saturating_sub(1);
    let chosen = steps
        .into_iter()
        .enumerate()
        .filter(|(at, _)| (last - at).is_multiple_of(every));
    let found = chosen.filter_map(|(_, step)| {
        let contest = Contest::trained(findings, step);
        let basis = Basis::of_seeds(contest.seeds.len());
        let family = Family::compare(&contest.runs(), basis, DRAWS).ok()?;
        Some((step as f64, contest.places, family))
    });
    found.collect()
}

/// The difference in held-out loss of the arm at the first of `places` by step, with its interval.
fn differences(
    families: &[(f64, Vec<usize>, Family)],
    places: [usize; 2],
) -> (Vec<Point>, Vec<Span>) {
    let found = families.iter().filter_map(|(step, among, family)| {
        let [first, second] = places.map(|place| among.iter().position(|at| *at == place));
        let (first, second) = (first?, second?);
        let mut all = family.comparisons.iter();
        let found = all.find_map(|comparison| comparison.between([first, second]));
        Some((*step, found?))
    });
    let spans = found.map(|(step, difference)| {
        let [low, high] = difference.interval.0;
        ((step, difference.estimate), (step, low, high))
    });
    spans.unzip()
}
