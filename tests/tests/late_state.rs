//! State that the host reads or writes between steps, right after other lanes of the backend
//! `late` were given work on it.

mod lately;
mod swapping; // Of `lately`.

use std::path::Path;

use espalier_engine::executor::{NotFiniteTensor, StatePart};
use espalier_tests::{Golden, Named, TeamRig, golden_path, micro_batch, step_of};
use tempfile::TempDir;

use lately::{ORDERS, add_library};

/// Params and the optimizer's state lie on the host; a lane writes them after each update.
const OFFLOADED: [(&str, &str); 6] = [
    ("plugins", "[\"fsdp\"]"),
    ("sharding.fsdp.offload", "\"params+optimizer\""),
    ("model.compute", "\"f32\""),
    ("data.max_seq_len", "32"),
    ("data.micro_batch", "2"),
    ("optim.learning_rate", "1e-2"),
];

/// The tiny Llama on `cpu`.
fn on_cpu() -> TeamRig {
    TeamRig::new(&golden_path("llama/tiny-trained"), &OFFLOADED)
}

/// The same on `late`, with its library in `folder`.
fn on_device(folder: &Path, (order, seed): (&str, u64)) -> TeamRig {
    let (dirs, order) = (format!("[{folder:?}]"), format!("{order:?}"));
    let seed = seed.to_string();
    let more = [
        ("run.backend", "\"late\""),
        ("run.plugin_dirs", &dirs),
        ("backend.late.order", &order),
        ("backend.late.seed", &seed),
        ("backend.late.host_operands", "\"refuse\""),
    ];
    let keys = [&OFFLOADED[..], &more].concat();
    TeamRig::new(&golden_path("llama/tiny-trained"), &keys)
}

fn library() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    add_library(folder.path(), "late");
    folder
}

/// Trains step number `index`.
fn train(rig: &TeamRig, index: usize) {
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    let rows = &rows[2 * index..2 * index + 2];
    let done = rig.team.train(
        &rig.config.optim,
        &step_of(vec![micro_batch(rows, rows)]),
        [index as u64, 4],
        42,
    );
    done.expect("a step");
}

/// Sets every element of a part of the state of all trained params.
fn set(rig: &TeamRig, part: StatePart, number: f32) {
    let executor = rig.team.first();
    for param in executor.trainable() {
        let elements: u64 = executor.state_shape(param, part).iter().product();
        let bytes = number.to_le_bytes().repeat(elements as usize);
        let written = executor.upload_state(param, part, 0, &bytes);
        written.expect("a trained param");
    }
}

/// The parts of the state of every trained param.
fn parts(rig: &TeamRig) -> Vec<StatePart> {
    let executor = rig.team.first();
    executor.state_parts(executor.trainable()[0])
}

/// Values and state of all params.
fn whole(rig: &TeamRig) -> Vec<Named> {
    let values = rig.state(StatePart::Values);
    let state = rig.optimizer_state();
    std::iter::once(values).chain(state).collect()
}

/// The state as set after a step, and after one more step where no read lies between.
fn set_between_steps(rig: &TeamRig) -> [Vec<Named>; 2] {
    let set_all = |number| {
        for part in parts(rig) {
            set(rig, part, number);
        }
    };
    train(rig, 0);
    set_all(0.25);
    let as_set = whole(rig);
    train(rig, 1);
    set_all(0.125);
    train(rig, 2);
    [as_set, whole(rig)]
}

#[test]
fn state_that_is_set_between_steps_equals_that_of_cpu_in_every_order() {
    let expected = set_between_steps(&on_cpu());
    let numbers = expected[0]
        .iter()
        .flatten()
        .flat_map(|(_, numbers)| numbers);
    assert!(numbers.copied().all(|number| number == 0.25));
    assert!(expected[0] != expected[1]);
    let folder = library();
    for order in ORDERS {
        let found = set_between_steps(&on_device(folder.path(), order));
        assert!(found == expected, "{order:?}");
    }
}

/// What is found right after a step whose update has no finite result.
fn found_after_an_update(rig: &TeamRig) -> Option<NotFiniteTensor> {
    let moment = parts(rig)[1];
    set(rig, moment, f32::INFINITY);
    train(rig, 0);
    let found = rig.team.first().trainable_not_finite();
    found.expect("a search")
}

#[test]
fn params_that_an_update_made_infinite_are_found_as_on_cpu_in_every_order() {
    let expected = found_after_an_update(&on_cpu()).expect("infinite");
    assert!(expected.tensor.starts_with("param `"), "{expected}");
    let folder = library();
    for order in ORDERS {
        let found = found_after_an_update(&on_device(folder.path(), order));
        assert_eq!(found.as_ref(), Some(&expected), "{order:?}");
    }
}
