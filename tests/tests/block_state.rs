//! An optimizer with state by blocks, which is not shipped: trained on any number of ranks, saved,
//! and restored on other numbers of ranks.
#![cfg(feature = "embedded")]

use std::fs;
use std::path::Path;

use espalier_data::StepBatch;
use espalier_engine::executor::StatePart;
use espalier_interface::optimizer::{Extent, OptimizerSpec, StateTensor, scalar};
use espalier_interface::{BufferRange, DType, Device, KernelRequest, Launch, Result, Stream};
use espalier_tests::{
    Golden, Named, TeamRig, downloaded, golden_path, micro_batch, relative_norm, step_of,
};
use espalier_trainer::checkpoint::{
    Checkpoints, Position, Progress, ResumeFrom, Snapshot, restore, save,
};
use serde_json::json;

/// Elements of a block: no power of two, so that params end within one.
const BLOCK: usize = 48;

/// Ranks and how they share: all kinds of homes of state.
const KINDS: [&[(&str, &str)]; 4] = [
    &[("plugins", "[]")],
    &[("plugins", "[\"ddp\"]"), ("run.ranks", "2")],
    &[("plugins", "[\"fsdp\"]"), ("run.ranks", "3")],
    &[
        ("plugins", "[\"fsdp\"]"),
        ("run.ranks", "2"),
        ("sharding.fsdp.offload", "\"params+optimizer\""),
    ],
];

/// A momentum by element, and by block the sum of all squares of gradients so far.
fn optimizer() -> OptimizerSpec {
    let momentum = StateTensor {
        dtype: DType::F32,
        ..StateTensor::per_element("momentum")
    };
    let squares = StateTensor {
        dtype: DType::F32,
        extent: Extent::PerBlock(BLOCK as u64),
        ..StateTensor::per_element("squares")
    };
    OptimizerSpec {
        name: "blocks".to_owned(),
        op: "adamw".to_owned(),
        version: 1,
        scalars: vec![scalar::LEARNING_RATE.to_owned()],
        settings: Vec::new(),
        state: vec![momentum, squares],
        small: None,
    }
}

/// Its update.
fn update(device: &dyn Device, _: &KernelRequest, launch: &Launch<'_>) -> Result<()> {
    let numbers = |range: &BufferRange| -> Result<Vec<f32>> {
        let bytes = downloaded(device, *range)?;
        let each = bytes.chunks_exact(4);
        let number = |x: &[u8]| f32::from_le_bytes(x.try_into().expect("4 bytes"));
        Ok(each.map(number).collect())
    };
    let [gradients, values, momentum, squares] = launch.ranges else {
        panic!("four operands");
    };
    let places = [values, momentum, squares];
    let (gradients, mut values) = (numbers(gradients)?, numbers(values)?);
    let (mut momentum, mut squares) = (numbers(momentum)?, numbers(squares)?);
    assert_eq!(squares.len(), gradients.len().div_ceil(BLOCK));
    let rate = launch.scalars[0] as f32;
    for (block, gradients) in gradients.chunks(BLOCK).enumerate() {
        squares[block] += sum_of_squares(gradients.iter().copied());
        for (at, gradient) in (block * BLOCK..).zip(gradients) {
            momentum[at] = 0.5 * momentum[at] + gradient;
            values[at] -= rate * momentum[at] / (1.0 + squares[block].sqrt());
        }
    }
    for (place, numbers) in places.into_iter().zip([values, momentum, squares]) {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        device.upload(&bytes, *place, Stream(0))?;
    }
    Ok(())
}

fn sum_of_squares(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.map(|x| x * x).fold(0.0, |sum, square| sum + square)
}

/// The tiny Llama with all weights trained by it.
fn team(kind: &[(&str, &str)]) -> TeamRig {
    let fixed = [
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "32"),
        ("data.micro_batch", "1"),
        ("optim.learning_rate", "1e-2"),
    ];
    let keys = [&fixed, kind].concat();
    TeamRig::with_optimizer(
        &golden_path("llama/tiny-trained"),
        &keys,
        &optimizer(),
        update,
    )
}

/// The steps of a run, with a micro-batch for each row.
fn steps() -> Vec<StepBatch> {
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    let steps = rows.chunks(4).take(5).map(|rows| {
        let rows = rows.iter().map(std::slice::from_ref);
        step_of(rows.map(|row| micro_batch(row, row)).collect())
    });
    steps.collect()
}

/// Trains steps `from..to`.
fn train(rig: &TeamRig, from: usize, to: usize) {
    let steps = steps();
    for (index, step) in steps.iter().enumerate().take(to).skip(from) {
        let at = [index as u64, steps.len() as u64];
        let done = rig.team.train(&rig.config.optim, step, at, 42);
        done.expect("a step");
    }
}

/// Values and state of all params.
fn whole(rig: &TeamRig) -> Vec<Named> {
    let values = rig.state(StatePart::Values);
    std::iter::once(values)
        .chain(rig.optimizer_state())
        .collect()
}

/// Saves the run after `step` steps in `out`.
fn saved(rig: &TeamRig, out: &Path, step: u64) {
    let metrics = out.join("metrics.jsonl");
    fs::write(&metrics, "").expect("a file");
    let snapshot = Snapshot {
        team: &rig.team,
        adapter: None,
        run: &json!({}),
        progress: &Progress {
            step,
            ..Progress::default()
        },
        position: Position {
            epoch: 0,
            step_of_epoch: step,
            steps_per_epoch: steps().len() as u64,
        },
        metrics: &metrics,
    };
    save(&Checkpoints::of(out), &snapshot).expect("a checkpoint");
}

#[test]
fn the_state_of_a_block_is_of_its_elements_on_any_number_of_ranks() {
    for kind in KINDS {
        let rig = team(kind);
        train(&rig, 0, 1);
        let [_, _, squares] = &whole(&rig)[..] else {
            panic!("two state tensors");
        };
        for ((name, gradients), (_, squares)) in rig.gradients().iter().zip(squares) {
            let gradients: Vec<f32> = gradients.iter().map(|&x| x as f32).collect();
            let blocks = gradients.chunks(BLOCK);
            let expected = blocks.map(|block| f64::from(sum_of_squares(block.iter().copied())));
            let expected: Vec<f64> = expected.collect();
            assert!(expected.iter().any(|&sum| sum > 0.0), "{kind:?}: {name}");
            assert_eq!(squares, &expected, "{kind:?}: {name}");
        }
    }
}

#[test]
fn a_checkpoint_has_it_for_any_number_of_ranks_and_training_goes_on() {
    for (number, kind) in KINDS.iter().enumerate() {
        let out = tempfile::tempdir().expect("a folder");
        let rig = team(kind);
        train(&rig, 0, 3);
        saved(&rig, out.path(), 3);
        let kept = whole(&rig);
        train(&rig, 3, 5);
        let ended = whole(&rig);
        assert_ne!(kept, ended);
        let newest = Checkpoints::of(out.path()).choose(ResumeFrom::Newest);
        let checkpoint = newest.expect("an intact one").expect("one");
        for (other_number, other) in KINDS.iter().enumerate() {
            let rig = team(other);
            let restored = rig.team.each(|executor| restore(&checkpoint, executor));
            restored.unwrap_or_else(|error| panic!("{kind:?} to {other:?}: {error}"));
            assert_eq!(whole(&rig), kept, "{kind:?} to {other:?}");
            train(&rig, 3, 5);
            let found = whole(&rig);
            if other_number == number {
                assert_eq!(found, ended, "{kind:?}");
            }
            // Ranks add gradients in another order.
            for ((name, found), (_, ended)) in found.iter().flatten().zip(ended.iter().flatten()) {
                let distance = relative_norm(found, ended);
                assert!(
                    distance < 1e-4,
                    "{kind:?} to {other:?}: {name} is off by {distance}"
                );
            }
        }
    }
}
