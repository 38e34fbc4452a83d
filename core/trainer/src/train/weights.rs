//! A plan -> its storage on the device with every param in its place.

use std::collections::HashSet;

use crate::Error;
use crate::config::{Config, Init};
use crate::executor::Executor;
use crate::files::{AdapterDirectory, ModelDirectory};
use crate::load::{LoadReport, Loader, Origin};
use crate::observer::{Event, Observer};
use crate::plan::RunPlan;
use crate::select::Components;

/// Allocates a plan's storage, loads every param and returns the executor.
///
/// # Errors
/// What [`Loader::load`] gives; an adapter that is not the one the options describe.
pub fn load(
    config: &Config,
    model: &ModelDirectory,
    components: &Components,
    plan: RunPlan,
    observer: &dyn Observer,
) -> Result<(Executor, LoadReport), Error> {
    let storage = plan.storage()?;
    let random = config.model.init == Init::Random;
    let tensors = if random { None } else { Some(model.tensors()?) };
    let saved = components.saved_adapter.as_ref();
    if let Some(saved) = saved {
        check_saved_adapter(saved, &plan)?;
    }
    let report = {
        let mut loader = Loader::new(plan.device.as_ref(), &storage, config.run.seed);
        let total = plan.params.len() as u64;
        for (index, param) in plan.params.iter().enumerate() {
            let origin = match (param.kind, &tensors, saved) {
                (Some(_), Some(tensors), _) => Origin::Files(tensors),
                (None, _, Some(saved)) => Origin::Files(saved.tensors()),
                _ => Origin::Random,
            };
            loader.load(index, param, origin, plan.quantizers.get(&index))?;
            let done = index as u64 + 1;
            observer.observe(&Event::LoadProgress {
                param: &param.name,
                done,
                total,
            });
        }
        loader.report()
    };
    Ok((Executor::new(plan, storage), report))
}

/// Every tensor of a saved adapter must be one of the plan's.
fn check_saved_adapter(saved: &AdapterDirectory, plan: &RunPlan) -> Result<(), Error> {
    let known: HashSet<&str> = plan
        .params
        .iter()
        .filter(|p| p.kind.is_none())
        .map(|p| p.name.as_str())
        .collect();
    let stranger = saved
        .tensors()
        .entries()
        .iter()
        .find(|e| !known.contains(e.name.as_str()));
    match stranger {
        None => Ok(()),
        Some(entry) => Err(Error::Checkpoint {
            path: saved.path().to_owned(),
            message: format!(
                "tensor `{}` belongs to no site of this model that its adapter_config.json targets",
                entry.name
            ),
        }),
    }
}
