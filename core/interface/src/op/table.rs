//! The table of all ops: names and versions -> definitions.

use std::ops::RangeInclusive;

use super::definition::OpDefinition;
use super::{
    adamw, adapted_row_norms, add, attention, base, broadcast_param, cast, cross_entropy, div,
    dropout, embedding, exp, expand, first_not_finite, init, linear, log, matmul, mul, param_value,
    pick, rms_norm, rope, row_max, rsqrt, scale, scale_by, scale_channels, scale_trained, sgd,
    sigmoid, sinusoids, sum_squares, swap_halves, swiglu, zero,
};

/// The definitions of all ops, each name and version once.
pub static DEFINITIONS: &[&OpDefinition] = &[
    &embedding::EMBEDDING,
    &embedding::EMBEDDING_BACKWARD,
    &linear::LINEAR,
    &linear::LINEAR_INPUT_BACKWARD,
    &linear::LINEAR_WEIGHT_BACKWARD,
    &linear::BIAS_BACKWARD,
    &rms_norm::RMS_NORM,
    &rms_norm::RMS_NORM_BACKWARD,
    &rms_norm::RMS_NORM_WEIGHT_BACKWARD,
    &rope::ROPE,
    &rope::ROPE_BACKWARD,
    &attention::ATTENTION,
    &attention::ATTENTION_BACKWARD,
    &attention::ATTENTION_CACHED,
    &swiglu::SWIGLU,
    &swiglu::SWIGLU_BACKWARD,
    &add::ADD,
    &mul::MUL,
    &div::DIV,
    &scale_by::SCALE_BY,
    &scale_by::SCALE_BY_BACKWARD,
    &param_value::PARAM_VALUE,
    &param_value::PARAM_VALUE_BACKWARD,
    &adapted_row_norms::ADAPTED_ROW_NORMS,
    &matmul::MATMUL,
    &scale::SCALE,
    &scale_channels::SCALE_CHANNELS,
    &scale_channels::SCALE_CHANNELS_WEIGHT_BACKWARD,
    &dropout::DROPOUT,
    &cross_entropy::CROSS_ENTROPY,
    &cross_entropy::CROSS_ENTROPY_BACKWARD,
    &base::BASE,
    &zero::ZERO,
    &cast::CAST,
    &init::INIT,
    &sum_squares::SUM_SQUARES,
    &first_not_finite::FIRST_NOT_FINITE,
    &adamw::ADAMW,
    &sgd::SGD,
    &exp::EXP,
    &log::LOG,
    &sigmoid::SIGMOID,
    &rsqrt::RSQRT,
    &expand::EXPAND,
    &expand::CONTRACT,
    &broadcast_param::BROADCAST_PARAM,
    &row_max::ROW_MAX,
    &row_max::IS_ARGMAX,
    &pick::PICK,
    &pick::ONE_HOT,
    &scale_trained::SCALE_TRAINED,
    &sinusoids::SINUSOIDS,
    &swap_halves::SWAP_HALVES,
];

/// The definition of version `version` of the op `name`; none for an op that the interface does not
/// know, which may be a backend's own.
pub fn definition(name: &str, version: u32) -> Option<&'static OpDefinition> {
    let mut all = DEFINITIONS.iter().copied();
    all.find(|one| one.name == name && one.version == version)
}

/// How many inputs, params and outputs version 1 of an op has; none for an op that it does not
/// define.
#[deprecated(note = "ask `definition`, which has the operands by name")]
pub fn operands(op: &str) -> Option<[RangeInclusive<usize>; 3]> {
    Some(definition(op, 1)?.operands())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_op_stands_once_and_is_found() {
        let mut seen = BTreeSet::new();
        for one in DEFINITIONS {
            assert!(seen.insert((one.name, one.version)), "{}", one.name);
            let found = definition(one.name, one.version).expect("it is in the table");
            assert!(std::ptr::eq(found, *one), "{}", one.name);
            let names = one.inputs.iter().chain(one.scalars);
            let outputs = one.outputs.iter().map(|output| &output.name);
            let params = one.params.iter().map(|param| &param.name);
            let attributes = one.attributes.iter().map(|attribute| &attribute.name);
            let all: Vec<_> = names
                .chain(outputs)
                .chain(params)
                .chain(attributes)
                .collect();
            let distinct: BTreeSet<_> = all.iter().collect();
            assert_eq!(all.len(), distinct.len(), "{}: {all:?}", one.name);
        }
        assert!(definition("linear", 2).is_none() && definition("conv2d", 1).is_none());
    }

    #[test]
    fn scalars_are_given_by_name() {
        let step = definition("dropout", 1).expect("it is in the table");
        let of = |name: &str| (name != "site").then_some(name.len() as f64);
        let error = step.scalars_by(of).expect_err("no site");
        assert!(error.message.contains("`site`"), "{error}");
        let all = step.scalars_by(|name| Some(name.len() as f64));
        assert_eq!(all, Ok(vec![8.0, 9.0, 4.0, 4.0]));
    }
}
