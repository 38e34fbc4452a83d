//! A schedule -> whether this executor can follow it: one rank without offload computes and updates.

use std::fmt::Debug;

use espalier_interface::schedule::{Act, Place, Schedule};
use espalier_interface::{PluginError, Result};

/// Refuses a schedule that asks for more than computing and updating what is in its place.
///
/// # Errors
/// `UNSUPPORTED`, naming the first act or placement.
pub fn check_order(schedule: &Schedule) -> Result<()> {
    let known = |act: Act| matches!(act, Act::Forward | Act::Backward);
    let micro_batch = schedule.micro_batch.iter().map(|action| action.act);
    let update = schedule.update.iter().map(|action| action.act);
    let mut strange = micro_batch
        .filter(|&act| !known(act))
        .chain(update.filter(|&act| act != Act::Optimize));
    if let Some(act) = strange.next() {
        return Err(unsupported(act));
    }
    let mut places = schedule.placements.iter().flat_map(|unit| {
        let at = *unit;
        [at.frozen, at.trainable, at.optimizer]
    });
    match places.find(|&place| place != Place::Replicated) {
        Some(place) => Err(unsupported(place)),
        None => Ok(()),
    }
}

pub(super) fn unsupported(what: impl Debug) -> PluginError {
    PluginError::unsupported(format!(
        "the schedule asks for {what:?}; one rank without offload computes and updates only: choose \
         `--plugins single`"
    ))
}

#[cfg(test)]
mod tests {
    use espalier_interface::schedule::{Action, Placement};

    use super::*;

    #[test]
    fn what_is_not_computing_or_updating_is_refused_by_name() {
        let placement = |optimizer| Placement {
            frozen: Place::Replicated,
            trainable: Place::Replicated,
            optimizer,
        };
        let schedule = |optimizer, extra: Act| Schedule {
            placements: vec![placement(optimizer)],
            micro_batch: vec![Action::new(Act::Forward, 0), Action::new(extra, 0)],
            update: vec![Action::new(Act::Optimize, 0)],
            ..Schedule::default()
        };
        check_order(&schedule(Place::Replicated, Act::Backward)).expect("computes and updates");
        let refused = |schedule: &Schedule| check_order(schedule).expect_err("refused").message;
        for act in [
            Act::Fetch,
            Act::Gather,
            Act::Release,
            Act::Reduce,
            Act::Offload,
        ] {
            let message = refused(&schedule(Place::Replicated, act));
            assert!(message.contains(&format!("asks for {act:?};")), "{message}");
        }
        let mut late = schedule(Place::Replicated, Act::Backward);
        late.update.push(Action::new(Act::Gather, 0));
        assert!(refused(&late).contains("Gather"));
        assert!(refused(&schedule(Place::Host, Act::Backward)).contains("Host"));
    }
}
