//! Sizes of a run -> the request to a sharding strategy, and the layout of its answer.

use std::collections::BTreeSet;

use espalier_compile::flat_params::FlatParams;
use espalier_compile::params::Param;
use espalier_compile::program::{KernelCall, OperandPlace, Program};
use espalier_interface::model::UnitKind;
use espalier_interface::schedule::{Act, Action, ShardingRequest, UnitBytes};
use espalier_interface::{DeviceInfo, Sharding};
use espalier_registry::{Chosen, answer};

use super::demand::{Demand, HostBytes};
use crate::Error;
use crate::shard_layout::{ShardLayout, Trained};
use crate::step_plan::{Region, RegionKind, StepPlan};

/// The sizes that a sharding strategy decides about.
pub(super) fn request(
    program: &Program,
    trained: Trained<'_>,
    device: &DeviceInfo,
    demand: Demand,
    host: HostBytes,
) -> ShardingRequest {
    let Trained {
        params,
        optimizer,
        dtypes,
    } = trained;
    let units = program.units.iter().enumerate().map(|(index, unit)| {
        let (mut forward, mut backward) =
            (reads(&unit.forward, params), reads(&unit.backward, params));
        if unit.kind == UnitKind::Head {
            forward.append(&mut backward);
        }
        let flat = FlatParams::of(params, index, optimizer);
        let elements = flat.elements;
        let frozen = params.iter().filter(|p| !p.trainable && p.unit == index);
        UnitBytes {
            name: unit.name.clone(),
            frozen: frozen.map(Param::bytes).sum(),
            trainable: elements * dtypes.params.bytes(),
            gradients: elements * dtypes.gradients.bytes(),
            optimizer: flat.state_bytes(optimizer),
            saved: program.blocks[index].bytes,
            forward_reads: forward.into_iter().collect(),
            backward_reads: backward.into_iter().collect(),
        }
    });
    ShardingRequest {
        units: units.collect(),
        world: demand.world.ranks,
        ranks_per_machine: demand.world.ranks_per_machine(),
        micro_batches: u32::try_from(demand.micro_batches).unwrap_or(0),
        update_in_backward: false,
        device_bytes: Some(device.free_bytes),
        host_bytes: host.available,
    }
}

/// The units whose params or gradients `steps` read or write. Params of no unit stay on the device.
fn reads(steps: &[KernelCall], params: &[Param]) -> BTreeSet<usize> {
    let operands = steps.iter().flat_map(|step| &step.operands);
    let units = operands.filter_map(|operand| match *operand {
        OperandPlace::Param(param) | OperandPlace::Gradient(param) => Some(params[param].unit),
        OperandPlace::Value(_) => None,
    });
    units.filter(|&unit| unit != Param::OF_NO_UNIT).collect()
}

/// Whether a forward or backward pass reads the params that a region holds.
fn reads_region((program, params): (&Program, &[Param]), pass: &Action, region: &Region) -> bool {
    let trainable = match region.kind {
        RegionKind::Frozen => false,
        RegionKind::Trainable => true,
        _ => return false,
    };
    let unit = &program.units[pass.unit];
    let is_forward = pass.act == Act::Forward;
    let forward = is_forward.then_some(&unit.forward);
    // The head's forward pass includes its backward pass.
    let backward = (!is_forward || unit.kind == UnitKind::Head).then_some(&unit.backward);
    let steps = forward.into_iter().chain(backward).flatten();
    let mut operands = steps.flat_map(|step| &step.operands);
    operands.any(|operand| match *operand {
        OperandPlace::Param(param) => {
            params[param].unit == region.unit && params[param].trainable == trainable
        }
        _ => false,
    })
}

/// Asks a strategy for its schedule and lays it out: how bytes are cut among ranks, and the tasks
/// of a step.
///
/// # Errors
/// Errors of the strategy, a schedule that is not valid for `request`, and errors of
/// [`StepPlan::of`].
pub(super) fn lay_out(
    sharding: &Chosen<dyn Sharding>,
    request: &ShardingRequest,
    trained: Trained<'_>,
    program: &Program,
) -> Result<(ShardLayout, StepPlan), Error> {
    let schedule = answer::schedule(sharding, request)?;
    let shard_layout = ShardLayout::new(&schedule, trained, program, request);
    let mut step_plan = StepPlan::of(
        &schedule,
        request,
        &shard_layout.region_sizes(trained.dtypes),
    )
    .map_err(|error| sharding.failed("schedule", error))?;
    step_plan.begin_gradients(&shard_layout.shared_gradients);
    step_plan.leave_out_unread(&|action, region| {
        reads_region((program, trained.params), action, region)
    });
    Ok((shard_layout, step_plan))
}
