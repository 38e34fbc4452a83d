//! The rope type `longrope`: a factor for each pair of channels, in short and in long sequences.
//!
//! `inv_freq[i] = 1 / (factor[i] theta^(2 i / K))`, with the factors of `short_factor` in sequences
//! of at most `original_max_position_embeddings` tokens, else those of `long_factor`. Cosines and
//! sines are multiplied by `attention_factor` in both.
//!
//! # Source
//! transformers 5, `_compute_longrope_parameters` and `longrope_frequency_update`.

use espalier_interface::{PluginError, Result};

use crate::dialect::Dialect;
use crate::fields::Fields;

/// The keys that only this type has.
pub(super) const OWN_KEYS: [&str; 3] = ["attention_factor", "long_factor", "short_factor"];

/// The factors of wavelengths by the length of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// Factor of each wavelength in short sequences, `[K / 2]`.
    pub short_factor: Vec<f64>,
    /// Factor of each wavelength in long sequences, `[K / 2]`.
    pub long_factor: Vec<f64>,
    /// Most tokens of a short sequence.
    pub original_max_positions: u64,
    /// What multiplies cosines and sines.
    pub attention_factor: f64,
}

impl LongRope {
    /// Reads the values of `fields`, which stand at `key` of `config`.
    ///
    /// # Errors
    /// `INVALID` for a value that is missing or impossible.
    pub(super) fn read(
        config: &Fields<'_>,
        fields: &Fields<'_>,
        key: &str,
        dialect: &Dialect,
        max_positions: u64,
    ) -> Result<Self> {
        let short_factor = fields.positive_list("short_factor")?;
        let long_factor = fields.positive_list("long_factor")?;
        let original = original(config, fields, key, dialect, max_positions)?;
        let ratio = max_positions as f64 / original as f64;
        let factor = fields.positive("factor", Some(ratio))?;
        let usual = if factor <= 1.0 {
            1.0
        } else {
            (1.0 + factor.ln() / (original as f64).ln()).sqrt()
        };
        Ok(LongRope {
            short_factor,
            long_factor,
            original_max_positions: original,
            attention_factor: fields.positive("attention_factor", Some(usual))?,
        })
    }

    /// Checks that there is a factor for each of the `pairs` of the `turned` channels.
    ///
    /// # Errors
    /// `INVALID`, naming the list, its numbers and those expected.
    pub(super) fn check_lengths(&self, pairs: u64, turned: u64) -> Result<()> {
        let lists = [
            ("short_factor", &self.short_factor),
            ("long_factor", &self.long_factor),
        ];
        match lists.iter().find(|(_, list)| list.len() as u64 != pairs) {
            None => Ok(()),
            Some((name, list)) => Err(PluginError::invalid(format!(
                "config.json: `{name}` has {} numbers, expected {pairs}: one for each pair of the \
                 {turned} channels of a head that are turned",
                list.len()
            ))),
        }
    }
}

/// The angular frequencies of wavelengths over 2 pi that are multiplied by factors, in f32.
pub(super) fn divided(powers: impl Iterator<Item = f32>, factors: &[f64]) -> Vec<f32> {
    let each = powers.zip(factors);
    each.map(|(power, &factor)| 1.0 / (factor as f32 * power))
        .collect()
}

/// Most tokens of a short sequence. The key beside the rotary embedding takes precedence over its
/// own, as in transformers, but where kinds of layers have their own embeddings.
fn original(
    config: &Fields<'_>,
    fields: &Fields<'_>,
    path: &str,
    dialect: &Dialect,
    max_positions: u64,
) -> Result<u64> {
    let key = "original_max_position_embeddings";
    let range = 2..=1 << 40;
    let own = fields.count(key, range.clone(), Some(max_positions))?;
    if path.contains('.') {
        return Ok(own);
    }
    let usual = dialect.defaults.original_positions;
    match (usual, fields.get(key), config.get(key)) {
        (Some(usual), Some(_), None) if own != usual => Err(PluginError::invalid(format!(
            "config.json: `{path}.{key}` is {own}, and this family reads the `{key}` beside \
             `{path}`, which is missing and then {usual}; write it there, too"
        ))),
        _ => config.count(key, range, Some(usual.unwrap_or(own))),
    }
}

#[cfg(test)]
mod tests;
