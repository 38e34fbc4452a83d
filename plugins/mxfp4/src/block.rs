//! A weight's shape -> its blocks, which lie within rows.

use espalier_interface::{PluginError, Result};

/// Number of elements and of blocks of a weight `[N, M]` in blocks of `size`.
///
/// # Errors
/// `INVALID` for rows that are not whole blocks, for no elements, and for more than 64 bits count.
pub fn count(component: &str, shape: [u64; 2], size: u64) -> Result<(u64, u64)> {
    let elements = shape[0].checked_mul(shape[1]).filter(|&count| count > 0);
    let Some(elements) = elements else {
        return Err(PluginError::invalid(format!(
            "a weight of shape {shape:?} cannot be quantized, expected at least one element and \
             fewer than 2^64"
        )));
    };
    if !shape[1].is_multiple_of(size) {
        return Err(PluginError::invalid(format!(
            "{component} has blocks of {size} along rows, and a weight of shape {shape:?} has rows \
             of {}; choose another quantizer for it",
            shape[1]
        )));
    }
    Ok((elements, elements / size))
}

/// The largest magnitude; infinite or NaN if any number is.
#[inline(always)]
pub fn largest_magnitude(weight: &[f32]) -> f32 {
    // Without its sign, a float orders as its bits do: infinity above every number, NaN above that.
    let magnitudes = weight.iter().map(|w| (w.to_bits() & 0x7fff_ffff) as i32);
    f32::from_bits(magnitudes.fold(0, i32::max) as u32)
}
