//! The sharding strategy `fsdp`: weights, gradients and optimizer state are sharded over the ranks,
//! and units are gathered for their computations.
//!
//! A unit's weights are in memory during the passes that read them and `prefetch` passes before. So
//! two passes this close together share one gather. With offload a rank's parts are in host memory.
//! A unit may run several micro-batches each time it is gathered.

mod micro_batch;
mod placement;
mod settings;
mod update;

use espalier_interface::schedule::{Schedule, ShardingRequest};
use espalier_interface::{Component, Instance, Options, PluginError, Result, Role, Sharding};

pub use settings::{Gather, Offload, Settings, Strategy};

/// The strategy `fsdp`.
pub struct Fsdp {
    settings: Settings,
}

impl Fsdp {
    /// The strategy with checked options.
    ///
    /// # Errors
    /// `INVALID` for options that contradict each other.
    pub fn new(options: &Options) -> Result<Self> {
        Ok(Fsdp {
            settings: Settings::read(options)?,
        })
    }
}

impl Sharding for Fsdp {
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
        let settings = &self.settings;
        let shard_ranks = placement::shard_ranks(settings, request)?;
        // An evaluation saves nothing, and trains nothing.
        let trains = request.units.iter().any(|unit| unit.gradients > 0);
        let saves = request.units.iter().any(|unit| unit.saved > 0);
        if settings.offload_activations && trains && !saves {
            return Err(PluginError::invalid(
                "offload_activations: expected the bytes that a forward pass saves of each unit, found none in this host's \
                 request: leave it out, and set model.recompute = \"layer\" to save less",
            ));
        }
        let held = settings.micro_batches_per_fetch;
        if request.update_in_backward && held > 1 {
            return Err(PluginError::invalid(format!(
                "micro_batches_per_fetch = {held} holds a fetch for several micro-batches, and an update in the backward pass \
                 (optim.in_backward = true) is of a step of one: set sharding.fsdp.micro_batches_per_fetch = 1, or \
                 optim.in_backward = false"
            )));
        }
        let mut schedule = Schedule {
            placements: vec![placement::of_units(settings, shard_ranks); request.units.len()],
            shard_ranks,
            reduce_dtype: settings.reduce_dtype,
            // An evaluation keeps no activations, and runs micro-batch by micro-batch.
            micro_batches_per_fetch: if trains { held } else { 1 },
            ..Schedule::default()
        };
        schedule.micro_batch = micro_batch::actions(settings, request, &schedule);
        schedule.update = update::actions(settings, request, &schedule);
        schedule.validate(request)?;
        Ok(schedule)
    }
}

const FSDP: Component = Component {
    name: "fsdp",
    role: Role::SHARDING,
    doc: "weights, gradients and optimizer state cut over the ranks, put together unit by unit; offload to host memory",
    options: settings::OPTIONS,
    capabilities: &[("search", settings::SEARCH)],
    create: |options, _| Ok(Instance::Sharding(Box::new(Fsdp::new(options)?))),
};

espalier_interface::declare_plugin! { name: "fsdp", components: &[FSDP] }

#[cfg(test)]
mod tests;
