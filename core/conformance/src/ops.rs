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
mod kit_cases;
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

use crate::checked::Checked;
pub use decoded::decoded;
pub use draw::Draw;
pub use kit_cases::KitCases;
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
    cases::gelu::OPS,
    cases::layer_norm::OPS,
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
/// As [`KitCases::check`].
pub fn check(device: &dyn Device, op: &OpCheck) -> Checked {
    KitCases::of(op).check(device)
}

/// Runs the cases of one op whose names begin with `begin`, such as a dtype.
///
/// # Errors
/// As [`check`], and where there is no such case.
pub fn check_cases(device: &dyn Device, op: &OpCheck, begin: &str) -> Checked {
    KitCases::of(op).that_begin_with(begin)?.check(device)
}
