//! The tasks of a walk -> the waits between lanes that order them, none of which another one
//! implies.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use espalier_plan::step_plan::{Lane, Task};

/// How much of each lane is known to be done at some point: up to a task of the walk, or its work
/// before the walk. A lane that is missing may not even be that far.
type Done = BTreeMap<Lane, Option<usize>>;

/// The waits of a list of tasks, for each choice of those that take part. A choice is one of a few,
/// so that each is worked out once.
#[derive(Debug, Default)]
pub(in crate::executor) struct TaskWaits(Mutex<HashMap<Vec<bool>, Arc<Waits>>>);

impl TaskWaits {
    /// The waits of the tasks that take part, on `lanes` lanes. `tasks` are always the same.
    pub(super) fn of(&self, tasks: &[Task], takes_part: Vec<bool>, lanes: usize) -> Arc<Waits> {
        // A panic while the lock is held leaves the map whole.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waits) = known.get(&takes_part) {
            return Arc::clone(waits);
        }
        let waits = Arc::new(Waits::of(tasks, &takes_part, lanes));
        known.insert(takes_part, Arc::clone(&waits));
        waits
    }
}

/// The waits of a walk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    /// For each task the tasks of other lanes that it waits for. Tasks that take no part wait for
    /// none.
    pub(super) of_tasks: Vec<Vec<usize>>,
    /// The tasks that others wait for.
    pub(super) awaited: BTreeSet<usize>,
    /// The lanes whose first task implies no wait for the compute lane's work before the walk.
    pub(super) begins: BTreeSet<Lane>,
    /// The lanes whose earlier work the compute lane's first task waits for: it waits for one of
    /// their tasks, which come after that work.
    pub(super) first_waits: BTreeSet<Lane>,
    /// The lanes that the compute lane must wait for at the end: waiting for their last tasks
    /// covers the whole walk.
    pub(super) ends: BTreeSet<Lane>,
    /// The lanes that have not waited for all of the walk at its end.
    pub(super) behind: BTreeSet<Lane>,
}

impl Waits {
    /// The waits of the tasks that take part, on `lanes` lanes. Nobody waits for a task that takes
    /// no part.
    fn of(tasks: &[Task], takes_part: &[bool], lanes: usize) -> Waits {
        let mut waits = Waits::default();
        let mut last = BTreeMap::new();
        // What each lane has waited for, and what is done once a task is.
        let mut known: BTreeMap<Lane, Done> = BTreeMap::new();
        let mut after: Vec<Done> = Vec::with_capacity(tasks.len());
        for (index, task) in tasks.iter().enumerate() {
            if !takes_part[index] {
                after.push(Done::new());
                waits.of_tasks.push(Vec::new());
                continue;
            }
            last.insert(task.lane, index);
            let others = task.waits.iter().copied();
            let others = others.filter(|&other| takes_part[other]).collect();
            let known = known.entry(task.lane).or_default();
            waits.of_tasks.push(needed(others, known, (tasks, &after)));
            // Whoever has waited for the compute lane at all has waited for all before the walk.
            if task.lane != Lane::COMPUTE && !known.contains_key(&Lane::COMPUTE) {
                waits.begins.insert(task.lane);
                known.insert(Lane::COMPUTE, None);
            }
            known.insert(task.lane, Some(index));
            after.push(known.clone());
        }
        let mut computing = (0..)
            .zip(tasks)
            .filter(|(_, task)| task.lane == Lane::COMPUTE);
        if let Some((first, _)) = computing.find(|&(index, _)| takes_part[index]) {
            waits.first_waits = after[first].keys().copied().collect();
        }
        let moving = last.iter().filter(|(lane, _)| **lane != Lane::COMPUTE);
        let moving = moving.map(|(_, &index)| index).collect();
        let mut compute = known.get(&Lane::COMPUTE).cloned().unwrap_or_default();
        let ends = needed(moving, &mut compute, (tasks, &after));
        waits.ends = ends.into_iter().map(|index| tasks[index].lane).collect();
        let behind = (1..lanes).map(Lane).filter(|lane| {
            let known = known.get(lane);
            let knows =
                |(other, &index)| known.is_some_and(|known| known.get(other) >= Some(&Some(index)));
            !last.iter().all(knows)
        });
        waits.behind = behind.collect();
        waits.awaited = waits.of_tasks.iter().flatten().copied().collect();
        waits
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
        let is_new = known.get(&tasks[other].lane) < Some(&Some(other));
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
