//! The schedule of one rank, and worlds that are refused.

use espalier_interface::ErrorCode;
use espalier_interface::schedule::UnitBytes;

use super::*;

fn request(trainable: &[u64], world: u32) -> ShardingRequest {
    let units = trainable
        .iter()
        .enumerate()
        .map(|(index, &trainable)| UnitBytes {
            name: format!("unit {index}"),
            frozen: 128,
            trainable,
            gradients: trainable,
            optimizer: 2 * trainable,
            ..UnitBytes::default()
        });
    ShardingRequest {
        units: units.collect(),
        world,
        ranks_per_machine: world,
        ..ShardingRequest::default()
    }
}

#[test]
fn units_run_forward_then_back_without_the_head() {
    let schedule = Single
        .schedule(&request(&[0, 8, 8, 0], 1))
        .expect("one rank");
    let order: Vec<_> = schedule
        .micro_batch
        .iter()
        .map(|one| (one.act, one.unit))
        .collect();
    let (f, b) = (Act::Forward, Act::Backward);
    assert_eq!(
        order,
        [(f, 0), (f, 1), (f, 2), (f, 3), (b, 2), (b, 1), (b, 0)]
    );
    let updated: Vec<_> = schedule
        .update
        .iter()
        .map(|one| (one.act, one.unit))
        .collect();
    assert_eq!(updated, [(Act::Optimize, 1), (Act::Optimize, 2)]);
    let whole = |at: &Placement| {
        [at.frozen, at.trainable, at.optimizer]
            .iter()
            .all(|&place| place == Place::Replicated)
    };
    assert!(schedule.placements.iter().all(whole));
}

#[test]
fn updates_in_the_backward_pass_follow_whole_gradients() {
    let mut request = request(&[0, 8, 8], 1);
    request.update_in_backward = true;
    for (index, unit) in request.units.iter_mut().enumerate() {
        unit.forward_reads = vec![index];
        unit.backward_reads = vec![index];
    }
    let schedule = Single.schedule(&request).expect("one rank");
    let order = schedule.micro_batch.iter();
    let order: Vec<_> = order.map(|one| (one.act, one.unit)).collect();
    let (f, b) = (Act::Forward, Act::Backward);
    let applied = |unit| [Act::Norm, Act::Optimize, Act::Release].map(|act| (act, unit));
    let expected = [
        &[(f, 0), (f, 1), (f, 2)][..],
        &applied(2),
        &[(b, 1)],
        &applied(1),
        &[(b, 0)],
    ];
    assert_eq!(order, expected.concat());
    assert!(schedule.update.is_empty());
}

#[test]
fn more_ranks_are_refused_with_a_next_step() {
    let error = Single
        .schedule(&request(&[8, 8], 2))
        .expect_err("two ranks");
    assert_eq!(error.code, ErrorCode::INVALID);
    assert!(error.message.contains("this run has 2"), "{error}");
    assert!(error.message.contains("--ranks 1"), "{error}");
}
