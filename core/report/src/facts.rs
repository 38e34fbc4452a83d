//! A run's metrics and record -> the conclusions of its report. Verdict, sentences and figures all
//! use them.

use espalier_engine::document_loss::DocumentLoss;
use espalier_plan::plan::IdleRanks;
use serde::Serialize;

use super::change::{Change, Direction, RowOrder};
use super::record::{EarlyEnd, Record};
use super::run_metrics::{EvalPoint, RunMetrics};

/// A training loss that rose significantly by this share of itself has diverged.
pub(super) const DIVERGED: f64 = 0.10;
/// Clipping in more than this share of the steps is reported.
const OFTEN_CLIPPED: f64 = 0.25;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerdict {
    /// The decisive loss fell: held-out loss, else training loss.
    Learned,
    /// The held-out loss rose while the training loss did not.
    Overfits,
    /// The decisive loss is nearly unchanged.
    NothingLearned,
    /// The decisive loss rose.
    GotWorse,
    /// A loss is not a number, or the training loss diverged.
    Diverged,
    /// The change of the decisive loss is not significant.
    CannotTell,
    /// There are too few steps for a verdict.
    TooShort,
}

/// A held-out metric at the first evaluation that has it, and at the last, if that is another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ends {
    /// At the first.
    pub before: f64,
    /// At the last.
    pub after: Option<f64>,
}

/// The place of a loss that is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotFinite {
    /// In a step.
    Step(u64),
    /// On the held-out rows after this many steps.
    HeldOut(u64),
}

/// A held-out loss that fell and rose again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Turn {
    /// The held-out loss of the first evaluation.
    pub first: f64,
    /// The step after which it was lowest.
    pub best_step: u64,
    /// From there to the last evaluation.
    pub change: Change,
    /// The training loss in the same steps.
    pub training: Option<Change>,
}

/// How often gradients were clipped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Clipping {
    /// The norm that they were clipped to.
    pub norm: f64,
    /// The share of the steps.
    pub share: f64,
}

/// The conclusions about a run; unknown ones are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// The outcome.
    pub verdict: RunVerdict,
    /// The last completed step.
    pub done: u64,
    /// Planned steps, where not all are completed.
    pub planned: Option<u64>,
    /// Where the held-out loss ended the run.
    pub ended_early: Option<EarlyEnd>,
    /// The step whose params were written, where it is not the last. Held-out numbers after
    /// training are those of this step.
    pub kept: Option<u64>,
    /// The first loss that is not a number.
    pub not_finite: Option<NotFinite>,
    /// The training loss.
    pub training: Option<Change>,
    /// The held-out loss, where it was evaluated twice.
    pub held_out: Option<Change>,
    /// Where the held-out loss rose from its lowest point.
    pub turn: Option<Turn>,
    /// Held-out loss.
    pub loss: Option<Ends>,
    /// Its perplexity.
    pub perplexity: Option<Ends>,
    /// Share of held-out tokens that the model ranks first.
    pub token_accuracy: Option<Ends>,
    /// Share of held-out answers that are exactly those of the rows.
    pub exact_match: Option<Ends>,
    /// Clipping, where it was frequent.
    pub clipping: Option<Clipping>,
    /// Plugins that were swapped during the run.
    pub swaps: usize,
    /// Lines of the metrics that could not be read.
    pub unreadable: u64,
    /// Ranks without work.
    pub idle_ranks: Option<IdleRanks>,
}

/// The step count -> each held-out row's loss after that many steps, where it is on record.
pub type RowLosses<'a> = &'a dyn Fn(u64) -> Option<Vec<DocumentLoss>>;

impl Facts {
    /// Draws the conclusions from `metrics`, `record` and the losses of held-out rows that `rows`
    /// returns.
    pub fn of(metrics: &RunMetrics, record: &Record, rows: RowLosses<'_>) -> Self {
        let order = match record.value("data.shuffle").and_then(|v| v.as_bool()) {
            Some(false) => RowOrder::File(record.data.steps_per_epoch),
            _ => RowOrder::Shuffled,
        };
        let done = metrics.steps.last().map_or(0, |last| last.step);
        let clip_norm = record.value("optim.clip_norm").and_then(|v| v.as_f64());
        let not_finite = not_finite(metrics);
        let finite = not_finite.is_none();
        let kept = record.kept.map(|kept| kept.step);
        let evals = metrics.evals.iter();
        let evals: Vec<EvalPoint> = evals
            .take_while(|eval| kept.is_none_or(|kept| eval.step <= kept))
            .copied()
            .collect();
        let held_out = Some(losses(&evals)).filter(|_| finite);
        let ends = |of: fn(&EvalPoint) -> Option<f64>| ends(evals.iter().filter_map(of));
        let mut facts = Facts {
            verdict: RunVerdict::TooShort,
            done,
            planned: (record.data.total_steps)
                .filter(|planned| done < *planned && record.ended_early.is_none()),
            ended_early: record.ended_early,
            kept: kept.filter(|kept| *kept < done),
            not_finite,
            training: Change::of_steps(&metrics.steps, order).filter(|_| finite),
            held_out: held_out.as_deref().and_then(|losses| match *losses {
                [first, .., last] => Some(between([first, last], rows, 1)),
                _ => None,
            }),
            turn: held_out
                .as_deref()
                .and_then(|losses| turn(losses, metrics, order, rows)),
            loss: ends(|eval| eval.loss),
            perplexity: ends(|eval| eval.perplexity),
            token_accuracy: ends(|eval| eval.token_accuracy),
            exact_match: ends(|eval| eval.exact_match),
            clipping: clipping(metrics, clip_norm.unwrap_or_default()),
            swaps: metrics.swaps.iter().filter(|swap| swap.is_taken()).count(),
            unreadable: metrics.unreadable,
            idle_ranks: record.idle_ranks.clone(),
        };
        facts.verdict = facts.conclude(metrics.steps.len());
        facts
    }

    fn conclude(&self, steps: usize) -> RunVerdict {
        if self.not_finite.is_some() {
            return RunVerdict::Diverged;
        }
        if steps == 0 {
            return RunVerdict::TooShort;
        }
        let ran_away = |training: &Change| {
            training.direction == Direction::Rose
                && training.after >= training.before * (1.0 + DIVERGED)
        };
        if self.training.as_ref().is_some_and(ran_away) {
            return RunVerdict::Diverged;
        }
        if self.turn.is_some() {
            return RunVerdict::Overfits;
        }
        match self.held_out.or(self.training) {
            Some(change) => change.verdict(),
            None => RunVerdict::TooShort,
        }
    }
}

fn not_finite(metrics: &RunMetrics) -> Option<NotFinite> {
    let step = metrics.steps.iter().find(|step| !step.loss.is_finite());
    let eval = |eval: &&EvalPoint| eval.loss.is_some_and(|loss| !loss.is_finite());
    let eval = metrics.evals.iter().find(eval);
    let of_step = step.map(|step| NotFinite::Step(step.step));
    of_step.or(eval.map(|eval| NotFinite::HeldOut(eval.step)))
}

/// The held-out losses by step.
fn losses(evals: &[EvalPoint]) -> Vec<(u64, f64)> {
    let loss = |eval: &EvalPoint| Some((eval.step, eval.loss?));
    evals.iter().filter_map(loss).collect()
}

fn ends(values: impl Iterator<Item = f64>) -> Option<Ends> {
    let values: Vec<f64> = values.collect();
    let after = values.get(1..)?.last().copied();
    values.first().map(|&before| Ends { before, after })
}

/// The change between two evaluations, one of `comparisons`; by row where row losses are on record.
fn between(evals: [(u64, f64); 2], rows: RowLosses<'_>, comparisons: usize) -> Change {
    let [before, after] = evals.map(|(_, loss)| loss);
    let found = evals.map(|(step, loss)| rows(step).filter(|rows| are_of(rows, loss)));
    let by_row = match &found {
        [Some(one), Some(other)] => Change::of_rows([one, other], comparisons),
        _ => None,
    };
    by_row.map_or_else(
        || Change::of_means([before, after]),
        |change| Change {
            before,
            after,
            ..change
        },
    )
}

/// Whether `rows` belong to the evaluation with mean `loss`: a restarted run can leave older files.
fn are_of(rows: &[DocumentLoss], loss: f64) -> bool {
    let sum: f64 = rows.iter().map(|row| row.loss).sum();
    let trained: u64 = rows.iter().map(|row| row.trained).sum();
    let mean = sum / trained as f64;
    (mean - loss).abs() <= 1e-9 * loss.abs()
}

/// Where the held-out loss fell and then rose significantly, while the training loss did not rise.
fn turn(
    losses: &[(u64, f64)],
    metrics: &RunMetrics,
    order: RowOrder,
    rows: RowLosses<'_>,
) -> Option<Turn> {
    let (first, last) = (*losses.first()?, *losses.last()?);
    let best = *losses.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    if best.0 == first.0 || best.0 == last.0 {
        return None;
    }
    // The minimum of several evaluations is biased low: the risk is shared among all candidates.
    let chosen_from = losses.len() - 1;
    let fell = between([first, best], rows, chosen_from);
    let change = between([best, last], rows, chosen_from);
    let rose = change.direction == Direction::Rose && change.counts();
    let since = metrics
        .steps
        .iter()
        .filter(|step| step.step > best.0 && step.step <= last.0);
    let since: Vec<_> = since.cloned().collect();
    let training = Change::of_steps(&since, order);
    let together = training.is_some_and(|training| training.direction == Direction::Rose);
    (fell.direction == Direction::Fell && rose && !together).then_some(Turn {
        first: first.1,
        best_step: best.0,
        change,
        training,
    })
}

fn clipping(metrics: &RunMetrics, norm: f64) -> Option<Clipping> {
    let clipped = metrics.steps.iter().filter(|step| step.grad_norm > norm);
    let share = clipped.count() as f64 / metrics.steps.len().max(1) as f64;
    (norm > 0.0 && share > OFTEN_CLIPPED).then_some(Clipping { norm, share })
}

impl Change {
    /// The verdict by the decisive loss.
    fn verdict(&self) -> RunVerdict {
        match self.direction {
            Direction::Fell => RunVerdict::Learned,
            Direction::Rose => RunVerdict::GotWorse,
            Direction::Still => RunVerdict::NothingLearned,
            Direction::Unknown if self.is_of_few_steps() => RunVerdict::TooShort,
            Direction::Unknown => RunVerdict::CannotTell,
        }
    }
}

#[cfg(test)]
mod tests;
