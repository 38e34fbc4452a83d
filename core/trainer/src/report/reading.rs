//! The course of a run -> a few sentences in plain words: whether it learned.
//!
//! Each sentence follows from numbers by a threshold that is stated beside it in the report.

use std::fmt;

use serde::Serialize;

use super::course::{Course, EvalPoint};
use super::number::{change, percent, significant};
use super::series::mean;

/// A loss that changed by less than this part of itself did not change.
const CHANGED: f64 = 0.02;
/// A training loss that ends higher than it began by this part of itself runs away.
const DIVERGED: f64 = 0.10;
/// Fewer steps than this say nothing.
const FEWEST_STEPS: usize = 5;
/// The first and the last part of the steps, whose means are compared.
const PART: usize = 10;
/// Most steps of such a part.
const MOST_OF_PART: usize = 50;
/// A gradient that is clipped in more than this share of the steps is worth a sentence.
const OFTEN_CLIPPED: f64 = 0.25;

/// How the sentences come about, for the report's small print.
pub const RULES: &str = "Held-out loss counts where there is one. Learned: it ends at least 2 % \
    lower than it began. Overfits: it was lowest before the end, ends at least 2 % above that, and \
    the training loss still fell. Got worse: it ends at least 2 % higher than it began. Diverged: \
    a loss is not a number, or the training loss ends 10 % higher than it began. Training losses \
    are means over the first and the last tenth of the steps (at most 50); fewer than 5 steps say \
    nothing.";

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The loss that counts fell.
    Learned,
    /// The held-out loss rose while the training loss fell.
    Overfits,
    /// The loss that counts did not change.
    NothingLearned,
    /// The loss that counts rose.
    GotWorse,
    /// The training loss ran away.
    Diverged,
    /// There is too little to tell.
    TooShort,
}

impl Verdict {
    /// The verdict in a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Learned => "Learned",
            Verdict::Overfits => "Overfits",
            Verdict::NothingLearned => "Nothing learned",
            Verdict::GotWorse => "Got worse",
            Verdict::Diverged => "Diverged",
            Verdict::TooShort => "Too short to tell",
        }
    }
}

/// A run in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// What became of it.
    pub verdict: Verdict,
    /// Why, and what else stands out.
    pub sentences: Vec<String>,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.verdict.name(), self.sentences.join(" "))
    }
}

/// Reads a course of `planned` steps; `clip_norm` is 0 where gradients are not clipped.
pub fn read(course: &Course, planned: Option<u64>, clip_norm: f64) -> Reading {
    let (verdict, sentence) = judge(course);
    let mut sentences = vec![sentence];
    sentences.extend(answers(&course.evals));
    let done = course.steps.last().map_or(0, |last| last.step);
    if let Some(planned) = planned.filter(|planned| done < *planned) {
        let text = format!("The run has not come to its end: {done} of {planned} steps are done.");
        sentences.push(text);
    }
    let clipped = course
        .steps
        .iter()
        .filter(|step| step.grad_norm > clip_norm);
    let share = clipped.count() as f64 / course.steps.len().max(1) as f64;
    if clip_norm > 0.0 && share > OFTEN_CLIPPED {
        sentences.push(format!(
            "The gradient was clipped to {} in {} of the steps.",
            significant(clip_norm, 3),
            percent(share)
        ));
    }
    if course.unreadable > 0 {
        sentences.push(format!(
            "Lines of metrics.jsonl that could not be read and are left out: {}.",
            course.unreadable
        ));
    }
    Reading { verdict, sentences }
}

/// The training loss at the beginning and at the end, as means over a part of the steps.
pub fn training_loss(course: &Course) -> Option<[f64; 2]> {
    let steps = &course.steps;
    let part = (steps.len() / PART).clamp(1, MOST_OF_PART);
    let (first, last) = (steps.get(..part)?, &steps[steps.len() - part..]);
    Some([first, last].map(|part| mean(part.iter().map(|step| step.loss))))
}

fn judge(course: &Course) -> (Verdict, String) {
    if let Some(step) = course.steps.iter().find(|step| !step.loss.is_finite()) {
        let text = format!(
            "The loss of step {} is not a number. Lower optim.learning_rate, raise the warm-up, \
             or try model.compute = \"f32\".",
            step.step
        );
        return (Verdict::Diverged, text);
    }
    let Some([first, last]) = training_loss(course) else {
        return (Verdict::TooShort, "No step is done.".to_owned());
    };
    if course.steps.len() < FEWEST_STEPS {
        let text = format!("{} steps are too few to say anything.", course.steps.len());
        return (Verdict::TooShort, text);
    }
    if last >= first * (1.0 + DIVERGED) {
        let text = format!(
            "The training loss rose from {} to {} ({}). Lower optim.learning_rate or raise the \
             warm-up.",
            significant(first, 4),
            significant(last, 4),
            change(first, last)
        );
        return (Verdict::Diverged, text);
    }
    overfits(course)
        .or_else(|| by_held_out(course, [first, last]))
        .unwrap_or_else(|| by_training(first, last))
}

/// Whether the held-out loss has risen since its lowest point while the training loss fell.
fn overfits(course: &Course) -> Option<(Verdict, String)> {
    let losses: Vec<(u64, f64)> = course
        .evals
        .iter()
        .filter_map(|eval| Some((eval.step, eval.loss?)))
        .collect();
    let (_, before) = *losses.first()?;
    let (last_step, after) = *losses.last()?;
    let (best_step, best) = *losses.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let since: Vec<f64> = course
        .steps
        .iter()
        .filter(|step| step.step > best_step && step.step <= last_step)
        .map(|step| step.loss)
        .collect();
    let (earlier, later) = since.split_at(since.len() / 2);
    let still_falls = mean(later.iter().copied()) < mean(earlier.iter().copied());
    if best_step == 0 || after < best * (1.0 + CHANGED) || !still_falls {
        return None;
    }
    let text = format!(
        "The held-out loss fell from {} to {} at step {best_step}, then rose to {} ({}) while the \
         training loss went on falling: from there on the run learns its rows by heart. Stop at \
         run.max_steps = {best_step}, lower optim.learning_rate, or give it more rows.",
        significant(before, 4),
        significant(best, 4),
        significant(after, 4),
        change(best, after)
    );
    Some((Verdict::Overfits, text))
}

fn by_held_out(course: &Course, [first, last]: [f64; 2]) -> Option<(Verdict, String)> {
    let losses: Vec<f64> = course.evals.iter().filter_map(|eval| eval.loss).collect();
    let [before, .., after] = losses[..] else {
        return None;
    };
    let (verdict, fell) = compare(before, after);
    let advice = match verdict {
        Verdict::NothingLearned => {
            " Train longer, or raise optim.learning_rate; see that the rows are what you meant \
             with `host data show`."
        }
        Verdict::GotWorse => {
            " What the training rows teach does not carry over to the held-out ones, or \
             optim.learning_rate is too high."
        }
        _ => "",
    };
    let text = format!(
        "The loss on rows that were not trained on {fell} from {} to {} ({}); the training loss \
         went from {} to {}.{advice}",
        significant(before, 4),
        significant(after, 4),
        change(before, after),
        significant(first, 4),
        significant(last, 4),
    );
    Some((verdict, text))
}

fn by_training(first: f64, last: f64) -> (Verdict, String) {
    let (verdict, fell) = compare(first, last);
    let text = format!(
        "The training loss {fell} from {} to {} ({}). Whether that carries over to other rows is \
         not known: hold some out with data.eval_split or data.eval_files.",
        significant(first, 4),
        significant(last, 4),
        change(first, last)
    );
    (verdict, text)
}

fn compare(before: f64, after: f64) -> (Verdict, &'static str) {
    if after <= before * (1.0 - CHANGED) {
        (Verdict::Learned, "fell")
    } else if after >= before * (1.0 + CHANGED) {
        (Verdict::GotWorse, "rose")
    } else {
        (Verdict::NothingLearned, "hardly moved,")
    }
}

/// What became of the answers and of the tokens that are foretold.
fn answers(evals: &[EvalPoint]) -> Vec<String> {
    let ends = |of: fn(&EvalPoint) -> Option<f64>| {
        let values: Vec<f64> = evals.iter().filter_map(of).collect();
        match values[..] {
            [before, .., after] => Some((before, after)),
            _ => None,
        }
    };
    let exact = ends(|eval| eval.exact_match).map(|(before, after)| {
        format!(
            "Exact match on held-out rows: {} before, {} after.",
            percent(before),
            percent(after)
        )
    });
    let tokens = ends(|eval| eval.token_accuracy).map(|(before, after)| {
        format!(
            "Token accuracy on them: {} before, {} after.",
            percent(before),
            percent(after)
        )
    });
    exact.into_iter().chain(tokens).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::StepMetrics;

    /// Steps with these losses and evaluations spread evenly over them.
    fn course(losses: &[f64], evals: &[f64]) -> Course {
        let step = |(index, loss): (usize, &f64)| StepMetrics {
            step: index as u64 + 1,
            loss: *loss,
            ..StepMetrics::default()
        };
        let every = losses.len() / evals.len().saturating_sub(1).max(1);
        let eval = |(index, loss): (usize, &f64)| EvalPoint {
            step: (index * every) as u64,
            loss: Some(*loss),
            ..EvalPoint::default()
        };
        Course {
            steps: losses.iter().enumerate().map(step).collect(),
            evals: evals.iter().enumerate().map(eval).collect(),
            swaps: Vec::new(),
            unreadable: 0,
        }
    }

    fn verdict(losses: &[f64], evals: &[f64]) -> Verdict {
        read(&course(losses, evals), None, 0.0).verdict
    }

    #[test]
    fn the_verdict_follows_from_the_losses() {
        let falls: Vec<f64> = (0..20).map(|i| 4.0 - f64::from(i) * 0.1).collect();
        let rises: Vec<f64> = (0..20).map(|i| 4.0 + f64::from(i) * 0.1).collect();
        let flat = [3.0; 20];
        assert_eq!(verdict(&falls, &[4.0, 3.0]), Verdict::Learned);
        assert_eq!(verdict(&falls, &[]), Verdict::Learned);
        assert_eq!(verdict(&falls, &[4.0, 3.95]), Verdict::NothingLearned);
        assert_eq!(verdict(&falls, &[4.0, 4.2]), Verdict::GotWorse);
        assert_eq!(verdict(&falls, &[4.0, 3.0, 3.5]), Verdict::Overfits);
        assert_eq!(verdict(&falls, &[4.0, 3.0, 3.01]), Verdict::Learned);
        assert_eq!(verdict(&flat, &[]), Verdict::NothingLearned);
        assert_eq!(verdict(&rises, &[4.0, 3.0]), Verdict::Diverged);
        assert_eq!(verdict(&falls[..4], &[4.0, 3.0]), Verdict::TooShort);
        assert_eq!(verdict(&[], &[]), Verdict::TooShort);
        assert_eq!(verdict(&[4.0, f64::NAN], &[]), Verdict::Diverged);
    }

    #[test]
    fn what_stands_out_is_said() {
        let mut course = course(&[3.0; 10], &[]);
        course.unreadable = 1;
        for step in &mut course.steps[..5] {
            step.grad_norm = 2.0;
        }
        let said = read(&course, Some(20), 1.0).sentences.join("\n");
        for words in ["10 of 20 steps", "clipped to 1 in 50.0 %", "left out: 1"] {
            assert!(said.contains(words), "{said}");
        }
    }
}
