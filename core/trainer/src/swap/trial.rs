//! A new executor beside the old one -> both losses of the next micro-batch, if the new one passes.

use espalier_data::StepBatch;
use espalier_engine::executor::{Executor, LossSum, Pass, StepPosition};
use espalier_interface::{ErrorCode, PluginError};
use espalier_registry::{PluginFailure, PluginIdentity};

use crate::Error;

/// Runs the first micro-batch of `step`, number `index` of the run: forward through both without
/// dropout, then forward and backward through the new one. No param is updated, and the inputs of
/// the old one's next step are unchanged. Returns the losses of old and new.
///
/// # Errors
/// Errors of a backend; numbers that are not finite, which are attributed to `plugin`.
pub(super) fn run(
    [old, new]: [&Executor; 2],
    step: &StepBatch,
    [index, seed]: [u64; 2],
    plugin: &PluginIdentity,
) -> Result<[f64; 2], Error> {
    let micro = &step.micro_batches[0];
    let position = StepPosition {
        seed,
        step: index,
        first: true,
        last: true,
    };
    let pass = |executor: &Executor, pass: Pass<'_>| executor.micro_batch(micro, pass, position);
    let before = pass(old, Pass::Evaluate)?;
    let after = pass(new, Pass::Evaluate)?;
    new.zero_gradients()?;
    let loss_factor = 1.0 / after.trained.max(1) as f64;
    let trains = Pass::Train {
        loss_factor,
        update: None,
    };
    let trained = pass(new, trains)?;
    let norm = new.gradient_norm(&[&new.gradient_squares()?]);
    for (what, value) in [
        ("loss", after.loss),
        ("loss with dropout", trained.loss),
        ("norm of the gradient", norm),
    ] {
        if !value.is_finite() {
            let found = new.forward_not_finite(micro, position)?;
            let tensor = found.map_or_else(String::new, |found| format!(" ({found})"));
            return Err(Error::Plugin(PluginFailure {
                plugin: plugin.component.clone(),
                callback: "the trial before it takes over".to_owned(),
                file: plugin.file.clone(),
                source: PluginError::new(
                    ErrorCode::PROTOCOL,
                    format!("the {what} of the next micro-batch is not finite{tensor}"),
                ),
            }));
        }
    }
    Ok([before, after].map(mean))
}

fn mean(sum: LossSum) -> f64 {
    sum.loss / sum.trained.max(1) as f64
}
