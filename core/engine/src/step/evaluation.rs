//! Held-out rows -> each row's loss, from all ranks, and the logits of each window of tokens.

use espalier_data::{BatchSchedule, MicroBatch, StepBatch};
use espalier_interface::{ErrorCode, PluginError};
use espalier_registry::PluginFailure;

use super::{alone, share};
use crate::Error;
use crate::document_loss::DocumentLoss;
use crate::executor::{Executor, LogitsWindow, LossSum, OnLogits, TokenLosses};
use crate::not_finite::NotFinite;

/// The loss of held-out rows.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalOutcome {
    /// Mean loss over the trained tokens.
    pub loss: f64,
    /// Share of them that the model ranked first.
    pub token_accuracy: f64,
    /// Tokens, trained or not.
    pub tokens: u64,
    /// Trained tokens.
    pub trained_tokens: u64,
    /// Each row's own loss, in the order of the files.
    pub documents: Vec<DocumentLoss>,
}

impl EvalOutcome {
    /// The outcome of an evaluation with these rows' losses, over `tokens` tokens.
    pub fn of(documents: Vec<DocumentLoss>, tokens: usize) -> Self {
        let mut sum = LossSum::default();
        for document in &documents {
            sum.loss += document.loss;
            sum.correct += document.correct;
            sum.trained += document.trained;
        }
        let trained = sum.trained.max(1) as f64;
        EvalOutcome {
            loss: sum.loss / trained,
            token_accuracy: sum.correct as f64 / trained,
            tokens: tokens as u64,
            trained_tokens: sum.trained,
            documents,
        }
    }
}

/// The place of a step's rows in an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRows {
    /// The step, from 0.
    pub index: u64,
    /// Any seed: nothing is drawn.
    pub seed: u64,
    /// Number of the step's first row in the files.
    pub first_row: usize,
    /// Trained tokens of the steps before.
    pub trained_before: u64,
}

/// The logits of a window of a micro-batch, on the rank that runs it.
pub struct Shown<'a> {
    /// Number of the step's first row in the files.
    pub first_row: usize,
    /// Trained tokens of all micro-batches before, on any rank.
    pub trained_before: u64,
    /// The micro-batch.
    pub micro: &'a MicroBatch,
    /// The logits.
    pub window: &'a LogitsWindow<'a>,
}

/// Gives the losses of the rows of a step.
pub type StepLosses<'a> =
    &'a mut dyn FnMut(&StepBatch, StepRows) -> Result<Vec<DocumentLoss>, Error>;

/// Receives logits. Several ranks call it at once.
pub type Look<'a> = &'a (dyn Fn(&Shown<'_>) -> Result<(), Error> + Sync);

/// The mean loss over all rows of a schedule, on one rank. `after` is called with the number of
/// steps done, and may end it.
///
/// # Errors
/// [`Error::Plugin`]: a call to the backend failed. The error of `after`.
pub fn evaluate(
    executor: &Executor,
    rows: &BatchSchedule,
    seed: u64,
    after: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<EvalOutcome, Error> {
    let mut each = |step: &StepBatch, at: StepRows| evaluate_step(executor, step, at, None);
    evaluate_steps(rows, seed, &mut each, after)
}

/// The mean loss over all rows of a schedule; `each` gives the losses of a step's rows. `after` is
/// called with the number of steps done, and may end it.
///
/// # Errors
/// Those of `each` and `after`.
pub fn evaluate_steps(
    rows: &BatchSchedule,
    seed: u64,
    each: StepLosses<'_>,
    after: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<EvalOutcome, Error> {
    let mut documents = Vec::with_capacity(rows.dataset().num_sequences());
    let (mut tokens, mut trained_before) = (0, 0);
    for index in 0..rows.total_steps() {
        let step = rows.step(index)?;
        let at = StepRows {
            index,
            seed,
            first_row: documents.len(),
            trained_before,
        };
        documents.append(&mut each(&step, at)?);
        tokens += step.tokens();
        trained_before += step.trained_tokens as u64;
        after(index + 1)?;
    }
    Ok(EvalOutcome::of(documents, tokens))
}

/// The losses of the rows of a step of an evaluation, from all ranks. This rank passes the logits
/// of its own micro-batches to `look`, if there is one.
///
/// # Errors
/// [`Error::Plugin`]: a call to the backend failed. [`Error::Peer`]: a rank is lost. The error of
/// `look`.
pub fn evaluate_step(
    executor: &Executor,
    step: &StepBatch,
    at: StepRows,
    look: Option<Look<'_>>,
) -> Result<Vec<DocumentLoss>, Error> {
    let peers = executor.peers();
    let (rank, ranks) = (peers.rank() as usize, peers.world().ranks as usize);
    let empty = MicroBatch::new();
    let mut all: Vec<(i32, DocumentLoss)> = Vec::new();
    for (round, micro) in share(step, executor, &empty).enumerate() {
        let before = step.micro_batches.iter().take(round * ranks + rank);
        let before: usize = before.map(|micro| micro.num_trained).sum();
        let trained_before = at.trained_before + before as u64;
        let mut shows = |window: &LogitsWindow<'_>| {
            look.map_or(Ok(()), |look| {
                look(&Shown {
                    first_row: at.first_row,
                    trained_before,
                    micro,
                    window,
                })
            })
        };
        let shows: OnLogits<'_> = &mut shows;
        let position = alone(at.seed, at.index);
        let losses = executor.evaluate(micro, position, look.map(|_| shows))?;
        all.extend(documents_of(micro, &losses));
    }
    if ranks > 1 {
        let sent = serde_json::to_vec(&all).expect("losses are plain data");
        all.clear();
        for rank in peers.exchange("held-out losses", &sent)? {
            let received: Vec<(i32, DocumentLoss)> =
                serde_json::from_slice(&rank).map_err(garbled)?;
            all.extend(received);
        }
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, document)| document).collect())
}

/// The losses of a micro-batch's rows, each with its number in the step.
fn documents_of<'a>(
    micro: &'a MicroBatch,
    losses: &'a TokenLosses,
) -> impl Iterator<Item = (i32, DocumentLoss)> + 'a {
    let bounds = micro.cu_seqlens.windows(2);
    micro.sequences.iter().zip(bounds).map(|(&number, ends)| {
        let sum = losses.sum(micro, ends[0] as usize..ends[1] as usize);
        let document = DocumentLoss {
            loss: sum.loss,
            correct: sum.correct,
            trained: sum.trained,
        };
        (number, document)
    })
}

/// The error for an evaluation whose loss is not finite, with the first step that has such a loss;
/// that of the search where it fails.
pub fn evaluation_not_finite(executor: &Executor, rows: &BatchSchedule, seed: u64) -> Error {
    for index in 0..rows.total_steps() {
        let step = match rows.step(index) {
            Ok(step) => step,
            Err(error) => return error.into(),
        };
        for micro in &step.micro_batches {
            match executor.forward_not_finite(micro, alone(seed, index)) {
                Ok(Some(found)) => {
                    let (step, tensor) = (index + 1, found.to_string());
                    return Error::NotFinite(NotFinite::unapplied(step, tensor));
                }
                Ok(None) => (),
                Err(error) => return error,
            }
        }
    }
    let (step, tensor) = (rows.total_steps(), "the loss".to_owned());
    Error::NotFinite(NotFinite::unapplied(step, tensor))
}

/// The error for a rank's message that cannot be read.
fn garbled(error: serde_json::Error) -> Error {
    Error::Plugin(PluginFailure {
        plugin: "collective".to_owned(),
        callback: "exchange".to_owned(),
        file: None,
        source: PluginError::new(ErrorCode::PROTOCOL, error.to_string()),
    })
}
