//! Rates at which a report finds a change, for unchanged and for changed losses, over runs drawn
//! from a fixed key.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

use espalier_engine::document_loss::DocumentLoss;
use espalier_engine::observer::StepMetrics;
use espalier_report::{Change, Direction, RowOrder};
use espalier_tests::Random;

/// Runs of each kind. A share of 5 % is then known to within 0.6 points (standard deviation).
const RUNS: u32 = 1200;
/// The loss of all rows.
const LOSS: f64 = 3.0;

/// The distribution of the rows' losses about their mean.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Even,
    /// Lognormal: a few rows are far harder than the rest.
    Skewed,
    /// Easy ones and hard ones.
    Two,
}

/// A run without held-out rows.
#[derive(Clone, Copy, Debug)]
struct Kind {
    rows: usize,
    batch: usize,
    steps: usize,
    /// The standard deviation of rows, as a part of their loss.
    noise: f64,
    shape: Shape,
}

fn random(run: u32, kind: Kind) -> Random {
    Random::of(u64::from(run), (kind.rows * 1000 + kind.steps) as u64)
}

/// Steps over shuffled rows, pass by pass as in a run; `fallen` is the relative decrease of the
/// loss at a step.
fn steps(kind: Kind, run: u32, fallen: impl Fn(f64) -> f64) -> Vec<StepMetrics> {
    let mut random = random(run, kind);
    let losses: Vec<f64> = (0..kind.rows)
        .map(|_| {
            let z = random.normal();
            let deviation = match kind.shape {
                Shape::Even => z,
                Shape::Skewed => (z.exp() - 0.5f64.exp()) / 2.16,
                Shape::Two => z.signum(),
            };
            (LOSS * (1.0 + kind.noise * deviation)).max(0.0)
        })
        .collect();
    let tokens: Vec<u64> = losses.iter().map(|_| 10 + random.below(40)).collect();
    let mut order: Vec<usize> = Vec::new();
    let step = |index: usize| {
        if order.is_empty() {
            order = (0..kind.rows).collect();
            for last in (1..kind.rows).rev() {
                order.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
        let batch = order.split_off(order.len() - kind.batch.min(order.len()));
        let trained: u64 = batch.iter().map(|&row| tokens[row]).sum();
        let sum: f64 = batch
            .iter()
            .map(|&row| losses[row] * tokens[row] as f64)
            .sum();
        let left = 1.0 - fallen(index as f64 / (kind.steps - 1) as f64);
        StepMetrics {
            step: index as u64 + 1,
            loss: left * sum / trained as f64,
            trained_tokens: trained,
            ..StepMetrics::default()
        }
    };
    (0..kind.steps).map(step).collect()
}

/// The share of runs with a reported change, and of those with a reported fall.
fn reported(kind: Kind, fallen: impl Fn(f64) -> f64) -> [f64; 2] {
    let found: Vec<Direction> = (0..RUNS)
        .map(|run| {
            let steps = steps(kind, run, &fallen);
            Change::of_steps(&steps, RowOrder::Shuffled)
                .expect("steps")
                .direction
        })
        .collect();
    let share = |of: &[Direction]| {
        let count = found
            .iter()
            .filter(|direction| of.contains(direction))
            .count();
        count as f64 / f64::from(RUNS)
    };
    [
        share(&[Direction::Fell, Direction::Rose]),
        share(&[Direction::Fell]),
    ]
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (rows, batch, steps) in [
        (40, 8, 5),
        (40, 8, 15),
        (40, 1, 40),
        (1000, 4, 8),
        (1000, 4, 30),
        (90, 8, 120),
        (5000, 1, 600),
    ] {
        for shape in [Shape::Even, Shape::Skewed, Shape::Two] {
            let noise = 0.3;
            kinds.push(Kind {
                rows,
                batch,
                steps,
                noise,
                shape,
            });
        }
    }
    kinds
}

#[test]
fn an_untrained_run_is_rarely_reported_as_a_change() {
    for kind in kinds() {
        let [changed, _] = reported(kind, |_| 0.0);
        println!("{changed:.4} {kind:?}");
        assert!(changed <= 0.065, "{changed} of {kind:?}");
    }
}

/// A loss that falls evenly, or mostly within the first tenth; the mean of a step scatters by 3.5
/// %.
#[test]
fn a_planted_fall_is_reported() {
    for (steps, by) in [(15, 0.2), (30, 0.15), (120, 0.1), (600, 0.05)] {
        let kind = Kind {
            rows: 2000,
            batch: 8,
            steps,
            noise: 0.1,
            shape: Shape::Skewed,
        };
        let [_, evenly] = reported(kind, |at| by * at);
        let [_, at_once] = reported(kind, |at| by * (1.0 - (-10.0 * at).exp()));
        println!("{evenly:.3} {at_once:.3} of {by} in {steps} steps");
        assert!(
            evenly.min(at_once) >= 0.9,
            "{evenly} {at_once} of {by} in {steps} steps"
        );
    }
}

/// Held-out rows whose losses each change by some 4 %: by zero on average, or down by 8, 5 or 2 %.
#[test]
fn held_out_rows_generalize_to_other_rows() {
    for (rows, fall) in [(10, 0.08), (30, 0.05), (300, 0.02)] {
        let shape = Shape::Even;
        let kind = Kind {
            rows,
            batch: 1,
            steps: 2,
            noise: 0.3,
            shape,
        };
        let changed = |moved: f64| {
            let found = (0..RUNS).map(|run| {
                let mut random = random(run, kind);
                let mut both = [Vec::new(), Vec::new()];
                for _ in 0..rows {
                    let trained = 5 + random.below(60);
                    let before = LOSS * (1.0 + 0.3 * random.normal());
                    let after = before + LOSS * (moved + 0.04 * random.normal());
                    for (rows, loss) in both.iter_mut().zip([before, after]) {
                        let loss = loss * trained as f64;
                        rows.push(DocumentLoss {
                            loss,
                            correct: 0,
                            trained,
                        });
                    }
                }
                let [before, after] = &both;
                Change::of_rows([before, after], 1).expect("rows").direction
            });
            let found: Vec<Direction> = found.collect();
            let changed = found
                .iter()
                .filter(|direction| matches!(direction, Direction::Fell | Direction::Rose));
            changed.count() as f64 / f64::from(RUNS)
        };
        let (none, some) = (changed(0.0), changed(-fall));
        println!("{none:.4} {some:.3} of {rows} rows");
        assert!(none <= 0.065 && some >= 0.9, "{none} {some} of {rows} rows");
    }
}
