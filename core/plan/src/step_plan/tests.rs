//! Memory and dependencies of the tasks of a schedule.

use espalier_interface::schedule::{Part, UnitBytes};

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
    let waits: Vec<_> = tasks.iter().map(|task| task.waits).collect();
    // Unit 2 takes the place of unit 0, which is released by task 3.
    let expected = [
        None,
        None,
        Some(0),
        Some(0),
        Some(3),
        Some(1),
        Some(1),
        Some(4),
        Some(4),
    ];
    assert_eq!(waits, expected);
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
