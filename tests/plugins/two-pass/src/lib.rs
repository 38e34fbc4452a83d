//! The sharding strategy `two-pass`: one rank like `single`, with explicit dependencies. The update
//! takes every other unit first, from the head down, then the rest. Units are updated
//! independently, so no bit depends on the order.

use espalier_interface::schedule::{Act, Action, Place, Placement, Schedule, ShardingRequest};
use espalier_interface::{Component, Instance, PluginError, Result, Role, Sharding};

struct TwoPass;

impl Sharding for TwoPass {
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
        if request.world != 1 {
            let message = format!("`two-pass` serves one rank, this run has {}", request.world);
            return Err(PluginError::invalid(message));
        }
        let units = request.units.len();
        let placement = Placement {
            frozen: Place::Replicated,
            trainable: Place::Replicated,
            optimizer: Place::Replicated,
        };
        let forward = (0..units).map(|unit| Action::new(Act::Forward, unit));
        let backward = (0..units.saturating_sub(1)).rev();
        let backward = backward.map(|unit| Action::new(Act::Backward, unit));
        let trained = |parity: usize| {
            let units = (0..units).rev().filter(move |unit| unit % 2 == parity);
            units.filter(|&unit| request.units[unit].trainable > 0)
        };
        let update = trained(0).chain(trained(1));
        let schedule = Schedule {
            placements: vec![placement; units],
            micro_batch: in_turn(forward.chain(backward)),
            update: in_turn(update.map(|unit| Action::new(Act::Optimize, unit))),
            ..Schedule::default()
        };
        schedule.validate(request)?;
        Ok(schedule)
    }
}

/// The actions, each of which waits for the previous one.
fn in_turn(actions: impl Iterator<Item = Action>) -> Vec<Action> {
    let numbered = actions.enumerate();
    let waiting = numbered.map(|(index, action)| Action {
        after: index.checked_sub(1).into_iter().collect(),
        ..action
    });
    waiting.collect()
}

const TWO_PASS: Component = Component {
    name: "two-pass",
    role: Role::SHARDING,
    doc: "one rank holds everything; every other unit is updated first",
    options: &[],
    capabilities: &[],
    create: |_, _| Ok(Instance::Sharding(Box::new(TwoPass))),
};

espalier_interface::declare_plugin! { name: "two-pass", components: &[TWO_PASS] }
