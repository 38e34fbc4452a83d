//! The backward rule of each op, one file a rule; functions of one number share one.

mod add;
mod attention;
mod cross_entropy;
mod div;
mod dropout;
mod elementwise;
mod embedding;
mod gelu;
mod layer_norm;
mod linear;
mod matmul;
mod mul;
mod param_value;
mod rms_norm;
mod rope;
mod scale;
mod scale_by;
mod scale_channels;
mod slice_columns;
mod swiglu;

use espalier_interface::Result;
use espalier_interface::graph::ValueId;

use super::{Tape, no_rule};
use crate::splice::Placed;

/// How an op passes gradients back.
enum Rule {
    /// From the gradient of its first output, where one has arrived.
    Chained(fn(&mut Tape<'_>, &Placed, ValueId)),
    /// From nothing: its output is what is minimised.
    Root(fn(&mut Tape<'_>, &Placed)),
    /// Not at all: its outputs count as constants.
    Constant,
}

/// The rules by op; those of functions of one number are in a table of their own.
const RULES: &[(&str, Rule)] = &[
    ("adapted_row_norms", Rule::Constant),
    ("add", Rule::Chained(add::add)),
    ("attention", Rule::Chained(attention::attention)),
    ("cross_entropy", Rule::Root(cross_entropy::cross_entropy)),
    ("div", Rule::Chained(div::div)),
    ("dropout", Rule::Chained(dropout::dropout)),
    ("embedding", Rule::Chained(embedding::embedding)),
    ("geglu_tanh", Rule::Chained(swiglu::geglu_tanh)),
    ("gelu", Rule::Chained(gelu::gelu)),
    ("layer_norm", Rule::Chained(layer_norm::layer_norm)),
    ("linear", Rule::Chained(linear::linear)),
    ("matmul", Rule::Chained(matmul::matmul)),
    ("mul", Rule::Chained(mul::mul)),
    ("param_value", Rule::Chained(param_value::param_value)),
    ("rms_norm", Rule::Chained(rms_norm::rms_norm)),
    ("rms_norm_offset", Rule::Chained(rms_norm::rms_norm_offset)),
    ("rope", Rule::Chained(rope::rope)),
    ("scale", Rule::Chained(scale::scale)),
    ("scale_by", Rule::Chained(scale_by::scale_by)),
    (
        "scale_channels",
        Rule::Chained(scale_channels::scale_channels),
    ),
    ("slice_columns", Rule::Chained(slice_columns::slice_columns)),
    ("swiglu", Rule::Chained(swiglu::swiglu)),
];

/// Whether the outputs of `op` count as constants: no gradient passes through it.
pub(super) fn is_constant(op: &str) -> bool {
    matches!(rule(op), Some(Rule::Constant))
}

fn rule(op: &str) -> Option<&'static Rule> {
    let mut all = RULES.iter().chain(elementwise::RULES);
    let found = all.find(|(name, _)| *name == op);
    found.map(|(_, rule)| rule)
}

/// Appends what carries the gradient of `placed`'s outputs to its inputs and params.
///
/// # Errors
/// `UNSUPPORTED` for an op without a rule.
pub(super) fn apply(tape: &mut Tape<'_>, placed: &Placed) -> Result<()> {
    let op = placed.node.op.as_str();
    match rule(op) {
        Some(Rule::Root(rule)) => rule(tape, placed),
        Some(Rule::Chained(rule)) => {
            if let Some(dy) = tape.arrived(placed) {
                rule(tape, placed, dy);
            }
        }
        Some(Rule::Constant) => {}
        None if tape.arrived(placed).is_some() => return Err(no_rule(op)),
        None => {}
    }
    Ok(())
}
