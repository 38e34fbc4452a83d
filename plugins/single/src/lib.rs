//! The sharding strategy `single`: one rank holds everything and computes unit after unit.

use espalier_interface::schedule::{Act, Action, Place, Placement, Schedule, ShardingRequest};
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
        let forward = (0..units).map(|unit| Action::new(Act::Forward, unit));
        // The head ran backward with its forward.
        let backward = (0..units.saturating_sub(1)).rev();
        let backward = backward.map(|unit| Action::new(Act::Backward, unit));
        let trained = (0..units).filter(|&unit| request.units[unit].trainable > 0);
        let schedule = Schedule {
            placements: vec![resident; units],
            micro_batch: forward.chain(backward).collect(),
            update: trained
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
