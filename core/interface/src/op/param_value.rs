//! `param_value`: a param in any format -> its elements as a value, in the dtype of that value.
//!
//! `param_value_backward`: dy -> dparam.

use super::definition::{OpDefinition, accumulated, fixed, gradient_dtype, in_any_format, written};
use super::linear::params_read;
use crate::DType;
use crate::graph::{Attributes, Dim, Graph, ParamId, ValueId, ValueType};

pub(super) static PARAM_VALUE: OpDefinition = OpDefinition {
    params: &[in_any_format("param")],
    outputs: &[written("y")],
    traffic: params_read,
    ..OpDefinition::new("param_value", |call| {
        let dtype = call.stated_float(0)?;
        Ok(vec![fixed(call.params[0].shape, dtype)])
    })
};

pub(super) static PARAM_VALUE_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy"],
    outputs: &[accumulated("dparam")],
    ..OpDefinition::new("param_value_backward", |call| {
        let dy = call.float(0)?;
        let dtype = gradient_dtype(call, 0, dy.dtype);
        Ok(vec![ValueType { dtype, ..dy }])
    })
};

/// The elements of `param`, in any format, as a value of its shape. `dtype` is [`DType::COMPUTE`]
/// or [`DType::REDUCE`]. The gradient arrives at the param. Values of params are not saved for the
/// backward pass, but read again.
pub fn param_value(graph: &mut Graph, param: ParamId, dtype: DType) -> ValueId {
    let shape = graph.params[param].shape.iter();
    let shape = shape.map(|&extent| Dim::Fixed(extent)).collect();
    let ty = ValueType { shape, dtype };
    graph.node("param_value", &[], &[param], vec![ty], Attributes::new())
}
