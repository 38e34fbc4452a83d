//! Scaled weights -> codes of bitsandbytes' signed dynamic 8-bit map.

use espalier_interface::dynamic_map::{SIGNED, step};

/// Weights encoded at a time: loops over them are long enough to become vector instructions.
const GROUP: usize = 256;

/// Writes the code of `weight * inverse` for each weight; `weight` and `codes` are equally long.
///
/// # Units
/// `inverse` is 1 / absmax of the block.
#[inline(always)]
pub fn nearest(weight: &[f32], inverse: f32, codes: &mut [u8]) {
    for (weight, codes) in weight.chunks(GROUP).zip(codes.chunks_mut(GROUP)) {
        let mut steps = [0; GROUP];
        for (step_of, &w) in steps.iter_mut().zip(weight) {
            *step_of = step(w * inverse);
        }
        for (code, &step) in codes.iter_mut().zip(&steps) {
            *code = SIGNED.code(step);
        }
    }
}
