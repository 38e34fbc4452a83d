//! Kernel requests that contradict their op -> errors that name op and operand; and costs.

use super::*;
use crate::format::{Decoding, Format, SegmentSpec};
use crate::{DType, Operand, ParamOperand, WeightLayout};

/// A packed weight of `shape`.
fn packed(shape: [u64; 2]) -> WeightLayout {
    WeightLayout::Packed(Box::new(Format {
        quantizer: "q".to_owned(),
        shape,
        segments: vec![SegmentSpec::new("codes", DType::U8, shape[0] * shape[1])],
        decoding: Decoding::Callback,
    }))
}

/// `linear` of a weight `[4, 8]` in bf16.
fn linear(layout: WeightLayout) -> KernelRequest {
    KernelRequest::new("linear")
        .inputs(vec![Operand::per_token(8, DType::BF16)])
        .params(vec![ParamOperand {
            shape: vec![4, 8],
            layout,
        }])
        .outputs(vec![Operand::per_token(4, DType::BF16)])
        .limits(16, 1)
}

/// The message of a request that is refused.
fn refused(request: &KernelRequest) -> String {
    request
        .validate()
        .expect_err("it contradicts its op")
        .message
}

#[test]
fn requests_that_contradict_their_op_are_refused_by_name() {
    let sound = linear(WeightLayout::Dense(DType::F32));
    assert_eq!(sound.validate(), Ok(()));
    assert_eq!(linear(packed([4, 8])).validate(), Ok(()));
    assert_eq!(
        refused(&linear(packed([8, 4]))),
        "op `linear`: param `weight` is [4, 8], its format is for [8, 4]"
    );
    let mut request = sound.clone();
    request.outputs[0].dtype = DType::F32;
    assert_eq!(
        refused(&request),
        "op `linear`: output `y` is f32 [T, 4], expected bf16 [T, 4]"
    );
    request.outputs.clear();
    assert_eq!(
        refused(&request),
        "op `linear`: 1 inputs, 1 params and 0 outputs, expected 1, 1 to 2 and 1"
    );
    let mut request = sound;
    request.params[0].shape = vec![u64::MAX, 8];
    assert_eq!(
        refused(&request),
        "op `linear`: an operand has more elements than can be counted"
    );
    request.op = "my_own".to_owned();
    assert!(request.validate().is_err(), "of any op");
}

#[test]
fn a_norm_has_a_dense_weight_and_its_gradient_the_reduce_dtype_or_bf16() {
    let rows = Operand::per_token(8, DType::BF16);
    let norm = KernelRequest::new("rms_norm").inputs(vec![rows.clone()]);
    let mut norm = norm.outputs(vec![rows.clone()]);
    norm.attributes = norm.attributes.with("eps", 1e-5);
    let norm = norm.params(vec![ParamOperand {
        shape: vec![8, 1],
        layout: packed([8, 1]),
    }]);
    assert_eq!(
        refused(&norm),
        "op `rms_norm`: param `weight` is packed by quantizer `q`, expected a dense one"
    );
    let mut gradient = KernelRequest::new("bias_backward").inputs(vec![rows]);
    gradient.outputs = vec![Operand::flat(8, DType::F16)];
    assert_eq!(
        refused(&gradient),
        "op `bias_backward`: output `dbias` is f16 [8], expected f32 [8]"
    );
    for dtype in [DType::F32, DType::BF16] {
        gradient.outputs = vec![Operand::flat(8, dtype)];
        assert_eq!(gradient.validate(), Ok(()));
    }
}

#[test]
fn an_update_has_the_dtypes_of_its_version() {
    let request = |version, gradient, [param, state]: [DType; 2]| {
        let outputs = [param, state, state].map(|dtype| Operand::flat(8, dtype));
        KernelRequest::new("adamw")
            .version(version)
            .inputs(vec![Operand::flat(8, gradient)])
            .outputs(outputs.to_vec())
    };
    use DType as D;
    assert_eq!(
        refused(&request(1, D::F32, [D::BF16, D::BF16])),
        "op `adamw`: output `m` is bf16 [8], expected f32 [8]"
    );
    for [param, gradient, state] in [[D::BF16; 3], [D::BF16, D::F32, D::BF16], [D::F32; 3]] {
        assert_eq!(request(2, gradient, [param, state]).validate(), Ok(()));
        let stochastic = request(3, gradient, [param, state]);
        if param == D::BF16 {
            assert_eq!(stochastic.validate(), Ok(()));
        } else {
            assert_eq!(
                refused(&stochastic),
                "op `adamw`: output `param` is f32 [8], expected bf16, to which it is rounded \
                 stochastically"
            );
        }
    }
}

#[test]
fn what_a_fused_product_adds_is_checked() {
    let mut sound = linear(WeightLayout::Dense(DType::F32)).version(2);
    assert_eq!(sound.validate(), Ok(()));
    sound.inputs.push(Operand::per_token(4, DType::BF16));
    sound.attributes = sound.attributes.with("alpha", -0.3);
    assert_eq!(sound.validate(), Ok(()));
    assert_eq!(sound.traffic().per_token, 2 * (8 + 4 + 4));
    let mut other = sound.clone();
    other.inputs[1] = Operand::per_token(4, DType::F32);
    let words = "op `linear`: input `added` is f32 [T, 4], expected bf16 [T, 4]";
    assert_eq!(refused(&other), words);
    other.version = 1;
    assert!(refused(&other).contains("2 inputs, 1 params and 1 outputs, expected 1"));
    let mut gradient = KernelRequest::new("linear_weight_backward")
        .version(2)
        .inputs(vec![Operand::per_token(4, DType::BF16); 2])
        .outputs(vec![Operand {
            shape: vec![Dim::Fixed(4); 2],
            dtype: DType::F32,
        }]);
    for (alpha, fits) in [
        (1.0, true),
        (-0.125, true),
        (3.0, false),
        (0.0, false),
        (1e-30, false),
    ] {
        gradient.attributes = gradient.attributes.with("alpha", alpha);
        assert_eq!(gradient.validate().is_ok(), fits, "{alpha}");
    }
    assert!(refused(&gradient).ends_with("expected a power of two from 2^-32 to 2^32"));
}

#[test]
fn products_cost_operations_and_the_bytes_of_their_weight() {
    let dense = linear(WeightLayout::Dense(DType::F32));
    assert_eq!(dense.flops().per_token, 2 * 4 * 8);
    let traffic = dense.traffic();
    assert_eq!(traffic.per_token, 2 * (8 + 4));
    // The weight once, and written and read again in the dtype of x.
    assert_eq!(traffic.per_launch, 4 * 32 + 2 * 2 * 32);
    assert_eq!(traffic.decoded_per_launch, 0);
    assert_eq!(
        linear(packed([4, 8])).traffic().decoded_per_launch,
        32 + 128
    );
    let gradient = KernelRequest::new("bias_backward")
        .inputs(vec![Operand::per_token(8, DType::BF16)])
        .outputs(vec![Operand::flat(8, DType::F32)]);
    // What is added to is read and written.
    assert_eq!(gradient.traffic().per_launch, 2 * 4 * 8);
    let unknown = KernelRequest::new("my_own").inputs(vec![Operand::per_token(8, DType::BF16)]);
    assert_eq!(
        (unknown.flops(), unknown.traffic().per_token),
        (OpFlops::NONE, 16)
    );
}
