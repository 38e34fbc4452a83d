//! The order of tasks on two lanes, tasks left out, and failures.

use espalier_system::failure::UsageError;

use std::sync::Mutex;

use espalier_interface::schedule::{Act, Action};

use super::*;

fn task(unit: usize, stream: u32, waits: Option<usize>) -> Task {
    Task {
        action: Action::new(Act::Fetch, unit).on(stream),
        lane: match stream {
            0 => Lane::Compute,
            _ => Lane::Move,
        },
        waits,
        regions: Vec::new(),
        begins: Vec::new(),
    }
}

#[test]
fn legs_wait_for_those_of_the_other_lane() {
    // 0 moves, 1 computes after it, 2 moves after 1, 3 computes after 2.
    let tasks = [
        task(0, 1, None),
        task(1, 0, Some(0)),
        task(2, 1, Some(1)),
        task(3, 0, Some(2)),
    ];
    for _ in 0..200 {
        let order = Mutex::new(Vec::new());
        let note = |task: &Task| {
            order.lock().expect("no panic").push(task.action.unit);
            Ok(())
        };
        walk(&tasks, &|_, _| true, &mut |task| note(task), &note).expect("nothing fails");
        assert_eq!(order.into_inner().expect("no panic"), [0, 1, 2, 3]);
    }
}

#[test]
fn a_leg_that_is_left_out_holds_up_nothing() {
    let tasks = [task(0, 1, None), task(1, 0, Some(0)), task(2, 1, Some(1))];
    let done = Mutex::new(Vec::new());
    let note = |task: &Task| {
        done.lock().expect("no panic").push(task.action.unit);
        Ok(())
    };
    let wanted = |index: usize, _: &Task| index != 0;
    walk(&tasks, &wanted, &mut |task| note(task), &note).expect("nothing fails");
    assert_eq!(done.into_inner().expect("no panic"), [1, 2]);
}

#[test]
fn a_failure_ends_both_lanes() {
    let tasks = [task(0, 1, None), task(1, 0, Some(0)), task(2, 0, None)];
    let fail = |_: &Task| {
        Err(Error::Usage(UsageError {
            message: "no bytes".to_owned(),
            next_step: String::new(),
        }))
    };
    let mut computed = 0;
    let mut compute = |_: &Task| {
        computed += 1;
        Ok(())
    };
    let error = walk(&tasks, &|_, _| true, &mut compute, &fail).expect_err("the move fails");
    assert_eq!(error.to_string(), "no bytes");
    assert_eq!(computed, 0);
}
