//! The checks of sharding strategies.

use espalier_interface::schedule::{Act, Schedule, ShardingRequest, UnitBytes};
use espalier_interface::{ErrorCode, Sharding};

use crate::checked::{Checked, Fault, calm, ensure, refusal};
use crate::{OptionSet, Subject, Suite, Threads, declared};

/// World sizes under test.
const WORLDS: std::ops::RangeInclusive<u32> = 1..=7;

/// Runs all checks of a sharding strategy.
pub fn sharding(subject: &Subject<'_, dyn Sharding>, suite: &mut Suite) {
    declared::check(&subject.component, suite);
    declared::created(subject, suite);
    suite.check(
        "schedule.valid",
        "for 1 to 7 ranks and models of many sizes the schedule is valid, or the world is rejected with INVALID and a message",
        || each(subject, |sharding, _, request| valid(sharding, request)),
    );
    suite.check(
        "schedule.serves",
        "at least one number of ranks is served",
        || {
            let sharding = subject.make(&subject.option_sets()[0].options, Threads::new(1))?;
            let mut worlds = WORLDS.map(|world| request(&[4096; 4], world));
            let serves = worlds.any(|request| sharding.schedule(&request).is_ok());
            ensure(serves, || "no world from 1 to 7 ranks is served".into())
        },
    );
    suite.check(
        "schedule.in_backward",
        "where the run updates in the backward pass, the schedule does so, or leaves all updates where they were, or the request is rejected with INVALID",
        || each(subject, |sharding, _, request| in_backward(sharding, request)),
    );
    suite.check(
        "schedule.deterministic",
        "the same request gives the same schedule each time, also of another instance",
        || {
            each(subject, |sharding, set, request| {
                let Ok(schedule) = sharding.schedule(request) else {
                    return Ok(());
                };
                let other = subject.make(&set.options, Threads::new(3))?;
                let again = [sharding.schedule(request)?, other.schedule(request)?];
                ensure(again.iter().all(|one| *one == schedule), || {
                    "two schedules of one request differ".into()
                })
            })
        },
    );
}

/// Calls `body` with a strategy, its options and a request, for all options, models and worlds.
fn each(
    subject: &Subject<'_, dyn Sharding>,
    body: impl Fn(&dyn Sharding, &OptionSet, &ShardingRequest) -> Checked,
) -> Checked {
    for (index, set) in subject.option_sets().iter().enumerate() {
        let made = calm(|| Ok(subject.make(&set.options, Threads::new(1))))?;
        let sharding = match made {
            Ok(sharding) => sharding,
            Err(error) if index > 0 && error.code == ErrorCode::INVALID => continue,
            Err(error) => return Err(Fault::from(error).at(&format!("create with {}", set.label))),
        };
        for request in requests() {
            let (world, units) = (request.world, request.units.len());
            let trained = request
                .units
                .iter()
                .filter(|unit| unit.trainable > 0)
                .count();
            let at = format!(
                "{}, {world} ranks, {units} units, {trained} of them trained",
                set.label
            );
            let done = calm(|| body(sharding.as_ref(), set, &request));
            done.map_err(|fault| fault.at(&at))?;
        }
    }
    Ok(())
}

fn valid(sharding: &dyn Sharding, request: &ShardingRequest) -> Checked {
    match sharding.schedule(request) {
        Ok(schedule) => Ok(schedule.validate(request)?),
        Err(error) => {
            refusal(&error)?;
            ensure(error.code == ErrorCode::INVALID, || {
                format!(
                    "expected code INVALID, found {}: {}",
                    error.code.0, error.message
                )
            })
        }
    }
}

/// A strategy may not know of updates in the backward pass: the host then refuses them by its name.
fn in_backward(sharding: &dyn Sharding, request: &ShardingRequest) -> Checked {
    let wanted = ShardingRequest {
        micro_batches: 1,
        update_in_backward: true,
        ..request.clone()
    };
    let updates = |schedule: &Schedule| schedule.update.iter().any(|one| one.act == Act::Optimize);
    match sharding.schedule(&wanted) {
        Ok(schedule) if updates(&schedule) => Ok(schedule.validate(&ShardingRequest {
            update_in_backward: false,
            ..wanted
        })?),
        _ => valid(sharding, &wanted),
    }
}

/// Models of few and of many units; none, some or all of them trained; in every world.
fn requests() -> Vec<ShardingRequest> {
    let models: [Vec<u64>; 6] = [
        vec![0, 0],
        vec![64, 64],
        vec![0, 4096, 4096, 0],
        vec![1 << 20; 5],
        (0..34).map(|unit| 4 * (unit % 3)).collect(),
        vec![1, 3, 5, 7, 1 << 40],
    ];
    let in_worlds = |model: &Vec<u64>| {
        WORLDS
            .map(|world| request(model, world))
            .collect::<Vec<_>>()
    };
    models.iter().flat_map(in_worlds).collect()
}

/// A model whose units have these trainable bytes. With an odd number of units, the head is tied to
/// the embedding.
fn request(trainable: &[u64], world: u32) -> ShardingRequest {
    let head = trainable.len() - 1;
    let tied = trainable.len() % 2 == 1;
    let units = trainable.iter().enumerate().map(|(index, &trainable)| {
        let itself = vec![index];
        UnitBytes {
            name: format!("unit {index}"),
            frozen: 1000 * index as u64 + 17,
            trainable,
            gradients: trainable,
            optimizer: 2 * trainable,
            saved: 64,
            forward_reads: if index == head && tied {
                vec![0, head]
            } else {
                itself.clone()
            },
            // A frozen embedding has no backward pass.
            backward_reads: match index {
                0 if trainable == 0 => Vec::new(),
                index if index == head => Vec::new(),
                _ => itself,
            },
        }
    });
    ShardingRequest {
        units: units.collect(),
        world,
        ranks_per_machine: world,
        ..ShardingRequest::default()
    }
}
