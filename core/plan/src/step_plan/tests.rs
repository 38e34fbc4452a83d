//! Memory and dependencies of the tasks of a schedule.

use espalier_interface::schedule::{MicroBatch, Part, Place, Placement, UnitBytes};

use super::*;

const FROZEN: [Part; 1] = [Part::Frozen];

fn request() -> ShardingRequest {
    let unit = |index: usize| UnitBytes {
        frozen: 256,
        forward_reads: vec![index],
        backward_reads: vec![index],
        ..UnitBytes::default()
    };
    ShardingRequest {
        units: (0..3).map(unit).collect(),
        world: 2,
        ranks_per_machine: 2,
        ..ShardingRequest::default()
    }
}

/// Each unit is gathered while the one before it computes.
fn schedule() -> Schedule {
    let gather = |unit| Action::moving(Act::Gather, unit, &FROZEN).on(1);
    let release = |unit| Action::moving(Act::Release, unit, &FROZEN);
    let compute = Action::new;
    let placement = Placement {
        frozen: Place::Sharded,
        ..Placement::default()
    };
    Schedule {
        placements: vec![placement; 3],
        micro_batch: vec![
            gather(0),
            gather(1),
            compute(Act::Forward, 0),
            release(0),
            gather(2),
            compute(Act::Forward, 1),
            release(1),
            compute(Act::Forward, 2),
            release(2),
        ],
        ..Schedule::default()
    }
}

fn step_plan(schedule: &Schedule) -> Result<StepPlan> {
    let sizes = RegionSizes {
        frozen: 256,
        ..RegionSizes::default()
    };
    StepPlan::of(schedule, &request(), &[sizes; 3])
}

#[test]
fn region_memory_holds_the_units_that_are_open_at_once() {
    let step_plan = step_plan(&schedule()).expect("all is brought");
    assert_eq!(step_plan.region_bytes, 2 * 256);
    assert!(step_plan.moves());
    let places: Vec<_> = [2, 5, 7]
        .map(|task: usize| {
            let task = &step_plan.micro_batch[task];
            task.region(task.action.unit, RegionKind::Frozen)
                .expect("brought")
                .offset
        })
        .to_vec();
    assert_ne!(places[0], places[1]);
    assert_ne!(places[1], places[2]);
}

#[test]
fn a_task_waits_for_its_inputs_and_for_users_of_the_memory_it_fills() {
    let tasks = step_plan(&schedule()).expect("all is brought").micro_batch;
    let waits: Vec<_> = tasks.iter().map(|task| task.waits.clone()).collect();
    // Unit 2 takes the place of unit 0, which is released by task 3; a release waits for nothing.
    let expected: [&[usize]; 9] = [&[], &[], &[0], &[], &[2, 3], &[1], &[], &[4], &[]];
    assert_eq!(waits, expected);
}

#[test]
fn each_stream_is_a_lane_but_for_collective_calls() {
    let mut schedule = schedule();
    // Unit 1 is fetched on a stream of its own; the gathers of the others are on two streams.
    schedule.micro_batch[1] = Action::moving(Act::Fetch, 1, &FROZEN).on(5);
    schedule.micro_batch[4].stream = 9;
    let step_plan = step_plan(&schedule).expect("all is brought");
    assert_eq!(step_plan.lanes(), 3);
    let lanes: Vec<_> = step_plan
        .micro_batch
        .iter()
        .map(|task| task.lane.0)
        .collect();
    assert_eq!(lanes, [1, 2, 0, 0, 1, 0, 0, 0, 0]);
    // The gather of unit 2 fills memory that lane 0 used; unit 1 computes after lane 2.
    assert_eq!(step_plan.micro_batch[4].waits, [2, 3]);
    assert_eq!(step_plan.micro_batch[5].waits, [1]);
}

/// A unit is fetched and gathered twice; only the first pass reads it.
#[test]
fn what_no_later_pass_reads_is_not_brought() {
    let mut schedule = schedule();
    let actions = [Act::Fetch, Act::Gather, Act::Forward, Act::Release];
    let once = actions.map(|act| match act {
        Act::Forward => Action::new(act, 0),
        _ => Action::moving(act, 0, &FROZEN),
    });
    schedule.placements[0].frozen = Place::ShardedOnHost;
    schedule.micro_batch = [once.clone(), once].concat();
    schedule.micro_batch[6].act = Act::Backward;
    let mut step_plan = step_plan(&schedule).expect("all is brought");
    step_plan.leave_out_unread(&|_, _| true);
    let all = step_plan.clone();
    step_plan.leave_out_unread(&|pass, region| {
        pass.act == Act::Forward && region.kind == RegionKind::Frozen
    });
    let parts = |plan: &StepPlan| -> Vec<usize> {
        let tasks = plan.micro_batch.iter();
        tasks.map(|task| task.action.parts.len()).collect()
    };
    assert_eq!(parts(&all), [1, 1, 0, 1, 1, 1, 0, 1]);
    assert_eq!(parts(&step_plan), [1, 1, 0, 1, 0, 0, 0, 1]);
    assert_eq!(step_plan.micro_batch[4].regions, []);
}

#[test]
fn computing_with_bytes_that_were_not_fetched_is_refused() {
    let mut schedule = schedule();
    schedule.micro_batch.remove(4);
    let error = step_plan(&schedule).expect_err("unit 2 is not there");
    assert!(
        error.message.contains("Frozen bytes of unit 2"),
        "{}",
        error.message
    );
}

#[test]
fn gathers_on_both_lanes_are_refused() {
    let mut schedule = schedule();
    schedule.micro_batch[4].stream = 0;
    let error = step_plan(&schedule).expect_err("two orders");
    assert!(error.message.contains("one order"), "{}", error.message);
}

/// Three trained units whose gradients are applied in the backward pass, on ranks that hold all.
fn updated_in_backward(world: u32) -> StepPlan {
    let mut request = request();
    for unit in &mut request.units {
        (unit.trainable, unit.gradients) = (256, 256);
    }
    let request = ShardingRequest {
        world,
        micro_batches: 1,
        update_in_backward: true,
        ..request
    };
    let mut micro_batch = MicroBatch::new(&request);
    match world {
        1 => micro_batch.update_in_backward(),
        _ => micro_batch.reduce(1),
    }
    let schedule = Schedule {
        placements: vec![Placement::default(); 3],
        micro_batch: micro_batch.into_actions(),
        ..Schedule::default()
    };
    schedule.validate(&request).expect("valid");
    let sizes = RegionSizes {
        gradients: 256,
        ..RegionSizes::default()
    };
    StepPlan::of(&schedule, &request, &[sizes; 3]).expect("all is brought")
}

#[test]
fn gradients_that_are_applied_in_the_backward_pass_take_the_place_of_earlier_ones() {
    let alone = updated_in_backward(1);
    assert_eq!(alone.region_bytes, 256, "those of one unit");
    assert!(!alone.moves(), "one rank moves nothing");
    // Those of a unit are reduced while the next one computes.
    let two = updated_in_backward(2);
    assert_eq!(two.region_bytes, 2 * 256);
    let at = |act: Act, unit: usize| {
        let mut tasks = two.micro_batch.iter();
        let found = tasks.position(|task| (task.action.act, task.action.unit) == (act, unit));
        found.expect("an action")
    };
    let waits = |act, unit| two.micro_batch[at(act, unit)].waits.clone();
    assert_eq!(waits(Act::Reduce, 1), [at(Act::Backward, 1)]);
    assert_eq!(waits(Act::Norm, 1), [at(Act::Reduce, 1)]);
    assert_eq!(waits(Act::Optimize, 1), [at(Act::Reduce, 1)]);
    // The embedding's gradients take the place of the head's, which the other lane reduced.
    assert_eq!(waits(Act::Backward, 0), [at(Act::Reduce, 2)]);
    for unit in 0..3 {
        let gradients = |act| two.micro_batch[at(act, unit)].region(unit, RegionKind::Gradients);
        assert!(gradients(Act::Optimize).is_some());
        assert_eq!(gradients(Act::Optimize), gradients(Act::Norm));
    }
}
