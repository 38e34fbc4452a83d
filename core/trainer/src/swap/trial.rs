//! New executors beside the old ones -> both losses of the next micro-batches, if the new ones
//! pass.

use espalier_data::{MicroBatch, StepBatch};
use espalier_engine::executor::{Executor, LossSum, Pass, StepPosition};
use espalier_engine::team::Team;
use espalier_interface::{ErrorCode, PluginError};
use espalier_registry::{PluginFailure, PluginIdentity};

use crate::Error;

/// Runs the first micro-batch of each rank in `step`, number `index` of the run: forward through
/// both without dropout, then forward and backward through the new ones. No param is updated, and
/// the inputs of the old ones' next step are unchanged. Returns the losses of old and new.
///
/// # Errors
/// Errors of a backend; numbers that are not finite, which are attributed to `plugin`.
pub(super) fn run(
    [old, new]: [&Team; 2],
    step: &StepBatch,
    [index, seed]: [u64; 2],
    plugin: &PluginIdentity,
) -> Result<[f64; 2], Error> {
    let empty = MicroBatch::new();
    let of_rank = |executor: &Executor| {
        let rank = executor.peers().rank() as usize;
        step.micro_batches.get(rank).unwrap_or(&empty)
    };
    let position = StepPosition {
        seed,
        step: index,
        first: true,
        last: true,
    };
    let evaluated = |team: &Team| {
        let sums = team
            .each(|executor| executor.micro_batch(of_rank(executor), Pass::Evaluate, position))?;
        Ok::<_, Error>(total(&sums))
    };
    let before = evaluated(old)?;
    let after = evaluated(new)?;
    let trains = Pass::Train {
        loss_factor: 1.0 / after.trained.max(1) as f64,
        update: None,
    };
    let trained = new.each(|executor| {
        executor.zero_gradients()?;
        let sum = executor.micro_batch(of_rank(executor), trains, position)?;
        Ok::<_, espalier_engine::Error>((sum, executor.gradient_squares()?))
    })?;
    let (trained, squares): (Vec<LossSum>, Vec<Vec<f64>>) = trained.into_iter().unzip();
    let squares: Vec<&[f64]> = squares.iter().map(Vec::as_slice).collect();
    let norm = new.first().gradient_norm(&squares);
    let trained = total(&trained);
    for (what, value) in [
        ("loss", after.loss),
        ("loss with dropout", trained.loss),
        ("norm of the gradient", norm),
    ] {
        if !value.is_finite() {
            let found =
                new.each(|executor| executor.forward_not_finite(of_rank(executor), position))?;
            let found = found.into_iter().flatten().next();
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

/// The sums over all ranks.
fn total(sums: &[LossSum]) -> LossSum {
    let mut total = LossSum::default();
    for sum in sums {
        total.loss += sum.loss;
        total.correct += sum.correct;
        total.trained += sum.trained;
    }
    total
}
