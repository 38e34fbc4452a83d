//! A site's weight -> the magnitudes with which its DoRA begins.

use espalier_interface::{InitialiseCall, PluginError, Result};

/// The norms of the weight's rows: the update begins as zero.
///
/// # Errors
/// `INVALID` for a param that is not as long as the weight has rows.
pub fn magnitudes(call: InitialiseCall<'_>) -> Result<()> {
    let [rows, cols] = call.site.shape.map(|extent| extent as usize);
    for param in call.params {
        if param.values.len() != rows {
            let message = format!("`{}` is no magnitude of {rows} rows", param.name);
            return Err(PluginError::invalid(message));
        }
        for (norm, row) in param.values.iter_mut().zip(call.weight.chunks_exact(cols)) {
            let sum: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            *norm = sum.sqrt() as f32;
        }
    }
    Ok(())
}
