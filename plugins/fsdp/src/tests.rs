//! Exact actions for a small model.

mod drawn_requests;

use espalier_interface::schedule::{Act, Action, Part, Place, ShardingRequest, UnitBytes, When};
use espalier_interface::{ErrorCode, Sharding};

use super::*;

const SETTINGS: Settings = Settings {
    strategy: Strategy::FullShard,
    shard_ranks: 0,
    offload: Offload::Nothing,
    gather: Gather::Shards,
    prefetch: 1,
    micro_batches_per_fetch: 1,
    reduce_dtype: None,
    offload_activations: false,
};

fn unit(index: usize, frozen: u64, trainable: u64) -> UnitBytes {
    UnitBytes {
        name: format!("unit {index}"),
        frozen,
        trainable,
        gradients: trainable,
        optimizer: 2 * trainable,
        saved: 64,
        forward_reads: vec![index],
        backward_reads: vec![index],
    }
}

/// A frozen embedding, `layers` layers with adapters, a frozen head, on `world` ranks.
fn request(layers: usize, world: u32) -> ShardingRequest {
    let mut units: Vec<UnitBytes> = (0..layers + 2)
        .map(|index| {
            unit(
                index,
                128,
                if (1..=layers).contains(&index) { 64 } else { 0 },
            )
        })
        .collect();
    units[0].backward_reads.clear();
    units[layers + 1].backward_reads.clear();
    ShardingRequest {
        units,
        world,
        ranks_per_machine: world,
        ..ShardingRequest::default()
    }
}

fn schedule(settings: Settings, request: &ShardingRequest) -> Schedule {
    Fsdp { settings }.schedule(request).expect("valid")
}

/// An action as a short code: `G1` gathers unit 1, `r2!` reduces unit 2 in the last micro-batch.
fn letters(actions: &[Action]) -> String {
    let of_one = |one: &Action| {
        let act = match one.act {
            Act::Fetch => "H",
            Act::Gather => "G",
            Act::Forward => "F",
            Act::Backward => "B",
            Act::Release => "x",
            Act::Reduce => "r",
            Act::Norm => "n",
            Act::Offload => "o",
            Act::Optimize => "u",
        };
        let when = match one.when {
            When::Every => "",
            When::First => "?",
            When::Last => "!",
        };
        format!("{act}{}{when}", one.unit)
    };
    actions.iter().map(of_one).collect::<Vec<_>>().join(" ")
}

#[test]
fn units_are_gathered_a_pass_ahead_and_kept_for_a_neighbour() {
    let schedule = schedule(SETTINGS, &request(2, 2));
    assert_eq!(
        letters(&schedule.micro_batch),
        "G0 G1 F0 x0 G2 F1 x1 G3 F2 F3 x3 G1 B2 x2 r2! B1 x1 n2! r1! B0 n1!"
    );
    assert_eq!(letters(&schedule.update), "u1 u2");
    let moves = |one: &&Action| matches!(one.act, Act::Gather | Act::Reduce);
    assert!(
        schedule
            .micro_batch
            .iter()
            .filter(moves)
            .all(|one| one.stream == 1)
    );
}

#[test]
fn without_prefetch_each_unit_is_gathered_right_before_it_is_read() {
    let settings = Settings {
        prefetch: 0,
        ..SETTINGS
    };
    let schedule = schedule(settings, &request(2, 2));
    assert_eq!(
        letters(&schedule.micro_batch),
        "G0 F0 x0 G1 F1 x1 G2 F2 x2 G3 F3 x3 G2 B2 x2 r2! G1 B1 x1 n2! r1! B0 n1!"
    );
    assert!(schedule.micro_batch.iter().all(|one| one.stream == 0));
}

#[test]
fn shard_grad_op_gathers_once_a_step() {
    let settings = Settings {
        strategy: Strategy::ShardGradOp,
        ..SETTINGS
    };
    let schedule = schedule(settings, &request(1, 2));
    assert_eq!(
        letters(&schedule.micro_batch),
        "G0? G1? F0 x0! G2? F1 F2 x2! B1 x1! r1! B0 n1!"
    );
}

#[test]
fn offloaded_parts_are_fetched_for_their_update() {
    let settings = Settings {
        offload: Offload::ParamsAndOptimizer,
        ..SETTINGS
    };
    let schedule = schedule(settings, &request(2, 2));
    assert_eq!(
        letters(&schedule.micro_batch),
        "H0 G0 H1 G1 F0 x0 H2 G2 F1 x1 H3 G3 F2 F3 x3 H1 G1 B2 x2 r2! B1 x1 n2! o2! r1! B0 n1! o1!"
    );
    assert_eq!(letters(&schedule.update), "H1 H2 u1 x1 o1 u2 x2 o2");
    let [trainable, gradients, optimizer] = [Part::Trainable, Part::Gradients, Part::Optimizer];
    assert_eq!(schedule.update[0].parts, [trainable, gradients, optimizer]);
    assert_eq!(schedule.update[4].parts, [trainable, optimizer]);
}

#[test]
fn host_direct_takes_frozen_units_from_the_machines_copy_alone() {
    for offload in [Offload::Nothing, Offload::Params] {
        let settings = Settings {
            gather: Gather::HostDirect,
            offload,
            ..SETTINGS
        };
        let schedule = schedule(settings, &request(2, 2));
        let sent = |one: &Action| one.act == Act::Gather && one.parts != [Part::Trainable];
        assert!(!schedule.micro_batch.iter().any(sent));
        assert!(
            schedule
                .placements
                .iter()
                .all(|at| at.frozen == Place::Host)
        );
    }
}

#[test]
fn one_rank_without_offload_moves_nothing() {
    let schedule = schedule(SETTINGS, &request(2, 1));
    assert_eq!(letters(&schedule.micro_batch), "F0 F1 F2 F3 B2 B1 B0");
    assert!(
        schedule
            .placements
            .iter()
            .all(|at| at.trainable == Place::Replicated)
    );
}

#[test]
fn activations_are_offloaded_unless_they_are_read_at_once() {
    let settings = Settings {
        offload_activations: true,
        ..SETTINGS
    };
    let schedule = schedule(settings, &request(2, 1));
    assert_eq!(
        letters(&schedule.micro_batch),
        "F0 o0 F1 o1 F2 F3 H1 B2 H0 B1 x1 B0 x0"
    );
}

#[test]
fn activations_of_unknown_size_are_refused() {
    let settings = Settings {
        offload_activations: true,
        ..SETTINGS
    };
    let mut request = request(2, 2);
    request.units.iter_mut().for_each(|unit| unit.saved = 0);
    let error = Fsdp { settings }.schedule(&request).expect_err("no sizes");
    assert_eq!(error.code, ErrorCode::INVALID);
    assert!(error.message.contains("leave it out"), "{error}");
}

#[test]
fn an_evaluation_saves_no_activations_to_offload() {
    let settings = Settings {
        offload_activations: true,
        ..SETTINGS
    };
    let mut request = request(2, 2);
    for unit in &mut request.units {
        (unit.saved, unit.gradients) = (0, 0);
    }
    let schedule = schedule(settings, &request);
    let offloads = |action: &Action| action.act == Act::Offload;
    assert!(!schedule.micro_batch.iter().any(offloads));
}

#[test]
fn groups_that_do_not_divide_the_world_are_refused() {
    let settings = Settings {
        strategy: Strategy::Hybrid,
        shard_ranks: 2,
        ..SETTINGS
    };
    let error = Fsdp { settings }
        .schedule(&request(2, 3))
        .expect_err("3 ranks");
    assert_eq!(error.code, ErrorCode::INVALID);
    assert!(error.message.contains("this run has 3 ranks"), "{error}");
    assert_eq!(schedule(settings, &request(2, 4)).shard_ranks, 2);
}

#[test]
fn a_unit_runs_several_micro_batches_of_a_step_that_trains_and_has_them() {
    let settings = Settings {
        micro_batches_per_fetch: 4,
        ..SETTINGS
    };
    let sweeps = |micro_batches: u32| {
        let request = ShardingRequest {
            micro_batches,
            ..request(2, 2)
        };
        let schedule = schedule(settings, &request);
        (schedule.sweep(&request), schedule.sweeps(&request))
    };
    assert_eq!(
        [1, 3, 4, 9].map(sweeps),
        [(1, 1), (3, 1), (4, 1), (4, 3)],
        "micro-batches of a sweep, and sweeps"
    );
    let mut evaluation = request(2, 2);
    for unit in &mut evaluation.units {
        (unit.saved, unit.gradients) = (0, 0);
    }
    let schedule = schedule(settings, &evaluation);
    assert_eq!(schedule.micro_batches_per_fetch, 1);
}

#[test]
fn several_micro_batches_per_fetch_are_refused_beside_updates_in_the_backward_pass() {
    let settings = Settings {
        micro_batches_per_fetch: 2,
        ..SETTINGS
    };
    let refused = Fsdp { settings }.schedule(&in_backward(request(2, 2)));
    let error = refused.expect_err("one micro-batch a step");
    assert_eq!(error.code, ErrorCode::INVALID);
    for key in ["micro_batches_per_fetch = 1", "optim.in_backward = false"] {
        assert!(error.message.contains(key), "{error}");
    }
}

/// The same request of a run that updates in the backward pass.
fn in_backward(request: ShardingRequest) -> ShardingRequest {
    ShardingRequest {
        micro_batches: 1,
        update_in_backward: true,
        ..request
    }
}

#[test]
fn a_reduced_unit_is_updated_in_the_backward_pass_and_its_gradients_are_released() {
    let schedule = schedule(SETTINGS, &in_backward(request(2, 2)));
    assert_eq!(
        letters(&schedule.micro_batch),
        "G0 G1 F0 x0 G2 F1 x1 G3 F2 F3 x3 G1 B2 x2 r2! B1 x1 n2! u2! x2! r1! B0 n1! u1! x1!"
    );
    assert!(schedule.update.is_empty());
    let alone = Fsdp { settings: SETTINGS }.schedule(&in_backward(request(2, 1)));
    assert_eq!(
        letters(&alone.expect("valid").micro_batch),
        "F0 F1 F2 F3 B2 n2! u2! x2! B1 n1! u1! x1! B0"
    );
}

#[test]
fn an_update_in_the_backward_pass_fetches_what_is_offloaded_and_takes_it_back() {
    let settings = Settings {
        offload: Offload::ParamsAndOptimizer,
        ..SETTINGS
    };
    let within = schedule(settings, &in_backward(request(2, 2)));
    assert_eq!(
        letters(&within.micro_batch),
        "H0 G0 H1 G1 F0 x0 H2 G2 F1 x1 H3 G3 F2 F3 x3 H1 G1 B2 x2 r2! H2! B1 x1 n2! u2! x2! o2! r1! H1! B0 n1! u1! x1! \
         o1!"
    );
    assert!(within.update.is_empty());
    let of_update = |one: &&Action| one.parts.contains(&Part::Optimizer);
    for moved in within.micro_batch.iter().filter(of_update) {
        assert_eq!(moved.parts, [Part::Trainable, Part::Optimizer]);
        assert_eq!(moved.stream, 1);
    }
    // One rank whose state stays on its device reduces nothing.
    let settings = Settings {
        offload: Offload::Params,
        prefetch: 0,
        ..SETTINGS
    };
    let alone = schedule(settings, &in_backward(request(1, 1)));
    assert_eq!(
        letters(&alone.micro_batch),
        "H0 F0 x0 H1 F1 x1 H2 F2 x2 H1 B1 x1 n1! H1! u1! x1! o1! B0"
    );
}
