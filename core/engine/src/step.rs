//! One optimizer step: gradients of the micro-batches are summed, clipped and applied. And a step
//! of an evaluation.

mod evaluation;

use espalier_config::OptimOptions;
use espalier_data::{MicroBatch, StepBatch};
use espalier_interface::optimizer::ParamSize;
use espalier_plan::param_groups::ParamGroup;

use crate::executor::{Executor, Pass, StepPosition, Update};
use crate::not_finite::NotFinite;
use crate::optim::StepScalars;
use crate::{Error, optim};

pub use evaluation::{
    EvalOutcome, Look, Shown, StepLosses, StepRows, evaluate, evaluate_step, evaluate_steps,
    evaluation_not_finite,
};

/// The outcome of a step.
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

/// The micro-batches of a rank: every n-th of a step, for n ranks. All ranks get the same number,
/// so that they make the same collective calls; some get empty ones in the last round.
fn share<'a>(
    step: &'a StepBatch,
    executor: &Executor,
    empty: &'a MicroBatch,
) -> impl ExactSizeIterator<Item = &'a MicroBatch> {
    let peers = executor.peers();
    let (rank, ranks) = (peers.rank() as usize, peers.world().ranks as usize);
    let all = &step.micro_batches;
    let rounds = all.len().div_ceil(ranks);
    (0..rounds).map(move |round| all.get(round * ranks + rank).unwrap_or(empty))
}

/// Sums the gradients of a rank's micro-batches and returns its part of the step's mean loss.
///
/// # Errors
/// `Error::Plugin`: a call to the backend failed. `Error::Peer`: a rank is lost while gradients are
/// reduced.
pub fn gradients(
    executor: &Executor,
    step: &StepBatch,
    index: u64,
    seed: u64,
) -> Result<f64, Error> {
    passes(executor, step, (index, seed), None)
}

/// As [`gradients`] for step `index`; the updates that the schedule makes in the backward pass take
/// place where their numbers are given.
fn passes(
    executor: &Executor,
    step: &StepBatch,
    (index, seed): (u64, u64),
    update: Option<&Update>,
) -> Result<f64, Error> {
    executor.zero_gradients()?;
    let pass = Pass::Train {
        loss_factor: 1.0 / step.trained_tokens as f64,
        update,
    };
    let empty = MicroBatch::new();
    let micro_batches: Vec<&MicroBatch> = share(step, executor, &empty).collect();
    let sweeps = micro_batches.chunks(executor.micro_batches_per_fetch());
    let last = sweeps.len() - 1;
    let mut loss = 0.0;
    for (number, sweep) in sweeps.enumerate() {
        let position = StepPosition {
            seed,
            step: index,
            first: number == 0,
            last: number == last,
        };
        for sum in executor.sweep(sweep, pass, position)? {
            loss += sum.loss;
        }
    }
    Ok(loss / step.trained_tokens as f64)
}

/// Does a rank's part of step `index` (from 0) of a run. All ranks return the same outcome.
///
/// # Errors
/// [`Error::NotFinite`] for a loss or gradient that is not finite, before anything is updated;
/// where the schedule updates in the backward pass, params are updated by then. [`Error::Plugin`]
/// for a call to the backend that failed. [`Error::Peer`] for a rank that is lost.
pub fn train(
    executor: &Executor,
    optim: &OptimOptions,
    step: &StepBatch,
    [index, total_steps]: [u64; 2],
    seed: u64,
) -> Result<StepOutcome, Error> {
    executor.peers().step(index + 1);
    let numbers = |factor| numbers_of_update(executor, optim, [index, total_steps], (factor, seed));
    // No norm is known in the backward pass, and the config has none that clips.
    let ahead = executor.updates_in_backward().then(|| numbers(1.0));
    let own = passes(executor, step, (index, seed), ahead.as_ref())?;
    let mut own = vec![own];
    own.extend(executor.gradient_squares()?);
    let sent = exchange(executor, "loss and norm", &own)?;
    let loss = sent.iter().map(|rank| rank[0]).sum::<f64>();
    let squares: Vec<&[f64]> = sent.iter().map(|rank| &rank[1..]).collect();
    let grad_norm = executor.gradient_norm(&squares);
    let is_finite = loss.is_finite() && grad_norm.is_finite();
    match ahead {
        None if !is_finite => return Err(not_finite(executor, step, index, seed, loss)),
        None => executor.update(&numbers(optim::clip_factor(grad_norm, optim.clip_norm)))?,
        Some(_) if !is_finite => return Err(applied_not_finite(executor, index, loss, &squares)),
        Some(_) => {}
    }
    Ok(StepOutcome {
        loss,
        grad_norm,
        learning_rate: optim::learning_rate(optim, index, total_steps),
        trained_tokens: step.trained_tokens as u64,
    })
}

/// The numbers of the update of step `index` (from 0) of `total_steps`, for gradients that are
/// multiplied by `factor`, in a run with `seed`.
fn numbers_of_update(
    executor: &Executor,
    optim: &OptimOptions,
    [index, total_steps]: [u64; 2],
    (factor, seed): (f64, u64),
) -> Update {
    let of_group = |group: &ParamGroup| StepScalars {
        learning_rate: optim::scheduled(group.learning_rate, optim, index, total_steps),
        weight_decay: group.weight_decay,
        step: index + 1,
        factor,
        seed,
    };
    let own: Vec<StepScalars> = executor.groups().all().iter().map(of_group).collect();
    let optimizer = executor.optimizer();
    let [large, small] = [ParamSize::Large, ParamSize::Small]
        .map(|size| optim::scalars(optimizer.of_size(size), optim, &own));
    Update { large, small }
}

/// Checks that all trainable params and their state are finite after `step` steps. All ranks
/// return the same.
///
/// # Errors
/// [`Error::NotFinite`] for the first that is not finite. [`Error::Plugin`] for a call to the
/// backend that failed. [`Error::Peer`] for a rank that is lost.
pub fn check_state(executor: &Executor, step: u64) -> Result<(), Error> {
    let found = executor.state_not_finite()?;
    let found = found.map_or_else(String::new, |found| found.to_string());
    let sent = (executor.peers()).exchange("state that is not finite", found.as_bytes())?;
    match sent.into_iter().find(|sent| !sent.is_empty()) {
        None => Ok(()),
        Some(sent) => {
            let tensor = String::from_utf8_lossy(&sent).into_owned();
            Err(Error::NotFinite(NotFinite::unapplied(step, tensor)))
        }
    }
}

/// Sends numbers to all ranks; returns those of every rank, by rank.
fn exchange(executor: &Executor, label: &str, own: &[f64]) -> Result<Vec<Vec<f64>>, Error> {
    let sent: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
    let received = executor.peers().exchange(label, &sent)?;
    let numbers = |bytes: Vec<u8>| {
        let each = bytes.chunks_exact(8);
        each.map(|number| f64::from_le_bytes(number.try_into().expect("8 bytes")))
            .collect()
    };
    Ok(received.into_iter().map(numbers).collect())
}

/// The position of a single micro-batch.
fn alone(seed: u64, step: u64) -> StepPosition {
    StepPosition {
        seed,
        step,
        first: true,
        last: true,
    }
}

/// Looks for the first tensor of the step that is not finite; of several ranks, that of the first
/// which finds one. Where the search fails, its error: the other ranks wait in it for this one.
fn not_finite(executor: &Executor, step: &StepBatch, index: u64, seed: u64, loss: f64) -> Error {
    let find = || -> Result<Option<String>, Error> {
        // Before the forward passes: they may write where gradients are.
        let trained = if loss.is_finite() {
            executor.trainable_not_finite()?
        } else {
            None
        };
        let mut found = None;
        let empty = MicroBatch::new();
        for micro in share(step, executor, &empty) {
            let here = executor.forward_not_finite(micro, alone(seed, index))?;
            found = found.or(here);
        }
        let found = found.or(trained);
        let found = found.map_or_else(String::new, |found| found.to_string());
        let received = executor
            .peers()
            .exchange("tensor that is not finite", found.as_bytes())?;
        let sent = received.into_iter().find(|sent| !sent.is_empty());
        Ok(sent.map(|sent| String::from_utf8_lossy(&sent).into_owned()))
    };
    let tensor = match find() {
        Err(error) => return error,
        Ok(Some(found)) => found,
        Ok(None) if !loss.is_finite() => "the loss".to_owned(),
        Ok(None) => "the norm of the gradient".to_owned(),
    };
    Error::NotFinite(NotFinite::unapplied(index + 1, tensor))
}

/// The error for a step whose gradients were applied in the backward pass. The loss, which was
/// computed before any update, or the first unit of that pass with such gradients; the passes are
/// not repeated, since the params are others by now.
fn applied_not_finite(executor: &Executor, index: u64, loss: f64, squares: &[&[f64]]) -> Error {
    let tensor = if loss.is_finite() {
        let unit = executor.gradients_not_finite(squares);
        unit.map_or_else(
            || "the norm of the gradient".to_owned(),
            |unit| format!("the gradient of unit `{unit}`"),
        )
    } else {
        "the loss".to_owned()
    };
    Error::NotFinite(NotFinite::applied(index + 1, tensor))
}
