//! One optimizer step: micro-batches in, gradients summed, clipped and spent.

use crate::Error;
use crate::compare::record::DocumentLoss;
use crate::config::OptimOptions;
use crate::data::{MicroBatch, Schedule, Step};
use crate::executor::{Executor, LogitsWindow, LossSum, Moment, Pass, TokenLosses, Update};
use crate::optim;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Mean loss over the step's trained tokens.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// The learning rate that was applied.
    pub learning_rate: f64,
    /// Trained tokens.
    pub trained_tokens: u64,
}

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

/// Sums the gradients of a step's micro-batches and returns the mean loss.
///
/// # Errors
/// What the backend reports.
pub fn gradients(executor: &Executor, step: &Step, index: u64, seed: u64) -> Result<f64, Error> {
    executor.zero_gradients()?;
    let pass = Pass::Train {
        loss_factor: 1.0 / step.trained_tokens as f64,
    };
    let last = step.micro_batches.len() - 1;
    let mut loss = 0.0;
    for (number, micro) in step.micro_batches.iter().enumerate() {
        let moment = Moment {
            seed,
            step: index,
            first: number == 0,
            last: number == last,
        };
        loss += executor.micro_batch(micro, pass, moment)?.loss;
    }
    Ok(loss / step.trained_tokens as f64)
}

/// Does step `index` (from 0) of a run.
///
/// # Errors
/// [`Error::NotFinite`] for a loss or gradient that is not finite, before anything is updated.
pub fn train(
    executor: &Executor,
    optim: &OptimOptions,
    step: &Step,
    [index, total_steps]: [u64; 2],
    seed: u64,
) -> Result<StepOutcome, Error> {
    let loss = gradients(executor, step, index, seed)?;
    let grad_norm = executor.gradient_norm(&[executor.gradient_squares()?]);
    if !loss.is_finite() || !grad_norm.is_finite() {
        return Err(not_finite(executor, step, index, seed, loss));
    }
    let learning_rate = optim::learning_rate(optim, index, total_steps);
    executor.update(&Update {
        learning_rate,
        betas: optim.betas,
        eps: optim.eps,
        weight_decay: optim.weight_decay,
        step: index + 1,
        factor: optim::clip_factor(grad_norm, optim.clip_norm),
    })?;
    Ok(StepOutcome {
        loss,
        grad_norm,
        learning_rate,
        trained_tokens: step.trained_tokens as u64,
    })
}

/// The mean loss over all rows of a schedule. `after` is called with the number of steps done, and may end it.
///
/// # Errors
/// What the backend or `after` reports.
pub fn evaluate(
    executor: &Executor,
    rows: &Schedule,
    seed: u64,
    after: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<EvalOutcome, Error> {
    evaluate_looking(executor, rows, seed, &mut |_, _| Ok(()), after)
}

/// As [`evaluate`]; `look` sees the logits of each window of a micro-batch on the way.
///
/// # Errors
/// What the backend, `look` or `after` reports.
pub fn evaluate_looking(
    executor: &Executor,
    rows: &Schedule,
    seed: u64,
    look: &mut dyn FnMut(&MicroBatch, &LogitsWindow<'_>) -> Result<(), Error>,
    after: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<EvalOutcome, Error> {
    let (mut sum, mut tokens) = (LossSum::default(), 0);
    let mut documents = Vec::with_capacity(rows.dataset().num_sequences());
    for index in 0..rows.total_steps() {
        let first = documents.len();
        for micro in &rows.step(index)?.micro_batches {
            let moment = alone(seed, index);
            let losses = executor.evaluate(micro, moment, &mut |window| look(micro, window))?;
            let part = losses.sum(micro, 0..micro.tokens.len());
            sum.loss += part.loss;
            sum.correct += part.correct;
            sum.trained += part.trained;
            tokens += micro.tokens.len() as u64;
            put_documents(micro, &losses, first, &mut documents);
        }
        after(index + 1)?;
    }
    let trained = sum.trained.max(1) as f64;
    Ok(EvalOutcome {
        loss: sum.loss / trained,
        token_accuracy: sum.correct as f64 / trained,
        tokens,
        trained_tokens: sum.trained,
        documents,
    })
}

/// Puts the rows of a micro-batch into their places; the first row of its step is number `first`.
fn put_documents(
    micro: &MicroBatch,
    losses: &TokenLosses,
    first: usize,
    documents: &mut Vec<DocumentLoss>,
) {
    for (&number, ends) in micro.sequences.iter().zip(micro.cu_seqlens.windows(2)) {
        let sum = losses.sum(micro, ends[0] as usize..ends[1] as usize);
        let at = first + number as usize;
        if documents.len() <= at {
            documents.resize(at + 1, DocumentLoss::default());
        }
        documents[at] = DocumentLoss {
            loss: sum.loss,
            correct: sum.correct,
            trained: sum.trained,
        };
    }
}

/// The error for an evaluation whose loss is not finite: the first step of it that has such a loss.
pub fn evaluation_not_finite(executor: &Executor, rows: &Schedule, seed: u64) -> Error {
    for index in 0..rows.total_steps() {
        let step = match rows.step(index) {
            Ok(step) => step,
            Err(error) => return error.into(),
        };
        let found = step
            .micro_batches
            .iter()
            .map(|micro| executor.forward_not_finite(micro, alone(seed, index)))
            .find_map(|found| found.ok().flatten());
        if let Some(found) = found {
            let (step, tensor) = (index + 1, found.to_string());
            return Error::NotFinite { step, tensor };
        }
    }
    let (step, tensor) = (rows.total_steps(), "the loss".to_owned());
    Error::NotFinite { step, tensor }
}

/// A micro-batch that stands by itself.
fn alone(seed: u64, step: u64) -> Moment {
    Moment {
        seed,
        step,
        first: true,
        last: true,
    }
}

/// Looks for the first tensor of the step that is not finite.
fn not_finite(executor: &Executor, step: &Step, index: u64, seed: u64, loss: f64) -> Error {
    let find = || {
        for micro in &step.micro_batches {
            let moment = alone(seed, index);
            if let Some(found) = executor.forward_not_finite(micro, moment)? {
                return Ok(Some(found));
            }
        }
        executor.trainable_not_finite()
    };
    let tensor = match find() {
        Ok(Some(found)) => found.to_string(),
        _ if !loss.is_finite() => "the loss".to_owned(),
        _ => "the norm of the gradient".to_owned(),
    };
    Error::NotFinite {
        step: index + 1,
        tensor,
    }
}
