//! `rope` and its gradient from tables of cosines and sines and an exchange of halves.
//!
//! With the halves `x`, `x'` of a head, `c = s cos a` and `d = s sin a`: `y = x c - x' d`, `y' = x'
//! c + x d`. So `y = x C + swap(x) S` with `C = [c, c, 1..]` and `S = [-d, d, 0..]`; the gradient
//! has `S` of the other sign.

use espalier_interface::Result;
use espalier_interface::graph::{Attributes, ValueId};
use serde_json::json;

use super::parts::{Parts, Whole, rows};

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    rotate(parts, whole, 1.0)
}

pub(super) fn backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    rotate(parts, whole, -1.0)
}

/// The rotations of two values by the same angles, each by `op`.
pub(super) fn apart(parts: &mut Parts<'_>, whole: &Whole<'_>, op: &'static str) -> Result<()> {
    let positions = whole.inputs[2];
    for (&x, &target) in whole.inputs[..2].iter().zip(whole.outputs) {
        parts.emit(op, &[x, positions], target, whole.attributes.clone());
    }
    Ok(())
}

/// The rotation by `direction` times the angles.
fn rotate(parts: &mut Parts<'_>, whole: &Whole<'_>, direction: f64) -> Result<()> {
    let x = parts.wide(whole.inputs[0]);
    let (positions, columns) = (whole.inputs[1], parts.columns(x));
    let head_dim = whole.attributes.count("head_dim")?;
    let scaling = whole.attributes.number("scaling")?;
    let inv_freq = whole.attributes.numbers("inv_freq")?;
    let half = inv_freq.len();
    let rest = vec![0.0; head_dim.saturating_sub(2 * half)];
    let frequencies = [inv_freq.clone(), inv_freq, rest].concat();
    // The columns after the halves are copied.
    let behind = |value: f64| vec![value; head_dim.saturating_sub(2 * half)];
    let cosines = [vec![scaling; 2 * half], behind(1.0)].concat();
    let sine = direction * scaling;
    let sines = [vec![-sine; half], vec![sine; half], behind(0.0)].concat();
    let mut table = |function: &str, amplitude: Vec<f64>| -> ValueId {
        let attributes = Attributes::new()
            .with("inv_freq", json!(frequencies))
            .with("amplitude", json!(amplitude))
            .with("function", function);
        let shape = rows(head_dim as u64);
        let table = parts.made("sinusoids", &[positions], shape, attributes);
        parts.tiled(table, columns)
    };
    let (cosines, sines) = (table("cos", cosines), table("sin", sines));
    if half == 0 {
        parts.finish("mul", &[x, cosines], whole.outputs[0], Attributes::new());
        return Ok(());
    }
    let swap = Attributes::new()
        .with("head_dim", head_dim)
        .with("half", half);
    let swapped = parts.map("swap_halves", &[x], swap);
    let (kept, turned) = (parts.mul(x, cosines), parts.mul(swapped, sines));
    let sum = Attributes::new().with("alpha", 1.0);
    parts.finish("add", &[kept, turned], whole.outputs[0], sum);
    Ok(())
}
