//! The sharding strategy `single`: one rank holds everything and computes unit after unit.

use espalier_interface::schedule::{
    Act, Action, MicroBatch, Place, Placement, Schedule, ShardingRequest,
};
use espalier_interface::{Component, Instance, PluginError, Result, Role, Sharding};

/// The strategy `single`.
pub struct Single;

impl Sharding for Single {
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
        if request.world != 1 {
            return Err(PluginError::invalid(format!(
                "sharding `single` serves one rank, this run has {}: use one device and \
                 `--ranks 1`, or name a strategy that shards in `--plugins`",
                request.world
            )));
        }
        let units = request.units.len();
        let resident = Placement {
            frozen: Place::Replicated,
            trainable: Place::Replicated,
            optimizer: Place::Replicated,
        };
        let mut micro_batch = MicroBatch::new(request);
        if request.update_in_backward {
            micro_batch.update_in_backward();
        }
        let schedule = Schedule {
            placements: vec![resident; units],
            micro_batch: micro_batch.into_actions(),
            update: request
                .updated_after_backward()
                .map(|unit| Action::new(Act::Optimize, unit))
                .collect(),
            ..Schedule::default()
        };
        schedule.validate(request)?;
        Ok(schedule)
    }
}

const SINGLE: Component = Component {
    name: "single",
    role: Role::SHARDING,
    doc: "one rank holds all weights, gradients and optimizer state",
    options: &[],
    capabilities: &[("search", r#"{"world": "one_rank"}"#)],
    create: |_, _| Ok(Instance::Sharding(Box::new(Single))),
};

espalier_interface::declare_plugin! { name: "single", components: &[SINGLE] }

#[cfg(test)]
mod tests;
