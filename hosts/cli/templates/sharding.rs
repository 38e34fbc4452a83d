//! The sharding strategy `my-plugin`: one rank holds everything and computes unit after unit.
//!
//! A model is a row of units: the embedding, the layers, the head. A strategy decides where the
//! bytes of each unit are stored between steps and in which order a step computes the units. It
//! sees sizes, never weights; its answer is data, which the host checks and executes, on one rank
//! or many.

use espalier_interface::schedule::{Act, Action, Place, Placement, Schedule, ShardingRequest};
use espalier_interface::{Component, Instance, PluginError, Result, Role, Sharding};

/// The name by which users choose it: `--plugins my-plugin`.
const NAME: &str = "my-plugin";

/// The strategy; it has no options.
struct OneRank;

impl Sharding for OneRank {
    /// The order of a step. `request.units` has a name and four sizes in bytes per unit (frozen,
    /// trainable, gradients, optimizer state), in the order of the forward pass; `request.world` is
    /// the number of ranks. Every rank asks and must get the same answer.
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
        if request.world != 1 {
            // What was expected, what was found, what to do: the user reads this message unchanged.
            let world = request.world;
            return Err(PluginError::invalid(format!(
                "sharding `{NAME}` serves one rank, this run has {world}: use --ranks 1"
            )));
        }
        let units = request.units.len();
        // All bytes of all units are stored whole on the one device. A strategy that shards uses
        // `Place::Sharded` and puts `Act::Gather` before and `Act::Release` after each computation;
        // one that streams uses `Place::Host` and `Act::Fetch`. With several ranks every trained
        // unit is reduced, and counted in the norm, once per step: `MicroBatch` of the interface
        // orders passes, moves and reductions.
        let placement = Placement {
            frozen: Place::Replicated,
            trainable: Place::Replicated,
            optimizer: Place::Replicated,
        };
        // Forward through all units, then back. The head's backward pass runs with its forward
        // pass, in chunks of tokens.
        let forward = (0..units).map(|unit| Action::new(Act::Forward, unit));
        let backward = (0..units.saturating_sub(1)).rev();
        let backward = backward.map(|unit| Action::new(Act::Backward, unit));
        // After the last micro-batch, when the norm of all gradients is known: update the trained
        // units.
        let trained = (0..units).filter(|&unit| request.units[unit].trainable > 0);
        let schedule = Schedule {
            placements: vec![placement; units],
            micro_batch: forward.chain(backward).collect(),
            update: trained
                .map(|unit| Action::new(Act::Optimize, unit))
                .collect(),
            ..Schedule::default()
        };
        // The host's own check: every unit forward and backward once, in order, with its bytes in
        // place.
        schedule.validate(request)?;
        Ok(schedule)
    }
}

/// What users can choose. The host reads this from the file without running it.
pub const COMPONENT: Component = Component {
    name: NAME,
    role: Role::SHARDING,
    doc: "one rank holds everything and computes unit after unit",
    options: &[],
    capabilities: &[],
    create: |_options, _services| Ok(Instance::Sharding(Box::new(OneRank))),
};

// The library's description, and the one function that it exports.
espalier_interface::declare_plugin! {
    name: "my-plugin",
    components: &[COMPONENT],
}
