//! Properties of every schedule, for random requests.

use espalier_interface::random::{Purpose, key, philox};

use super::*;

/// Requests of runs that update after the backward pass and within.
fn requests(seed: u64) -> [ShardingRequest; 2] {
    [drawn(seed), in_backward(drawn(seed))]
}

/// Settings of every kind.
fn all_settings() -> Vec<Settings> {
    let mut all = Vec::new();
    for strategy in [Strategy::FullShard, Strategy::ShardGradOp, Strategy::Hybrid] {
        for offload in [
            Offload::Nothing,
            Offload::Params,
            Offload::ParamsAndOptimizer,
        ] {
            for gather in [Gather::Shards, Gather::HostDirect] {
                for prefetch in [0, 1, 2, 5] {
                    for offload_activations in [false, true] {
                        all.push(Settings {
                            strategy,
                            offload,
                            gather,
                            prefetch,
                            offload_activations,
                            ..SETTINGS
                        });
                    }
                }
            }
        }
    }
    all
}

/// A random model: units with and without frozen and trainable bytes, passes that read themselves,
/// other passes or nothing.
fn drawn(seed: u64) -> ShardingRequest {
    let mut count = 0;
    let mut draw = move |below: u32| {
        count += 1;
        philox(key(seed, Purpose::SYNTHETIC, 0), [count, 0, 0, 0])[0] % below
    };
    let units = 1 + draw(7) as usize;
    let mut made: Vec<UnitBytes> = Vec::new();
    for index in 0..units {
        let bytes = |word: u32| u64::from(word.saturating_sub(1)) * 64;
        let mut one = unit(index, bytes(draw(4)), bytes(draw(4)));
        one.saved = if index == 0 { 64 } else { bytes(draw(2) * 2) };
        for reads in [&mut one.forward_reads, &mut one.backward_reads] {
            match draw(6) {
                0 => reads.clear(),
                1 => reads.extend((index > 0).then_some(0)),
                _ => {}
            }
        }
        made.push(one);
    }
    let world = 1 + draw(8);
    ShardingRequest {
        units: made,
        world,
        ranks_per_machine: if draw(2) == 0 { world } else { 1 },
        ..ShardingRequest::default()
    }
}

/// The most units that `1 + prefetch` passes after each other read.
fn widest_window(request: &ShardingRequest, prefetch: usize) -> usize {
    let passes = request.passes();
    let windows = (0..passes.len()).map(|first| {
        let last = (first + prefetch).min(passes.len() - 1);
        let mut units: Vec<usize> = passes[first..=last]
            .iter()
            .flat_map(|pass| pass.reads)
            .copied()
            .collect();
        units.sort_unstable();
        units.dedup();
        units.len()
    });
    windows.max().unwrap_or(0)
}

#[test]
fn every_schedule_is_valid_and_gathers_no_more_than_its_window() {
    for seed in 0..200 {
        for settings in all_settings() {
            for request in requests(seed) {
                let schedule = schedule(settings, &request);
                let most = schedule.most_gathered(&request).expect("valid");
                if settings.strategy != Strategy::ShardGradOp {
                    let window = widest_window(&request, settings.prefetch);
                    assert!(
                        most <= window,
                        "{most} > {window}: {settings:?} of {request:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_action_that_moves_or_updates_is_needed() {
    for seed in 0..24 {
        for settings in all_settings() {
            for request in requests(seed) {
                let whole = schedule(settings, &request);
                for missing in 0..whole.micro_batch.len() + whole.update.len() {
                    let mut less = whole.clone();
                    let gone = match missing.checked_sub(whole.micro_batch.len()) {
                        None => less.micro_batch.remove(missing),
                        Some(update) => less.update.remove(update),
                    };
                    assert!(
                        less.validate(&request).is_err(),
                        "valid without {gone:?}: {settings:?} of {request:?}"
                    );
                }
            }
        }
    }
}
