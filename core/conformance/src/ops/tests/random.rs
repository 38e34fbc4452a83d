//! Random cases fit the ops' definitions, reach what they should, and have bounds that find what is
//! beyond them.

use std::collections::BTreeSet;

use espalier_interface::format::{Decoding, ValueSource};
use espalier_interface::graph::Dim;
use espalier_interface::{DType, WeightLayout};

use crate::ops::case::{Near, OpCase};
use crate::ops::numbers::{encode, rounded};
use crate::ops::trial::cases;
use crate::ops::{OpCheck, all, compare};

fn check_of(name: &str) -> &'static OpCheck {
    all().find(|op| op.name == name).expect("a check")
}

/// What is found of the random cases of an op.
fn found<T: Ord>(op: &str, seeds: u64, what: impl Fn(&OpCase) -> T) -> BTreeSet<T> {
    let op = check_of(op);
    let all = (0..seeds).flat_map(|seed| cases(op, seed));
    all.map(|case| what(&case)).collect()
}

#[test]
fn each_random_case_fits_its_op_s_definition() {
    for op in all() {
        for seed in 100..106 {
            let cases = cases(op, seed);
            assert!(!cases.is_empty(), "{}, seed {seed}", op.name);
            for case in cases {
                let request = &case.request;
                assert_eq!(request.validate(), Ok(()), "{}: {}", op.name, case.name);
                assert!(
                    case.tokens <= request.max_tokens,
                    "{}: {}",
                    op.name,
                    case.name
                );
                assert!(op.name.starts_with(&format!("op.{}", request.op)));
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_cases_and_another_gives_others() {
    let of = |seed| {
        let cases = cases(check_of("op.linear"), seed);
        format!(
            "{:?}",
            cases
                .iter()
                .map(|case| (&case.name, &case.inputs))
                .collect::<Vec<_>>()
        )
    };
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}

#[test]
fn rows_of_random_cases_are_none_one_and_many_in_both_dtypes() {
    let kinds = found("op.mul", 200, |case| {
        (
            case.request.inputs[0].dtype == DType::BF16,
            case.tokens.min(2),
        )
    });
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    let widths = found("op.mul", 200, |case| {
        match case.request.inputs[0].shape[1] {
            Dim::Fixed(width) => [width == 1, width > 4096, width.is_power_of_two()],
            _ => [false; 3],
        }
    });
    assert!(widths.iter().any(|[one, ..]| *one), "{widths:?}");
    assert!(widths.iter().any(|[_, wide, _]| *wide), "{widths:?}");
    assert!(widths.iter().any(|[.., power]| !power), "{widths:?}");
}

#[test]
fn random_weights_are_dense_and_packed_with_all_numbers_of_bits() {
    let layouts = found("op.param_value", 500, |case| {
        match &case.request.params[0].layout {
            WeightLayout::Dense(dtype) => dtype.name().to_owned(),
            WeightLayout::Packed(format) => match &format.decoding {
                Decoding::Callback => "callback".to_owned(),
                Decoding::Codebook { codes, .. } => format!("codebook of {}", codes.bits),
                Decoding::Affine { codes, .. } => format!("affine of {}", codes.bits),
                Decoding::Steps {
                    source: ValueSource::SharedVectors { .. },
                    ..
                } => "codebooks of the description".to_owned(),
                Decoding::Steps { source, steps } => match source.codes()[0].bits {
                    9.. => "wide codes".to_owned(),
                    _ if steps.is_empty() => "a source alone".to_owned(),
                    bits => format!("steps of {bits}"),
                },
            },
        }
    });
    // Three dtypes, a decoder function, 1 to 8 bits of both kinds, and with steps; a source of up
    // to 8 bits without a step, codes of more, and codebooks of the description.
    assert_eq!(layouts.len(), 3 + 1 + 24 + 3, "{layouts:?}");
}

#[test]
fn random_attentions_have_windows_caps_shared_heads_and_empty_sequences() {
    let masks = found("op.attention", 60, |case| {
        let attributes = &case.request.attributes;
        let count = |name: &str| attributes.count(name).expect("a count");
        [
            attributes.count("window").is_ok(),
            attributes.optional_number("softcap").is_some(),
            attributes.flag("causal"),
            count("heads") > count("kv_heads"),
            {
                let boundaries = case.inputs[3].as_chunks::<4>().0;
                boundaries.windows(2).any(|pair| pair[0] == pair[1])
            },
        ]
    });
    for at in 0..5 {
        let values: BTreeSet<bool> = masks.iter().map(|mask| mask[at]).collect();
        assert_eq!(values.len(), 2, "attribute {at}: {masks:?}");
    }
}

/// An output of one element.
fn near(value: f64, bound: f64) -> Near {
    Near::new(vec![value], vec![bound])
}

#[test]
fn devices_may_differ_by_both_bounds_and_no_more() {
    let (expected, bytes) = (near(1.0, 0.01), |x: f64| {
        encode(DType::F32, &rounded(DType::F32, &[x]))
    });
    let apart = |a: f64, b: f64| compare::apart(0, DType::F32, [&bytes(a), &bytes(b)], &expected);
    assert_eq!(apart(1.0, 1.0), Ok(0.0));
    let share = apart(0.9925, 1.0075).expect("both are within their bounds");
    assert!((share - 0.75).abs() < 1e-3, "{share}");
    assert!(apart(0.98, 1.01).is_err());
    assert!(apart(1.0, f64::NAN).is_err());
    assert_eq!(apart(f64::NAN, f64::NAN), Ok(0.0));
    let exact = |a: f64| compare::apart(0, DType::F32, [&bytes(a), &bytes(1.0)], &near(1.0, 0.0));
    assert_eq!(exact(1.0), Ok(0.0));
    assert!(exact(1.0 + 2e-7).is_err());
}

#[test]
fn a_result_is_infinite_only_where_its_bound_reaches_beyond_the_dtype() {
    let most = f64::from(f32::MAX);
    let met = |found: f64, value: f64| {
        let case = OpCase::new("exp", 1, String::new());
        let case = case.output(
            &[Dim::Fixed(1)],
            DType::F32,
            near(value, 1e-6 * value.abs()),
        );
        let bytes = (found as f32).to_le_bytes();
        compare::check(
            0,
            &case.request.outputs[0],
            &bytes,
            &near(value, 1e-6 * value.abs()),
        )
    };
    assert_eq!(met(f64::INFINITY, 2.0 * most), Ok(()));
    assert_eq!(met(f64::INFINITY, most * (1.0 - 1e-7)), Ok(()));
    assert_eq!(met(most, most * (1.0 + 5e-7)), Ok(()));
    assert!(met(f64::INFINITY, most * (1.0 - 1e-5)).is_err());
    assert!(met(f64::NEG_INFINITY, 2.0 * most).is_err());
    assert!(met(most, 2.0 * most).is_err());
}
