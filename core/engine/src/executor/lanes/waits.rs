//! The tasks of a walk -> the waits between lanes that order them, none of which another one
//! implies.

use std::collections::{BTreeMap, BTreeSet};

use espalier_plan::step_plan::{Lane, Task};

/// The last task of each lane that is known to be done at some point.
type Done = BTreeMap<Lane, usize>;

/// The waits of a walk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    /// For each task the tasks of other lanes that it waits for. Tasks that take no part wait for
    /// none.
    pub(super) of_tasks: Vec<Vec<usize>>,
    /// The lanes whose last task the compute lane has to wait for at the end.
    pub(super) ends: Vec<Lane>,
    /// The lanes that have not waited for all of the walk at its end.
    pub(super) behind: BTreeSet<Lane>,
}

impl Waits {
    /// The waits of the tasks that `wanted` accepts, on `lanes` lanes. Who waits for a task that
    /// takes no part waits for the one before it on its lane.
    pub(super) fn of(tasks: &[Task], wanted: &dyn Fn(usize, &Task) -> bool, lanes: usize) -> Waits {
        let mut last = Done::new();
        let mut taking_part = Vec::with_capacity(tasks.len());
        // What each lane has waited for, and what is done once a task is.
        let mut known: BTreeMap<Lane, Done> = BTreeMap::new();
        let mut after: Vec<Done> = Vec::with_capacity(tasks.len());
        let mut of_tasks = Vec::with_capacity(tasks.len());
        for (index, task) in tasks.iter().enumerate() {
            let takes_part = wanted(index, task);
            if takes_part {
                last.insert(task.lane, index);
            }
            taking_part.push(last.get(&task.lane).copied());
            if !takes_part {
                after.push(Done::new());
                of_tasks.push(Vec::new());
                continue;
            }
            let others = task.waits.iter().filter_map(|&other| taking_part[other]);
            let known = known.entry(task.lane).or_default();
            of_tasks.push(needed(others.collect(), known, (tasks, &after)));
            known.insert(task.lane, index);
            after.push(known.clone());
        }
        let moving = last.iter().filter(|(lane, _)| **lane != Lane::COMPUTE);
        let moving = moving.map(|(_, &index)| index).collect();
        let mut compute = known.get(&Lane::COMPUTE).cloned().unwrap_or_default();
        let ends = needed(moving, &mut compute, (tasks, &after));
        let behind = (1..lanes).map(Lane).filter(|lane| {
            let known = known.get(lane);
            let knows = |(other, index)| known.and_then(|known| known.get(other)) >= Some(index);
            !last.iter().all(knows)
        });
        Waits {
            ends: ends.into_iter().map(|index| tasks[index].lane).collect(),
            behind: behind.collect(),
            of_tasks,
        }
    }
}

/// Those of `others` that a lane has to wait for, which knows `known`; it then knows them, too.
fn needed(
    mut others: Vec<usize>,
    known: &mut Done,
    (tasks, after): (&[Task], &[Done]),
) -> Vec<usize> {
    // A task knows only of earlier ones, so the last one may spare a wait for the others.
    others.sort_unstable_by(|a, b| b.cmp(a));
    others.retain(|&other| {
        let is_new = known.get(&tasks[other].lane) < Some(&other);
        if is_new {
            for (&lane, &index) in &after[other] {
                let done = known.entry(lane).or_insert(index);
                *done = index.max(*done);
            }
        }
        is_new
    });
    others
}
