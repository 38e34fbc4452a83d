//! The kit of ops: a device -> a named check for each op, against one plain f64 loop an op.
//!
//! Every op runs forward and backward, in f32 and bf16, on odd and empty shapes, through the
//! device's traits alone: it need not share the host's memory. The oracle ([`oracle`]) is written
//! from the formulas and knows no kernel. A case that the device refuses as `UNSUPPORTED` is not
//! passed: the check says what is not offered.

mod case;
mod cases;
mod compare;
mod launch;
mod numbers;
mod op_check;
pub mod oracle;
mod packed;
mod rounding;
#[cfg(test)]
mod tests;
pub mod updates;

use espalier_interface::Device;

use crate::checked::{Checked, Fault};
use launch::Ran;
pub use op_check::OpCheck;
pub use rounding::nearest;

macro_rules! op_checks {
    ($($op:literal: $cases:path, $asserts:literal;)*) => {
        /// The checks of all ops but those of optimizers, one an op.
        const OPS: &[OpCheck] = &[$(OpCheck {
            name: concat!("op.", $op),
            asserts: $asserts,
            cases: $cases,
        }),*];
    };
}

op_checks! {
    "embedding": cases::embedding::embedding, "the token's row, or column, of a table";
    "embedding_backward": cases::embedding::embedding_backward, "dy is added to the token's row, or column";
    "linear": cases::linear::linear, "x W^T + bias over dense and packed weights";
    "linear_input_backward": cases::linear::linear_input_backward, "dy W over dense and packed weights";
    "linear_weight_backward": cases::linear::linear_weight_backward, "dy^T x is added to the gradient";
    "bias_backward": cases::linear::bias_backward, "the sum of dy is added to the gradient";
    "rms_norm": cases::norm::rms_norm, "round(x r) w, of rows and of heads";
    "rms_norm_backward": cases::norm::rms_norm_backward, "r (g - x r^2 mean(g x))";
    "rms_norm_weight_backward": cases::norm::rms_norm_weight_backward, "the sum of dy round(x r) is added to the gradient";
    "rope": cases::rope::rope, "halves of heads rotated by their position";
    "rope_backward": cases::rope::rope_backward, "the transposed rotation";
    "attention": cases::attention::attention, "out and lse of packed sequences, shared heads, windows, caps";
    "attention_backward": cases::attention::attention_backward, "dq, dk and dv from out and lse";
    "attention_cached": cases::attention::attention_cached, "k and v are appended to a cache and attended over";
    "swiglu": cases::swiglu::swiglu, "silu(gate) up";
    "swiglu_backward": cases::swiglu::swiglu_backward, "the gradients of gate and up";
    "add": cases::arithmetic::add, "a + alpha b";
    "mul": cases::arithmetic::mul, "a b";
    "div": cases::arithmetic::div, "a / b";
    "scale": cases::arithmetic::scale, "alpha a";
    "scale_channels": cases::arithmetic::scale_channels, "each channel times its own number";
    "scale_channels_weight_backward": cases::arithmetic::scale_channels_weight_backward, "the sum of dy x is added to the gradient";
    "scale_by": cases::arithmetic::scale_by, "each channel times its element of a value";
    "scale_by_backward": cases::arithmetic::scale_by_backward, "the sum of dy x";
    "param_value": cases::param::param_value, "the elements of a dense or packed param";
    "param_value_backward": cases::param::param_value_backward, "dy is added to the gradient";
    "adapted_row_norms": cases::param::adapted_row_norms, "the norms of the rows of weight + alpha b a";
    "matmul": cases::matmul::matmul, "the product of two values, each plain or transposed";
    "dropout": cases::random::dropout, "the elements that the numbers of seed, step and site leave, divided by 1 - p";
    "cross_entropy": cases::cross_entropy::cross_entropy, "loss, lse and correct, zeros where the label is -100";
    "cross_entropy_backward": cases::cross_entropy::cross_entropy_backward, "(e^(l - lse) - [label]) factor";
    "zero": cases::flat::zero, "zero bytes";
    "cast": cases::flat::cast, "the nearest number of another dtype, ties to even";
    "init": cases::random::init, "zeros, ones, uniform and normal numbers of a seed and a param";
    "sum_squares": cases::flat::sum_squares, "the sum of squares in f64";
    "first_not_finite": cases::flat::first_not_finite, "the index of the first NaN or infinity, or -1";
    "exp": cases::elementwise::exp, "e^x";
    "log": cases::elementwise::log, "ln x";
    "sigmoid": cases::elementwise::sigmoid, "1 / (1 + e^-x)";
    "rsqrt": cases::elementwise::rsqrt, "1 / sqrt(alpha x + beta)";
    "expand": cases::expand::expand, "each column repeated, then the row tiled";
    "contract": cases::expand::contract, "the sums of the columns that expand makes of each";
    "broadcast_param": cases::expand::broadcast_param, "the weight in each row";
    "row_max": cases::indexed::row_max, "the largest number of each row";
    "is_argmax": cases::indexed::is_argmax, "1 where the first largest number is at the index";
    "pick": cases::indexed::pick, "the number at each row's index, 0 where it is -100";
    "one_hot": cases::indexed::one_hot, "1 at each row's index";
    "scale_trained": cases::indexed::scale_trained, "factor x, 0 where the label is -100";
    "sinusoids": cases::sinusoids::sinusoids, "cosines and sines of multiples of positions";
    "swap_halves": cases::sinusoids::swap_halves, "the halves of each head exchanged";
}

/// The checks, one an op.
pub fn all() -> impl Iterator<Item = &'static OpCheck> {
    OPS.iter().chain(updates::OPS)
}

/// Runs the cases of one op.
///
/// # Errors
/// The first case that fails; else, where the device lacks some of them, what it does not offer.
pub fn check(device: &dyn Device, op: &OpCheck) -> Checked {
    let cases = (op.cases)();
    let mut lacking = Vec::new();
    for case in &cases {
        let ran = launch::run(device, case).map_err(|fault| fault.at(&case.name))?;
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
