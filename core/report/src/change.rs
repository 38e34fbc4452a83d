//! Losses before and after -> how far their mean moved, and what of that can be told.
//!
//! Held-out rows are the same before and after, so that they are paired. Training losses are of
//! other rows at every step. Where rows are shuffled the first and the last part of the steps are
//! compared; in file order those are not drawn from the same lot, and the last pass is compared
//! with the first, step by step, on the same rows. See `change/interval.rs`.

mod interval;

use espalier_engine::document_loss::DocumentLoss;
use espalier_engine::observer::StepMetrics;
use espalier_system::number::decimals;
use serde::Serialize;

use interval::{Found, Pair};

/// A change that may be less than this part of the loss is none.
pub(super) const LEAST: f64 = 0.001;
/// A change that is surely less than this part of the loss is hardly one.
pub(super) const HARDLY: f64 = 0.02;
/// Fewer steps than this say nothing.
const FEWEST_STEPS: usize = 5;

/// How a mean moved, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// It is surely lower.
    Fell,
    /// It is surely higher.
    Rose,
    /// It is surely nearly the same.
    Still,
    /// It may be lower, the same or higher.
    Unknown,
}

/// What an interval takes into account, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Other rows: both means are of the same ones, paired.
    Rows,
    /// The noise of steps in shuffled order.
    Steps,
    /// Other rows: the same ones in the first and in the last pass, paired by step.
    Passes,
    /// No interval: both means are of the same rows, and there is no loss by row. What is said is
    /// said of these rows.
    TheseRows,
    /// No interval: the rows of the first steps and those of the last are not drawn from the same
    /// lot.
    FileOrder,
    /// No interval: too few steps.
    FewSteps,
}

/// A mean loss before and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The mean before, in nats a token.
    pub before: f64,
    /// The mean after.
    pub after: f64,
    /// Where `after - before` may truly lie.
    pub interval: Option<[f64; 2]>,
    /// What the interval takes into account.
    pub basis: Basis,
    /// Rows or steps that it follows from.
    pub count: usize,
    /// What follows.
    pub told: Told,
}

/// How rows come to steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// In an order of its own in each pass.
    Shuffled,
    /// In the order of the files, the same in each pass of so many steps; nothing where that is not
    /// on record.
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
        let told = match (interval, basis) {
            (Some([_, high]), _) if high < -least => Told::Fell,
            (Some([low, _]), _) if low > least => Told::Rose,
            (Some([low, high]), _) if high.max(-low) <= hardly => Told::Still,
            (None, Basis::TheseRows) if after <= before - hardly && after < before => Told::Fell,
            (None, Basis::TheseRows) if after >= before + hardly && after > before => Told::Rose,
            (None, Basis::TheseRows) => Told::Still,
            _ => Told::Unknown,
        };
        Change {
            before,
            after,
            interval,
            basis,
            count,
            told,
        }
    }

    fn found(found: Found, basis: Basis) -> Self {
        Change::new(found.means, Some(found.interval), basis, found.count)
    }

    /// The change from one evaluation of rows to another one of the same, of which only the means
    /// are on record.
    pub fn of_means(means: [f64; 2]) -> Self {
        Change::new(means, None, Basis::TheseRows, 0)
    }

    /// The change from one evaluation of rows to another one of the same, one of `comparisons` that
    /// are made (Bonferroni's share of the risk falls to each). Nothing where they are not the
    /// same, or fewer than two.
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

    /// The change of the training loss; nothing without a step.
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

    /// `-12.3 %, 95 % interval -15.0 % to -9.6 %`, of the loss before; in nats where that was 0.
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

    /// Whether it moved by as much as counts where there is no interval.
    pub fn counts(&self) -> bool {
        (self.after - self.before).abs() >= HARDLY * self.before.abs()
    }

    /// Whether there are too few steps to tell.
    pub fn is_of_few_steps(&self) -> bool {
        self.basis == Basis::FewSteps
    }

    /// So many rows like these would tell a change of this size, if it is truly that large.
    pub fn rows_to_tell(&self) -> Option<u64> {
        let [low, high] = self.interval?;
        let moved = (self.after - self.before).abs();
        let times = ((high - low) / 2.0 / moved).powi(2);
        let rows = (times * self.count as f64 * 1.1).ceil();
        (self.basis == Basis::Rows && moved > 0.0 && rows < 1e6).then_some(rows as u64)
    }
}

/// What a change is shown in.
struct Scale {
    nats: f64,
    name: &'static str,
}

impl Scale {
    /// Decimals that show a width of so many nats with two digits, one to three.
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

/// The change from the first whole pass to the last whole one; nothing where there are not two.
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
