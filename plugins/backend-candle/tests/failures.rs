//! What candle refuses, and what the device refuses before candle's allocator would end the
//! process: errors with a code, the op's name and the cause.

mod launching;

use std::sync::Arc;

use espalier_interface::graph::Dim;
use espalier_interface::{
    DType, Device, ErrorCode, KernelRequest, Operand, ParamOperand, PluginError, Serial,
    WeightLayout,
};
use launching::{OPERANDS, launch, product};

/// A device with that much memory, if there is a bound.
fn device(device_memory: Option<u64>) -> Box<dyn Device> {
    launching::device(Arc::new(Serial), device_memory)
}

/// `embedding` of one token in a table of 4 rows of 2 numbers.
fn embedding(token: i32) -> std::result::Result<(), PluginError> {
    let tokens = Operand {
        shape: vec![Dim::Tokens],
        dtype: DType::I32,
    };
    let table = ParamOperand {
        shape: vec![4, 2],
        layout: WeightLayout::Dense(DType::F32),
    };
    let request = KernelRequest::new("embedding")
        .inputs(vec![tokens])
        .params(vec![table])
        .outputs(vec![Operand::per_token(2, DType::F32)])
        .limits(1, 1);
    let operands = [&token.to_le_bytes()[..], &[0; 32], &[0; 8]];
    launch(&*device(None), &request, &operands)
}

#[test]
fn a_token_outside_the_table_is_an_error_that_names_op_and_row() {
    embedding(3).expect("the last row");
    for token in [4, -1] {
        let error = embedding(token).expect_err("no such row");
        assert_eq!(error.code, ErrorCode::DEVICE);
        let expected = format!("launch of `embedding`: candle: row {token} of a matrix of 4 rows");
        assert!(error.message.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_launch_whose_tensors_do_not_fit_is_out_of_memory_before_candle_allocates() {
    let (request, operands) = (product(), OPERANDS);
    launch(&*device(Some(1 << 20)), &request, &operands).expect("room for all");
    // The operands take all of it.
    let error = launch(&*device(Some(32_768)), &request, &operands).expect_err("no room");
    assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
    let expected = "launch of `linear`: 98304 bytes of temporary tensors: only 0 bytes";
    assert!(error.message.starts_with(expected), "{error}");
    assert!(
        error.message.contains("backend.candle.device_memory"),
        "{error}"
    );
}

#[test]
fn dtypes_that_are_not_computed_in_are_refused_by_name() {
    let scale = |dtype| {
        let rows = || vec![Operand::per_token(4, dtype)];
        let request = KernelRequest::new("exp").inputs(rows()).outputs(rows());
        device(None).prepare(&request.limits(1, 1), &[])
    };
    scale(DType::BF16).expect("bf16");
    let error = scale(DType::F64).expect_err("the reference's dtype");
    assert_eq!(error.code, ErrorCode::UNSUPPORTED);
    let expected = "op `exp` on backend `candle`: dtype f64, expected f32 or bf16";
    assert_eq!(error.message, expected);
}
