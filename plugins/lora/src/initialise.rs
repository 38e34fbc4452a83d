//! A site's weight -> the magnitudes with which its DoRA begins, or the weight that is trained
//! whole.

use espalier_interface::{InitialiseCall, PluginError, Result};

use crate::fragment::MAGNITUDE;

/// Magnitudes begin as the norms of the weight's rows, since the update begins as zero. A weight
/// that is trained whole begins as it is.
///
/// # Errors
/// `INVALID` for a param of another length.
pub fn initialise(call: InitialiseCall<'_>) -> Result<()> {
    let [rows, cols] = call.site.shape.map(|extent| extent as usize);
    for param in call.params {
        let is_magnitude = param.name.ends_with(MAGNITUDE);
        let expected = if is_magnitude { rows } else { rows * cols };
        if param.values.len() != expected {
            let message = format!("`{}` has not the {expected} values of its site", param.name);
            return Err(PluginError::invalid(message));
        }
        if !is_magnitude {
            param.values.copy_from_slice(call.weight);
            continue;
        }
        for (norm, row) in param.values.iter_mut().zip(call.weight.chunks_exact(cols)) {
            let sum: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            *norm = sum.sqrt() as f32;
        }
    }
    Ok(())
}
