//! Losses before and after -> the change of their mean and its significance.
//!
//! Held-out rows are the same before and after, so they are paired. Training losses are of other
//! rows at every step. With shuffled rows, the first and last parts of the steps are compared. In
//! file order these parts are not samples of one distribution. The last pass is then compared with
//! the first, step by step, on the same rows. See `change/interval.rs`.

mod interval;

use espalier_engine::document_loss::DocumentLoss;
use espalier_engine::observer::StepMetrics;
use espalier_system::number::decimals;
use serde::Serialize;

use interval::{Found, Pair};

/// A relative change whose interval reaches below this is no change.
pub(super) const LEAST: f64 = 0.001;
/// A relative change whose whole interval is below this counts as unchanged.
pub(super) const HARDLY: f64 = 0.02;
/// Fewest steps for an interval.
const FEWEST_STEPS: usize = 5;

/// The significant direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Significantly lower.
    Fell,
    /// Significantly higher.
    Rose,
    /// Significantly close to unchanged.
    Still,
    /// Not significant: lower, the same or higher.
    Unknown,
}

/// The source of variation that an interval covers, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Other rows: both means are of the same rows, paired.
    Rows,
    /// The noise of steps in shuffled order.
    Steps,
    /// Other rows: the first and the last pass see the same rows, paired by step.
    Passes,
    /// No interval: both means are of the same rows, without a loss by row. The result holds for
    /// these rows only.
    TheseRows,
    /// No interval: the first and the last steps are not samples of one distribution of rows.
    FileOrder,
    /// No interval: too few steps.
    FewSteps,
}

/// A mean loss before and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The mean before, in nats per token.
    pub before: f64,
    /// The mean after.
    pub after: f64,
    /// Confidence interval of `after - before`.
    pub interval: Option<[f64; 2]>,
    /// The source of variation that the interval covers.
    pub basis: Basis,
    /// Rows or steps that it is computed from.
    pub count: usize,
    /// The direction.
    #[serde(rename = "told")]
    pub direction: Direction,
}

/// The order of rows in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// A new order in each pass.
    Shuffled,
    /// In the order of the files, the same in each pass of this many steps; `None` where the number
    /// is not on record.
    File(Option<u64>),
}

impl Change {
    fn new(
        [before, after]: [f64; 2],
        interval: Option<[f64; 2]>,
        basis: Basis,
        count: usize,
    ) -> Self {
        let interval = interval.filter(|ends| ends.iter().all(|end| end.is_finite()));
        let (least, hardly) = (LEAST * before.abs(), HARDLY * before.abs());
        let direction = match (interval, basis) {
            (Some([_, high]), _) if high < -least => Direction::Fell,
            (Some([low, _]), _) if low > least => Direction::Rose,
            (Some([low, high]), _) if high.max(-low) <= hardly => Direction::Still,
            (None, Basis::TheseRows) if after <= before - hardly && after < before => {
                Direction::Fell
            }
            (None, Basis::TheseRows) if after >= before + hardly && after > before => {
                Direction::Rose
            }
            (None, Basis::TheseRows) => Direction::Still,
            _ => Direction::Unknown,
        };
        Change {
            before,
            after,
            interval,
            basis,
            count,
            direction,
        }
    }

    fn found(found: Found, basis: Basis) -> Self {
        Change::new(found.means, Some(found.interval), basis, found.count)
    }

    /// The change between two evaluations of the same rows of which only the means are on record.
    pub fn of_means(means: [f64; 2]) -> Self {
        Change::new(means, None, Basis::TheseRows, 0)
    }

    /// The change between two evaluations of the same rows, one of `comparisons` (Bonferroni
    /// correction). `None` where the rows differ or are fewer than two.
    pub fn of_rows(rows: [&[DocumentLoss]; 2], comparisons: usize) -> Option<Self> {
        let [before, after] = rows;
        let alike = before.len() == after.len();
        let mut both = before.iter().zip(after);
        if !alike || both.any(|(one, other)| one.trained != other.trained) {
            return None;
        }
        let bearing = before.iter().zip(after).filter(|(one, _)| one.trained > 0);
        let pairs: Vec<Pair> = bearing
            .map(|(one, other)| Pair {
                sums: [one.loss, other.loss],
                tokens: one.trained as f64,
            })
            .collect();
        let found = interval::of_pairs(&pairs, comparisons)?;
        Some(Change::found(found, Basis::Rows))
    }

    /// The change of the training loss; `None` without a step.
    pub fn of_steps(steps: &[StepMetrics], order: RowOrder) -> Option<Self> {
        let means = interval::ends(steps)?;
        let without = |basis| Change::new(means, None, basis, steps.len());
        if steps.len() < FEWEST_STEPS {
            return Some(without(Basis::FewSteps));
        }
        let of_parts = || {
            let found = interval::of_parts(steps)?;
            Some(Change::found(found, Basis::Steps))
        };
        let change = match order {
            RowOrder::Shuffled => of_parts(),
            // Each step sees all rows.
            RowOrder::File(Some(1)) => of_parts(),
            RowOrder::File(steps_per_pass) => {
                steps_per_pass.and_then(|count| of_passes(steps, count))
            }
        };
        Some(change.unwrap_or_else(|| without(Basis::FileOrder)))
    }

    /// `-12.3 %, 95 % interval -15.0 % to -9.6 %`, relative to the loss before; in nats where that
    /// was 0.
    pub fn shown(&self) -> String {
        let moved = self.after - self.before;
        let scale = if self.before > 0.0 {
            Scale {
                nats: self.before / 100.0,
                name: " %",
            }
        } else {
            Scale {
                nats: 1.0,
                name: " nats",
            }
        };
        match self.interval {
            None => scale.shown(moved, scale.decimals(0.0)),
            Some([low, high]) => {
                let decimals = scale.decimals(high - low);
                let [moved, low, high] = [moved, low, high].map(|nats| scale.shown(nats, decimals));
                format!("{moved}, 95 % interval {low} to {high}")
            }
        }
    }

    /// Whether the change without an interval is large enough to count.
    pub fn counts(&self) -> bool {
        (self.after - self.before).abs() >= HARDLY * self.before.abs()
    }

    /// Whether there are too few steps for an interval.
    pub fn is_of_few_steps(&self) -> bool {
        self.basis == Basis::FewSteps
    }

    /// Rows of this kind that would make a change of this size significant.
    pub fn rows_to_tell(&self) -> Option<u64> {
        let [low, high] = self.interval?;
        let moved = (self.after - self.before).abs();
        let times = ((high - low) / 2.0 / moved).powi(2);
        let rows = (times * self.count as f64 * 1.1).ceil();
        (self.basis == Basis::Rows && moved > 0.0 && rows < 1e6).then_some(rows as u64)
    }
}

/// The unit in which a change is printed.
struct Scale {
    nats: f64,
    name: &'static str,
}

impl Scale {
    /// Decimals that print `width` nats with two digits, one to three.
    fn decimals(&self, width: f64) -> usize {
        if width > 0.0 {
            decimals(width / self.nats).clamp(1, 3)
        } else {
            1
        }
    }

    fn shown(&self, nats: f64, decimals: usize) -> String {
        let text = format!("{:+.decimals$}", nats / self.nats);
        let zero = !text.contains(|c: char| ('1'..='9').contains(&c));
        let text = if zero {
            text.trim_start_matches(['+', '-']).to_owned()
        } else {
            text.replace('-', "\u{2212}")
        };
        format!("{text}{}", self.name)
    }
}

/// The change from the first whole pass to the last; `None` of fewer than two.
fn of_passes(steps: &[StepMetrics], steps_per_pass: u64) -> Option<Change> {
    let pass = |number: u64| {
        let numbers = number * steps_per_pass + 1..=(number + 1) * steps_per_pass;
        let first = steps.partition_point(|step| step.step < *numbers.start());
        let pass = steps.get(first..first + usize::try_from(steps_per_pass).ok()?)?;
        let whole = pass.iter().map(|step| step.step).eq(numbers);
        whole.then_some(pass)
    };
    let passes = steps.last()?.step / steps_per_pass.max(1);
    let last = passes.checked_sub(1).filter(|last| *last > 0)?;
    let (first, last) = (pass(0)?, pass(last)?);
    let weights = interval::weights(first);
    let both = first.iter().zip(last).zip(weights);
    let pairs: Vec<Pair> = both
        .map(|((one, other), tokens)| Pair {
            sums: [one.loss, other.loss].map(|loss| loss * tokens),
            tokens,
        })
        .collect();
    let found = interval::of_pairs(&pairs, 1)?;
    Some(Change::found(found, Basis::Passes))
}
