//! What crosses to a backend about ops: requests that fit their definitions, and the list of its
//! ops.
#![cfg(feature = "embedded")]

use std::collections::BTreeSet;

// Linked, so that the registry finds it.
use espalier_backend_cpu as _;
use espalier_interface::op::DEFINITIONS;
use espalier_interface::{
    Backend, DType, ErrorCode, KernelRequest, OpId, Operand, ParamOperand, Serial, WeightLayout,
};
use espalier_registry::{Registry, SearchPath};
use serde_json::Map;

/// The backend `cpu` behind the boundary.
fn cpu() -> Box<dyn Backend> {
    let registry = Registry::discover(&SearchPath::new::<String>([]));
    let made = registry.create_backend("cpu", &Map::new(), &Serial);
    made.expect("cpu").0
}

/// `linear` of a weight `[4, cols]` on rows of 8 columns.
fn linear(cols: u64) -> KernelRequest {
    KernelRequest::new("linear")
        .inputs(vec![Operand::per_token(8, DType::F32)])
        .params(vec![ParamOperand {
            shape: vec![4, cols],
            layout: WeightLayout::Dense(DType::F32),
        }])
        .outputs(vec![Operand::per_token(4, DType::F32)])
        .limits(16, 1)
}

#[test]
fn a_request_that_contradicts_its_op_is_refused_before_the_backend_sees_it() {
    let backend = cpu();
    let device = backend.open(0).expect("the machine");
    device
        .prepare(&linear(8), &[None])
        .expect("a sound request");
    let error = device
        .prepare(&linear(5), &[None])
        .expect_err("five of eight");
    assert_eq!(error.code, ErrorCode::INVALID);
    let words = "op `linear`: input `x` is f32 [T, 8], expected f32 [T, 5]";
    assert_eq!(error.message, words);
    // An op that the interface does not know is the backend's to refuse.
    let mut own = linear(5);
    own.op = "my_own".to_owned();
    let error = device.prepare(&own, &[None]).expect_err("no op of cpu");
    assert_eq!(error.code, ErrorCode::UNSUPPORTED);
    assert!(
        error.message.contains("on backend `cpu`: not known here"),
        "{error}"
    );
}

#[test]
fn cpu_lists_every_op_of_the_interface() {
    let listed = cpu().ops().expect("an answer").expect("a list");
    let count = listed.len();
    let listed: BTreeSet<OpId> = listed.into_iter().collect();
    assert_eq!(listed.len(), count, "each once");
    // `base` stands in an adapter's fragment and is no kernel.
    let defined = DEFINITIONS.iter().filter(|op| op.name != "base");
    let defined: BTreeSet<OpId> = defined.map(|op| op.id()).collect();
    assert_eq!(listed, defined);
}
