//! The kit of ops: a device -> a named check for each op, against one plain f64 loop an op.
//!
//! Every op runs forward and backward, in f32 and bf16, on odd and empty shapes, through the
//! device's traits alone: it need not share the host's memory. The oracle ([`oracle`]) is written
//! from the formulas and knows no kernel. A case that the device refuses as `UNSUPPORTED` is not
//! passed: the check says what is not offered.
//!
//! The same ops also run on random shapes and numbers, on several devices at once ([`trials`]).

mod adamw8bit;
mod case;
mod cases;
mod compare;
mod decoded;
mod dice;
mod draw;
pub mod elementwise;
mod launch;
mod numbers;
mod op_check;
pub mod oracle;
mod packed;
mod rounding;
mod stored;
mod tally;
#[cfg(test)]
mod tests;
mod trial;
pub mod updates;

use espalier_interface::format::{DeviceCode, Format};
use espalier_interface::{Device, WeightLayout};

use crate::checked::{Checked, Fault, ensure};
pub use decoded::decoded;
pub use draw::Draw;
use launch::Ran;
pub use op_check::OpCheck;
pub use rounding::nearest;
pub use tally::Tally;
pub use trial::{Answer, OpTrial, trials};

/// The checks of each kind of op.
const OPS: &[&[OpCheck]] = &[
    cases::embedding::OPS,
    cases::linear::OPS,
    cases::fused::OPS,
    cases::adapted::OPS,
    cases::norm::OPS,
    cases::norm_offset::OPS,
    cases::rope::OPS,
    cases::attention::OPS,
    cases::swiglu::OPS,
    cases::columns::OPS,
    cases::arithmetic::OPS,
    cases::param::OPS,
    cases::matmul::OPS,
    cases::random::OPS,
    cases::cross_entropy::OPS,
    cases::flat::OPS,
    elementwise::OPS,
    cases::expand::OPS,
    cases::indexed::OPS,
    cases::sinusoids::OPS,
    updates::OPS,
    adamw8bit::OPS,
];

/// The checks, one for each version of an op.
pub fn all() -> impl Iterator<Item = &'static OpCheck> {
    OPS.iter().copied().flatten()
}

/// The formats of all packed weights in the cases, each once, with the device code of those that
/// describe no decoding.
pub fn packed_formats() -> Vec<(Format, Option<DeviceCode>)> {
    let mut found = Vec::new();
    for case in all().flat_map(|op| op.all_cases(&Draw::KIT)) {
        for (index, param) in case.request.params.iter().enumerate() {
            let WeightLayout::Packed(format) = &param.layout else {
                continue;
            };
            let code = case.request.device_code_of(index).cloned();
            let made = (format.as_ref().clone(), code);
            if !found.contains(&made) {
                found.push(made);
            }
        }
    }
    found
}

/// Runs the cases of one op.
///
/// # Errors
/// The first case that fails; else, where the device lacks some of them, what it does not offer.
pub fn check(device: &dyn Device, op: &OpCheck) -> Checked {
    check_cases(device, op, "")
}

/// Runs the cases of one op whose names begin with `begin`, such as a dtype.
///
/// # Errors
/// As [`check`], and where there is no such case.
pub fn check_cases(device: &dyn Device, op: &OpCheck, begin: &str) -> Checked {
    let mut cases = op.all_cases(&Draw::KIT);
    cases.retain(|case| case.name.starts_with(begin));
    ensure(!cases.is_empty(), || {
        format!(
            "expected cases of {} that begin with `{begin}`, found none",
            op.name
        )
    })?;
    // All before the first launch, at which a device may compile what it has prepared.
    let prepared = cases.iter().map(|case| {
        let kernel = launch::prepare(device, case);
        kernel.map_err(|fault| fault.at(&case.name))
    });
    let kernels: Vec<launch::Kernel> = prepared.collect::<Checked<_>>()?;
    let mut lacking = Vec::new();
    for (case, kernel) in cases.iter().zip(kernels) {
        let ran = launch::run(device, case, kernel).map_err(|fault| fault.at(&case.name))?;
        let (outputs, same) = match ran {
            Ran::Outputs { first, same } => (first, same),
            Ran::NotOffered(why) => {
                lacking.push(format!("{}: {why}", case.name));
                continue;
            }
        };
        for (index, bytes) in outputs.iter().enumerate() {
            let operand = &case.request.outputs[index];
            let expected = &case.outputs[index].expected;
            let checked = compare::check(index, operand, bytes, expected);
            checked.map_err(|fault| fault.at(&case.name))?;
        }
        same.map_err(|fault| fault.at(&case.name))?;
    }
    match (lacking.len(), lacking.first()) {
        (0, _) | (_, None) => Ok(()),
        (count, Some(first)) if count == cases.len() => {
            Err(Fault::Skipped(format!("not offered: {first}")))
        }
        (count, Some(first)) => Err(Fault::Skipped(format!(
            "{} of {} cases pass, {count} are not offered, the first: {first}",
            cases.len() - count,
            cases.len()
        ))),
    }
}
