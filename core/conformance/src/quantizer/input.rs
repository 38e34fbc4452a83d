//! The checks of unusual weights: not finite, all zero, constant, tiny, huge.

use espalier_interface::Quantizer;

use super::case::{Case, each, encode};
use super::decoding::finite;
use crate::checked::{Checked, Fault, refusal};
use crate::{Subject, Suite, weights};

/// Largest value to which an all-zero weight may decode: the smallest scale that encoders divide
/// by.
const ZERO: f32 = 1e-6;

pub fn check(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    suite.check(
        "input.not_finite",
        "a weight with a NaN or an infinity is refused, at any position",
        || each(subject, not_finite),
    );
    suite.check(
        "input.zeros",
        "zeros decode to zero, alone and beside blocks that are not",
        || each(subject, zeros),
    );
    suite.check(
        "input.sizes",
        "constant, tiny, denormal and large weights decode to finite numbers",
        || each(subject, sizes),
    );
    suite.check(
        "input.huge",
        "weights near the largest f32 are rejected with a message or decode to finite numbers",
        || each(subject, huge),
    );
}

fn not_finite(case: &Case<'_>) -> Checked {
    let count = case.elements();
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, count / 2, count - 1] {
            let mut weight = weights::ordinary(case.shape, 8);
            weight[at] = value;
            let place = super::case::place(at, case.shape[1]);
            match encode(case.quantizer, &case.format, &weight, 0)? {
                Ok(_) => {
                    let message = format!("{value} at {place} was encoded, expected NOT_FINITE");
                    return Err(Fault::Failed(message));
                }
                Err(error) => refusal(&error)?,
            }
        }
    }
    Ok(())
}

fn zeros(case: &Case<'_>) -> Checked {
    let cols = case.shape[1];
    let (_, decoded) = case.round_trip(&vec![0.0; case.elements()])?;
    finite(&decoded, cols)?;
    if let Some(at) = decoded.iter().position(|x| x.abs() > ZERO) {
        return Err(Fault::Failed(format!(
            "of a weight of zeros, element {} decodes to {:e}",
            super::case::place(at, cols),
            decoded[at]
        )));
    }
    let mut mixed = weights::ordinary(case.shape, 9);
    let half = mixed.len() / 2;
    mixed[half..].fill(0.0);
    let (_, decoded) = case.round_trip(&mixed)?;
    finite(&decoded, cols).map_err(|fault| fault.at("where the second half is zero"))
}

fn sizes(case: &Case<'_>) -> Checked {
    let ordinary = weights::ordinary(case.shape, 10);
    let scaled = |factor: f32| ordinary.iter().map(|x| x * factor).collect();
    let filled = |value: f32| vec![value; case.elements()];
    let cases: [(&str, Vec<f32>); 6] = [
        ("all 0.5", filled(0.5)),
        ("all -0.5", filled(-0.5)),
        ("all 1e-42, a denormal", filled(1e-42)),
        ("weights of size 1e-30", scaled(1e-29)),
        ("denormal weights", scaled(1e-40)),
        ("weights of size 1e4", scaled(1e5)),
    ];
    for (what, weight) in cases {
        let trip = case.round_trip(&weight);
        let done = trip.and_then(|(_, decoded)| finite(&decoded, case.shape[1]));
        done.map_err(|fault| fault.at(what))?;
    }
    Ok(())
}

fn huge(case: &Case<'_>) -> Checked {
    for size in [1e30, 1e37, 3e38] {
        let mut weight = weights::gaussian(case.shape, 1.0, 11);
        let largest = weight.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        weight.iter_mut().for_each(|x| *x = *x / largest * size);
        match encode(case.quantizer, &case.format, &weight, 0)? {
            Err(error) => refusal(&error)?,
            Ok(encoded) => {
                let decoded = case.decode(&encoded.segments())?;
                let done = finite(&decoded, case.shape[1]);
                done.map_err(|fault| fault.at(&format!("weights up to {size:e}")))?;
            }
        }
    }
    Ok(())
}
