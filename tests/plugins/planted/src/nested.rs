//! Scales in 8 bits: codes of a table, a scale for each 256 of them, and an offset.

use espalier_interface::{PluginError, Result};

use crate::bug::Bug;
use crate::quantizer::Planted;

/// Blocks that share a nested scale.
pub const SIZE: u64 = 256;

/// The value of each code, in units of the nested scale.
pub fn table() -> Vec<f32> {
    (0..256).map(|code| code as f32 / 127.5 - 1.0).collect()
}

/// Writes the scales.
pub fn encode(
    planted: &Planted,
    scales: &[f32],
    codes: &mut [u8],
    nested: &mut [u8],
    offset: &mut [u8],
) -> Result<()> {
    let mean = sum(planted, scales) / scales.len() as f32;
    if mean.is_infinite() {
        return Err(PluginError::invalid(
            "the mean of the scales overflows f32: set double_quant = false",
        ));
    }
    offset.copy_from_slice(&mean.to_le_bytes());
    let runs = scales.chunks(SIZE as usize);
    let targets = codes
        .chunks_mut(SIZE as usize)
        .zip(nested.chunks_exact_mut(4));
    for (run, (codes, nested)) in runs.zip(targets) {
        let most = run
            .iter()
            .fold(0.0f32, |most, x| most.max((x - mean).abs()));
        let unit = match planted.bug {
            Some(Bug::NestedNotApplied) => 1.0,
            _ if most > 0.0 => most,
            _ => 1.0,
        };
        for (scale, code) in run.iter().zip(codes) {
            *code = ((scale - mean) / unit * 127.5 + 127.5).round() as u8;
        }
        nested.copy_from_slice(&most.to_le_bytes());
    }
    Ok(())
}

fn sum(planted: &Planted, scales: &[f32]) -> f32 {
    let parts = match planted.bug {
        Some(Bug::CountsThreads) => planted.services.threads(),
        _ => 1,
    };
    let part = scales.len().div_ceil(parts);
    scales.chunks(part).map(|run| run.iter().sum::<f32>()).sum()
}
