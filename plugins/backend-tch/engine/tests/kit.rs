//! The kit of ops on libtorch: every op, forward and backward, in f32 and bf16, none refused.

use std::sync::Arc;

use espalier_conformance::ops::{self, OpCheck};
use espalier_interface::{Backend, Device, OpId, Options, Serial};
use espalier_tch_engine::TchBackend;

/// Weights that are drawn.
const RANDOM_WEIGHTS: u64 = 500;

fn backend() -> TchBackend {
    TchBackend::new(&Options::default(), Arc::new(Serial)).expect("no options")
}

fn device() -> Box<dyn Device> {
    backend().open(0).expect("the processors")
}

#[test]
fn every_op_passes_and_none_is_refused() {
    let device = device();
    let mut failed = Vec::new();
    let mut passed = 0;
    for op in ops::all() {
        match ops::check(device.as_ref(), op) {
            Ok(()) => passed += 1,
            Err(fault) => failed.push(format!("{}: {fault:?}", op.name)),
        }
    }
    let all = passed + failed.len();
    assert!(
        failed.is_empty(),
        "{passed} of {all} pass\n{}",
        failed.join("\n")
    );
    assert!(passed > 60, "the kit has {passed} checks only");
}

#[test]
fn the_listed_ops_are_those_of_the_kit() {
    let listed = backend().ops().expect("a list").expect("some");
    let name = |id: &OpId| match id.version {
        1 => format!("op.{}", id.name),
        version => format!("op.{}.{version}", id.name),
    };
    let mut listed: Vec<String> = listed.iter().map(name).collect();
    let mut checked: Vec<String> = ops::all().map(|op: &OpCheck| op.name.to_owned()).collect();
    listed.sort();
    checked.sort();
    assert_eq!(listed, checked);
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let refused = backend().open(1).err().expect("there is one device");
    assert!(refused.message.contains("only device 0"), "{refused}");
}

/// Values of random packed weights, in all that a format describes, must be those of the format's
/// reference decoder.
#[test]
fn random_weights_have_the_values_that_their_formats_describe() {
    let device = device();
    let check = ops::all().find(|op| op.name == "op.param_value");
    let check = check.expect("a check of the kit");
    for seed in 0..RANDOM_WEIGHTS {
        for trial in ops::trials(&[("tch", device.as_ref())], check, seed) {
            let is_met = matches!(trial.answers[0], ops::Answer::Within(_));
            assert!(is_met, "seed {seed}: {trial:?}");
        }
    }
}
