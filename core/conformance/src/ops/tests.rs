//! The cases themselves: each op of the interface has them, their bounds are narrow, and what is
//! just beyond a bound is found.

mod random;

use std::collections::BTreeSet;

use espalier_interface::DType;
use espalier_interface::graph::Dim;
use espalier_interface::op::DEFINITIONS;

use super::case::OpCase;
use super::numbers::{decode, encode, rounded};
use super::rounding::{LEAST, ulp};
use super::{KitCases, all, compare};
use crate::largest;

/// The name of the check of a version of an op.
fn check_of(op: &str, version: u32) -> String {
    match version {
        1 => format!("op.{op}"),
        version => format!("op.{op}.{version}"),
    }
}

/// Calls `body` with every case.
fn each(mut body: impl FnMut(&str, &OpCase)) {
    for op in all() {
        for case in &KitCases::kept(op).cases {
            body(op.name, case);
        }
    }
}

#[test]
fn each_op_of_the_interface_has_a_check() {
    // `base` stands in an adapter's fragment and is no kernel.
    let named = DEFINITIONS.iter().filter(|op| op.name != "base");
    let named = named.map(|op| check_of(op.name, op.version));
    let named: BTreeSet<String> = named.collect();
    let checked: BTreeSet<String> = all().map(|op| op.name.to_owned()).collect();
    assert!(named.len() > 25, "{named:?}");
    assert_eq!(checked, named);
}

#[test]
fn each_case_fits_its_op_s_definition() {
    each(|op, case| {
        assert_eq!(case.request.validate(), Ok(()), "{op}: {}", case.name);
        let scalars = case
            .request
            .call()
            .map(|call| call.definition.scalars.len());
        assert_eq!(scalars, Some(case.scalars.len()), "{op}: {}", case.name);
    });
}

#[test]
fn each_op_on_tokens_has_none_and_fewer_than_planned_in_f32_and_bf16() {
    let mut found = BTreeSet::new();
    each(|op, case| {
        let operands = || case.request.inputs.iter().chain(&case.request.outputs);
        if operands().any(|operand| operand.shape.contains(&Dim::Tokens)) {
            assert!(case.tokens < case.request.max_tokens, "{op}: {}", case.name);
            let halved = operands().any(|operand| operand.dtype == DType::BF16);
            found.insert((op.to_owned(), halved, case.tokens.min(2)));
        }
        let request = &case.request;
        assert_eq!(check_of(&request.op, request.version), op, "{}", case.name);
    });
    let on_tokens: BTreeSet<&String> = found.iter().map(|(op, ..)| op).collect();
    assert!(on_tokens.len() > 40, "{on_tokens:?}");
    for op in on_tokens {
        for halved in [false, true] {
            for tokens in 0..3 {
                let wanted = (op.clone(), halved, tokens);
                assert!(found.contains(&wanted), "{wanted:?}");
            }
        }
    }
}

#[test]
fn bounds_are_small_beside_the_results() {
    each(|op, case| {
        for (target, operand) in case.outputs.iter().zip(&case.request.outputs) {
            let expected = &target.expected;
            let finite = expected.values.iter().filter(|x| x.is_finite());
            let most = largest(finite.map(|x| x.abs()).chain([0.0]));
            // A token that attends to itself alone gives its logits no gradient.
            // Codes of a map that is fine near zero move far by a rounding there.
            if most < LEAST || operand.dtype == DType::U8 {
                continue;
            }
            let widest = largest(expected.bounds.iter().copied().chain([0.0]));
            assert!(
                widest <= most / 64.0 + LEAST,
                "{op}, {}: {widest:e} of {most:e} in {}",
                case.name,
                operand.dtype
            );
        }
    });
}

#[test]
fn what_is_just_beyond_a_bound_is_found() {
    each(|op, case| {
        for (index, operand) in case.request.outputs.iter().enumerate() {
            let (dtype, expected) = (operand.dtype, &case.outputs[index].expected);
            let check =
                |numbers: &[f64]| compare::check(index, operand, &encode(dtype, numbers), expected);
            let sound = rounded(dtype, &expected.values);
            assert_eq!(check(&sound), Ok(()), "{op}, {}", case.name);
            let Some(last) = sound.len().checked_sub(1) else {
                continue;
            };
            let (value, bound) = (expected.values[last], expected.bounds[last]);
            if !value.is_finite() {
                continue;
            }
            let step = match dtype {
                DType::F64 => value * f64::EPSILON,
                _ if dtype.is_float() => ulp(dtype, value.abs() + bound),
                _ => 1.0,
            };
            // A narrow result may be one step off, and rounding hides another half.
            let beyond = bound + 3.0 * step + 2.0 * LEAST;
            for wrong in [value + beyond, value - beyond, f64::NAN] {
                let is_no_byte = dtype == DType::U8 && !(0.0..=255.0).contains(&wrong);
                if is_no_byte || !dtype.is_float() && wrong.is_nan() {
                    continue;
                }
                let mut spoiled = sound.clone();
                spoiled[last] = decode(dtype, &encode(dtype, &rounded(dtype, &[wrong])))[0];
                let found = check(&spoiled);
                assert!(
                    found.is_err(),
                    "{op}, {}: {value:e} as {wrong:e}",
                    case.name
                );
            }
        }
    });
}
