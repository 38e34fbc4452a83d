//! The sharding strategy `streamed`: one rank, whose frozen weights are on the device or are copied
//! from the host before each pass that reads them. It declares both modes to `host plan --auto`.

use espalier_interface::schedule::{
    Act, Action, MicroBatch, Part, Place, Placement, Schedule, ShardingRequest,
};
use espalier_interface::{
    Component, Instance, OptionKind, OptionSpec, PluginError, Result, Role, Sharding,
};

struct Streamed {
    frozen: Place,
}

impl Sharding for Streamed {
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
        if request.world != 1 {
            let message = format!("`streamed` serves one rank, this run has {}", request.world);
            return Err(PluginError::invalid(message));
        }
        let placement = Placement {
            frozen: self.frozen,
            trainable: Place::Replicated,
            optimizer: Place::Replicated,
        };
        let mut micro_batch = MicroBatch::new(request);
        if self.frozen == Place::Host {
            let passes: Vec<Vec<usize>> = micro_batch
                .passes()
                .iter()
                .map(|pass| pass.reads.to_vec())
                .collect();
            for (pass, reads) in passes.into_iter().enumerate() {
                for unit in reads {
                    if request.units[unit].frozen > 0 {
                        micro_batch.before(pass, Action::moving(Act::Fetch, unit, &[Part::Frozen]));
                        micro_batch
                            .after(pass, Action::moving(Act::Release, unit, &[Part::Frozen]));
                    }
                }
            }
        }
        let trained = (0..request.units.len()).filter(|&unit| request.units[unit].trainable > 0);
        let schedule = Schedule {
            placements: vec![placement; request.units.len()],
            micro_batch: micro_batch.into_actions(),
            update: trained
                .map(|unit| Action::new(Act::Optimize, unit))
                .collect(),
            ..Schedule::default()
        };
        schedule.validate(request)?;
        Ok(schedule)
    }
}

const STREAMED: Component = Component {
    name: "streamed",
    role: Role::SHARDING,
    doc: "one rank, its frozen weights on the device or streamed from the host",
    options: &[OptionSpec {
        name: "weights",
        kind: OptionKind::TEXT,
        default: "\"device\"",
        range: "device | host",
        doc: "where frozen weights are stored",
    }],
    capabilities: &[(
        "search",
        r#"{"world": "one_rank", "options": {"weights": {"device": {}, "host": {"stage": "offload_weights"}}}}"#,
    )],
    create: |options, _| {
        let frozen = match options.text("weights")?.as_str() {
            "host" => Place::Host,
            _ => Place::Replicated,
        };
        Ok(Instance::Sharding(Box::new(Streamed { frozen })))
    },
};

espalier_interface::declare_plugin! { name: "streamed", components: &[STREAMED] }
