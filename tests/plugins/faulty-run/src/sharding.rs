//! One rank, one unit after another.

use espalier_interface::schedule::{Act, Action, Place, Placement, Schedule, ShardingRequest};
use espalier_interface::{Component, Instance, Result, Role, Sharding};

use crate::fault;

struct Faulty;

impl Sharding for Faulty {
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
        fault::fail_if_due("schedule")?;
        let units = request.units.len();
        let here = Place::Replicated;
        let placement = Placement {
            frozen: here,
            trainable: here,
            optimizer: here,
        };
        let forward = (0..units).map(|unit| Action::new(Act::Forward, unit));
        let backward = (0..units - 1)
            .rev()
            .map(|unit| Action::new(Act::Backward, unit));
        let trained = (0..units).filter(|&unit| request.units[unit].trainable > 0);
        let mut made = Schedule {
            placements: vec![placement; units],
            micro_batch: forward.chain(backward).collect(),
            update: trained
                .map(|unit| Action::new(Act::Optimize, unit))
                .collect(),
            ..Schedule::default()
        };
        match fault::of("schedule").as_deref() {
            Some("unit") => made.micro_batch[0].unit = 99,
            Some("update") => made.update[0].unit = usize::MAX,
            Some("placements") => drop(made.placements.pop()),
            Some("later") => made.micro_batch[0].after = vec![5],
            Some("order") => made.micro_batch.swap(0, 1),
            _ => {}
        }
        Ok(made)
    }
}

pub const SHARDING: Component = Component {
    name: "faulty-sharding",
    role: Role::SHARDING,
    doc: "one rank holds everything, until it fails",
    options: &[],
    capabilities: &[],
    create: |_, _| Ok(Instance::Sharding(Box::new(Faulty))),
};
