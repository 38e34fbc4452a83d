//! The conclusions about a run -> a few plain sentences: whether it learned.
//!
//! Every number in a sentence comes from the facts. The report prints the rules as well.

use std::fmt;

use espalier_system::number::{percent, significant};
use serde::Serialize;

use super::change::{Basis, Change, Direction};
use super::facts::{Ends, Facts, NotFinite, RunVerdict, Turn};
use super::record::EarlyEnd;

/// The rules of the sentences, for the report's small print.
pub const RULES: &str = "Held-out loss counts where there is one, else training loss. A loss is \
    classified by its change and the 95 % interval of that. Fell, rose: the whole interval is at \
    least 0.1 % below or above the loss before. Hardly moved: all of it is within 2 %. Else it \
    is inconclusive. Held-out rows are paired, before and after, and the interval is of other \
    rows like them (jackknife). Training losses are means, weighed by trained tokens, over the \
    last tenth of the steps (of fewer than 100 up to a third, at most 10; of many at most 50) \
    and over half as many first ones. The noise of a step is its distance from the middle of its \
    neighbours, and the interval is Student's t. In file order the last pass is compared with \
    the first, by step. Learned: the loss that counts fell. Got worse: it rose. Nothing learned: \
    it hardly moved. Overfits: the held-out loss fell to its lowest point and rose from there by \
    2 % or more, and the training loss did not rise meanwhile. Diverged: a loss is not a number, \
    or the training loss rose by 10 % or more. Fewer than 5 steps without held-out rows are too \
    short. Where held-out losses are not on record by row, the result covers only those rows, \
    and 2 % is the bound.";

/// A run in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// The outcome.
    pub verdict: RunVerdict,
    /// The reasons and other notable facts.
    pub sentences: Vec<String>,
}

impl RunVerdict {
    /// A short name of the verdict.
    pub fn name(self) -> &'static str {
        match self {
            RunVerdict::Learned => "Learned",
            RunVerdict::Overfits => "Overfits",
            RunVerdict::NothingLearned => "Nothing learned",
            RunVerdict::GotWorse => "Got worse",
            RunVerdict::Diverged => "Diverged",
            RunVerdict::CannotTell => "Inconclusive",
            RunVerdict::TooShort => "Too short for a verdict",
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.verdict.name(), self.sentences.join(" "))
    }
}

/// Reads the facts.
pub fn read(facts: &Facts) -> Reading {
    let mut sentences = vec![why(facts)];
    let shares = [
        ("Exact match on held-out rows", facts.exact_match),
        ("Token accuracy on held-out rows", facts.token_accuracy),
    ];
    sentences.extend(shares.into_iter().filter_map(|(name, ends)| {
        let Ends { before, after } = ends?;
        let (before, after) = (percent(before), percent(after?));
        Some(format!("{name}: {before} before, {after} after."))
    }));
    if facts.swaps > 0 {
        let swaps = facts.swaps;
        sentences.push(format!(
            "Plugins were swapped on the way ({swaps}): what changed is not all due to training."
        ));
    }
    if let Some(planned) = facts.planned {
        let done = facts.done;
        let text = format!("The run has not ended: {done} of {planned} steps are done.");
        sentences.push(text);
    }
    if let Some(EarlyEnd {
        step,
        planned,
        worse,
    }) = facts.ended_early
    {
        sentences.push(format!(
            "It ended after step {step} of {planned}: {worse} evaluations in a row found no lower \
             held-out loss (run.stop_after_worse)."
        ));
    }
    if let Some(step) = facts.kept {
        sentences.push(format!(
            "What was written, and is judged here, is that of step {step}, with the lowest held-out \
             loss (run.keep_best)."
        ));
    }
    if let Some(clipping) = facts.clipping {
        sentences.push(format!(
            "The gradient was clipped to {} in {} of the steps.",
            significant(clipping.norm, 3),
            percent(clipping.share)
        ));
    }
    if let Some(idle) = &facts.idle_ranks {
        sentences.push(format!("{idle}."));
    }
    if facts.unreadable > 0 {
        sentences.push(format!(
            "Lines of metrics.jsonl that could not be read and are left out: {}.",
            facts.unreadable
        ));
    }
    Reading {
        verdict: facts.verdict,
        sentences,
    }
}

/// The reasons for the verdict.
fn why(facts: &Facts) -> String {
    if let Some(not_finite) = facts.not_finite {
        let which = match not_finite {
            NotFinite::Step(step) => format!("The loss of step {step}"),
            NotFinite::HeldOut(step) => format!("The held-out loss after step {step}"),
        };
        return format!(
            "{which} is not a number. Lower optim.learning_rate, raise the warm-up, or try \
             model.compute = \"f32\"."
        );
    }
    match (facts.verdict, &facts.turn, &facts.held_out, &facts.training) {
        (RunVerdict::Diverged, _, _, Some(training)) => {
            let moved = moved("The training loss", training, "");
            format!("{moved} Lower optim.learning_rate or raise the warm-up.")
        }
        (RunVerdict::Overfits, Some(turn), _, _) => turned(turn),
        (_, _, Some(held_out), Some(training)) => by_held_out(held_out, training),
        (_, _, None, Some(training)) => by_training(training),
        _ => "No step is done.".to_owned(),
    }
}

fn turned(turn: &Turn) -> String {
    let best_step = turn.best_step;
    let training = match turn.training {
        Some(training) if training.direction == Direction::Fell => {
            "while the training loss continued to fall: the run overfits from there".to_owned()
        }
        Some(training) => format!(
            "while the training loss went from {} to {}",
            significant(training.before, 4),
            significant(training.after, 4)
        ),
        None => "in the same run".to_owned(),
    };
    format!(
        "The held-out loss fell from {} to {} at step {best_step}, then rose to {} ({}) {training}. \
         Set run.keep_best = true, stop at run.max_steps = {best_step}, lower optim.learning_rate, \
         or give it more rows.",
        significant(turn.first, 4),
        significant(turn.change.before, 4),
        significant(turn.change.after, 4),
        turn.change.shown(),
    )
}

fn by_held_out(held_out: &Change, training: &Change) -> String {
    let over = match held_out.basis {
        Basis::Rows => format!(" over {} rows", held_out.count),
        _ => String::new(),
    };
    let moved = moved("The loss on rows that were not trained on", held_out, &over);
    let these = match held_out.basis {
        Basis::TheseRows => {
            " Losses by row are not on record, so the result holds for these rows only."
        }
        _ => "",
    };
    let advice = match held_out.direction {
        Direction::Fell => String::new(),
        Direction::Still => {
            " Train longer, or raise optim.learning_rate; see that the rows are what \
                        you meant with `host data show`."
                .to_owned()
        }
        Direction::Rose => {
            " What the training rows teach does not carry over to the held-out ones, or \
                       optim.learning_rate is too high."
                .to_owned()
        }
        Direction::Unknown => match held_out.rows_to_tell() {
            Some(rows) => format!(
                " If that is its true size, about {} held-out rows would confirm it (data.eval_split).",
                significant(rows as f64, 2)
            ),
            None => " Hold out more rows (data.eval_split), or train longer.".to_owned(),
        },
    };
    let training = match training.count {
        0 | 1 => String::new(),
        _ => format!(
            " The training loss went from {} to {}.",
            significant(training.before, 4),
            significant(training.after, 4)
        ),
    };
    format!("{moved}{training}{these}{advice}")
}

fn by_training(training: &Change) -> String {
    match training.basis {
        Basis::FewSteps => match training.count {
            1 => "1 step is too little to say anything.".to_owned(),
            steps => format!("{steps} steps are too few to say anything."),
        },
        Basis::FileOrder => format!(
            "{} The rows come in the order of the files, so that the last steps saw other rows \
             than the first. Set data.shuffle = true, train for a second pass (run.epochs), or \
             hold rows out with data.eval_split or data.eval_files.",
            moved("The training loss", training, "")
        ),
        _ => {
            let advice = match training.direction {
                Direction::Unknown => {
                    "Train for more steps, or hold rows out with data.eval_split or data.eval_files."
                }
                Direction::Still => {
                    "Train longer, or raise optim.learning_rate; see that the rows are what you \
                     meant with `host data show`."
                }
                Direction::Fell | Direction::Rose => {
                    "Whether that carries over to other rows is not known: hold some out with \
                     data.eval_split or data.eval_files."
                }
            };
            format!("{} {advice}", moved("The training loss", training, ""))
        }
    }
}

/// The change of `what`; `over` names the basis of the interval.
fn moved(what: &str, change: &Change, over: &str) -> String {
    let (before, after) = (significant(change.before, 4), significant(change.after, 4));
    let shown = format!("{before} to {after} ({}{over})", change.shown());
    match change.direction {
        Direction::Fell => format!("{what} fell from {shown}."),
        Direction::Rose => format!("{what} rose from {shown}."),
        Direction::Still => format!("{what} hardly moved, from {shown}."),
        Direction::Unknown => {
            let what = what.replacen("The", "the", 1);
            format!("Whether {what} changed is not certain: it went from {shown}.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::run_metrics::RunMetrics;
    use espalier_engine::observer::StepMetrics;

    #[test]
    fn notable_facts_are_reported() {
        let step = |index: u64| StepMetrics {
            step: index + 1,
            loss: 3.0,
            grad_norm: if index < 5 { 2.0 } else { 0.0 },
            ..StepMetrics::default()
        };
        let metrics = RunMetrics {
            steps: (0..10).map(step).collect(),
            unreadable: 1,
            ..RunMetrics::default()
        };
        let mut record = Record::default();
        record.data.total_steps = Some(20);
        record.config = serde_json::json!({"optim": {"clip_norm": 1.0}});
        let facts = Facts::of(&metrics, &record, &|_| None);
        let said = read(&facts).sentences.join("\n");
        for words in ["10 of 20 steps", "clipped to 1 in 50.0 %", "left out: 1"] {
            assert!(said.contains(words), "{said}");
        }
    }
}
