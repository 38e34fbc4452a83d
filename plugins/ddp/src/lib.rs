//! The sharding strategy `ddp`: every rank holds everything, and gradients are summed over all
//! ranks once per step.

use espalier_interface::schedule::{Act, Action, MicroBatch, Placement, Schedule, ShardingRequest};
use espalier_interface::{
    Component, DType, Instance, OptionKind, OptionSpec, Options, Result, Role, Sharding,
};

/// The stream of reductions, beside the compute stream.
const MOVES: u32 = 1;

/// The strategy `ddp`.
pub struct Ddp {
    reduce_dtype: Option<DType>,
}

impl Ddp {
    /// The strategy with checked options.
    ///
    /// # Errors
    /// `INVALID` for an option that is missing or of another type.
    pub fn new(options: &Options) -> Result<Self> {
        Ok(Ddp {
            reduce_dtype: DType::from_name(&options.text("reduce_dtype")?),
        })
    }
}

impl Sharding for Ddp {
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
        let mut micro_batch = MicroBatch::new(request);
        if request.world > 1 {
            micro_batch.reduce(MOVES);
        } else if request.update_in_backward {
            micro_batch.update_in_backward();
        }
        let schedule = Schedule {
            placements: vec![Placement::default(); request.units.len()],
            reduce_dtype: self.reduce_dtype,
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

const DDP: Component = Component {
    name: "ddp",
    role: Role::SHARDING,
    doc: "every rank holds all weights, gradients and optimizer state; gradients are summed once a step",
    options: &[OptionSpec {
        name: "reduce_dtype",
        kind: OptionKind::TEXT,
        default: "\"\"",
        range: "\"\" | f32 | bf16 | f64",
        doc: "dtype in which gradients are sent; empty: their own",
    }],
    capabilities: &[("search", r#"{"world": "ranks"}"#)],
    create: |options, _| Ok(Instance::Sharding(Box::new(Ddp::new(options)?))),
};

espalier_interface::declare_plugin! { name: "ddp", components: &[DDP] }

#[cfg(test)]
mod tests {
    use espalier_interface::schedule::UnitBytes;

    use super::*;

    fn request(world: u32) -> ShardingRequest {
        let unit = |index: usize| UnitBytes {
            frozen: 128,
            trainable: 64,
            gradients: 64,
            forward_reads: vec![index],
            backward_reads: vec![index],
            ..UnitBytes::default()
        };
        ShardingRequest {
            units: (0..3).map(unit).collect(),
            world,
            ranks_per_machine: world,
            ..ShardingRequest::default()
        }
    }

    #[test]
    fn updates_in_the_backward_pass_follow_the_sum_over_ranks() {
        let ddp = Ddp { reduce_dtype: None };
        for world in [1, 3] {
            let request = ShardingRequest {
                update_in_backward: true,
                ..request(world)
            };
            let schedule = ddp.schedule(&request).expect("valid");
            let of_unit = schedule.micro_batch.iter().filter(|one| one.unit == 1);
            let acts: Vec<Act> = of_unit.map(|one| one.act).collect();
            let (passes, sum) = ([Act::Forward, Act::Backward], [Act::Reduce]);
            let applied = [Act::Norm, Act::Optimize, Act::Release];
            let sum = if world > 1 { &sum[..] } else { &[] };
            assert_eq!(acts, [&passes, sum, &applied].concat());
            assert!(schedule.update.is_empty());
        }
    }

    #[test]
    fn complete_gradients_are_reduced_at_once_beside_the_computation() {
        let ddp = Ddp { reduce_dtype: None };
        let order = |world| -> Vec<(Act, usize, u32)> {
            let schedule = ddp.schedule(&request(world)).expect("valid");
            let actions = schedule.micro_batch.iter();
            actions.map(|one| (one.act, one.unit, one.stream)).collect()
        };
        let (f, b, r, n) = (Act::Forward, Act::Backward, Act::Reduce, Act::Norm);
        let passes = [(f, 0, 0), (f, 1, 0), (f, 2, 0), (b, 1, 0), (b, 0, 0)];
        assert_eq!(order(1), passes);
        assert_eq!(
            order(3),
            [
                (f, 0, 0),
                (f, 1, 0),
                (f, 2, 0),
                (r, 2, 1),
                (b, 1, 0),
                (n, 2, 0),
                (r, 1, 1),
                (b, 0, 0),
                (n, 1, 0),
                (r, 0, 1),
                (n, 0, 0)
            ]
        );
    }
}
