//! Every op of the kit, on a device of candle: nothing fails, and nothing is refused.

use std::sync::Arc;

use espalier_backend_candle::CandleBackend;
use espalier_conformance::ops;
use espalier_host_device::HostOptions;
use espalier_interface::op::DEFINITIONS;
use espalier_interface::{Backend, OpId, Serial};

/// Weights that are drawn.
const RANDOM_WEIGHTS: u64 = 500;

fn backend() -> CandleBackend {
    CandleBackend::new(Arc::new(Serial), HostOptions::default())
}

#[test]
fn every_op_of_the_kit_passes() {
    let device = backend().open(0).expect("the machine");
    let mut failures = Vec::new();
    for op in ops::all() {
        if let Err(fault) = ops::check(&*device, op) {
            failures.push(format!("{}: {fault:?}", op.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_op_of_the_interface_is_listed() {
    let listed = backend().ops().expect("a list").expect("of some ops");
    for definition in DEFINITIONS.iter().filter(|op| op.name != "base") {
        let id = OpId {
            name: definition.name.to_owned(),
            version: definition.version,
        };
        assert!(listed.contains(&id), "{id} is missing");
    }
}

/// Values of random packed weights, in all that a format describes, must be those of the format's
/// reference decoder.
#[test]
fn random_weights_have_the_values_that_their_formats_describe() {
    let device = backend().open(0).expect("the machine");
    let check = ops::all().find(|op| op.name == "op.param_value");
    let check = check.expect("a check of the kit");
    for seed in 0..RANDOM_WEIGHTS {
        for trial in ops::trials(&[("candle", &*device)], check, seed) {
            let is_met = matches!(trial.answers[0], ops::Answer::Within(_));
            assert!(is_met, "seed {seed}: {trial:?}");
        }
    }
}
