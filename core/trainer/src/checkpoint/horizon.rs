//! Two numbers of steps -> whether the longer run has the same first steps as the shorter one.

use espalier_config::OptimOptions;
use espalier_engine::optim;
use serde_json::Value as Json;

/// Whether the longer run would have done the same first `step` steps as the shorter one.
pub(super) fn longer_is_the_same(old: &Json, new: &Json, step: u64) -> Result<(), String> {
    let before = total_steps(old).ok_or("the number of its steps is not known")?;
    if step >= before {
        return Err(format!("the run of {before} steps had come to its end"));
    }
    let after = total_steps(new).ok_or("the number of steps is not known")?;
    if after < before {
        return Err(format!(
            "a run of {before} steps cannot become one of {after}"
        ));
    }
    let optim: OptimOptions = serde_json::from_value(old["config"]["optim"].clone())
        .map_err(|error| format!("its optimizer is not known: {error}"))?;
    let rate = |step, total| optim::learning_rate(&optim, step, total);
    match (0..step).find(|&done| rate(done, before) != rate(done, after)) {
        None => Ok(()),
        Some(done) => Err(format!(
            "the learning rate of step {} follows from the number of steps, which would be {after} \
             instead of {before}",
            done + 1
        )),
    }
}

/// The steps of the run with the record `run`.
pub(super) fn total_steps(run: &Json) -> Option<u64> {
    run["data"]["total_steps"].as_u64()
}
