//! Names of graph ops -> how many operands each has.

use std::ops::RangeInclusive;

/// How many inputs, params and outputs a graph op has; none for an op that version 1 does not
/// define.
pub fn operands(op: &str) -> Option<[RangeInclusive<usize>; 3]> {
    let (inputs, params, outputs) = match op {
        "embedding" | "rms_norm" | "scale_channels" => (1, 1..=1, 1),
        "linear" => (1, 1..=2, 1),
        "rope" | "swiglu" | "add" | "mul" => (2, 0..=0, 1),
        "attention" => (4, 0..=0, 2),
        "scale" | "base" => (1, 0..=0, 1),
        "dropout" => (3, 0..=0, 1),
        "cross_entropy" => (2, 0..=0, 3),
        _ => return None,
    };
    Some([inputs..=inputs, params, outputs..=outputs])
}
