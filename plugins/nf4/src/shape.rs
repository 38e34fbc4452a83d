//! A weight's shape -> its number of elements.

use espalier_interface::{PluginError, Result};

/// Elements of a weight `[N, M]`.
///
/// # Errors
/// `INVALID` for a shape without elements or with more than 64 bits can count.
pub fn count_elements(shape: [u64; 2]) -> Result<u64> {
    match shape[0].checked_mul(shape[1]) {
        Some(count) if count > 0 => Ok(count),
        _ => Err(PluginError::invalid(format!(
            "a weight of shape {shape:?} cannot be quantized, expected at least one element and \
             fewer than 2^64"
        ))),
    }
}
