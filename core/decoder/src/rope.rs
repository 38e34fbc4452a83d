//! Rotary parameters of a `config.json` -> the angular frequency of each pair of channels.
//!
//! `inv_freq[i] = theta^(-2 i / K)`, then scaled: `linear` divides all by a factor; `llama3`
//! divides those of long wavelengths, keeps those of short ones and interpolates between. All in
//! f32, operation by operation as transformers does it (`modeling_rope_utils.py`).

use std::f32::consts::PI;

use espalier_interface::{PluginError, Result};

use crate::fields::Fields;

/// The rotary embedding that a config describes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub theta: f64,
    /// How wavelengths are scaled.
    pub scaling: RopeScaling,
}

/// How wavelengths are scaled for longer sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not scaled.
    Default,
    /// All are scaled by `factor`.
    Linear {
        /// Factor of every wavelength.
        factor: f64,
    },
    /// Long wavelengths are scaled by `factor`, short ones are not, as in Llama 3.1.
    Llama3 {
        /// Factor of long wavelengths.
        factor: f64,
        /// Wavelengths above `original_max_positions / low_freq_factor` are long.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_positions / high_freq_factor` are short.
        high_freq_factor: f64,
        /// Sequence length of pretraining, in tokens.
        original_max_positions: u64,
    },
}

impl Rope {
    /// Reads `rope_scaling` and `rope_theta` (transformers 4) or `rope_parameters` (transformers
    /// 5).
    ///
    /// # Errors
    /// `UNSUPPORTED` for any other rope type, `INVALID` for a value that is missing or impossible.
    pub fn read(config: &Fields<'_>, max_positions: u64) -> Result<Self> {
        let mut theta = config.positive("rope_theta", Some(10_000.0))?;
        refuse_partial(config)?;
        let is_set = |key: &&str| {
            let object = config.get(key).and_then(|value| value.as_object());
            config.get(key).is_some() && object.is_none_or(|object| !object.is_empty())
        };
        // transformers uses `rope_scaling` where a file has both.
        let Some((key, path)) = [
            ("rope_scaling", "rope_scaling."),
            ("rope_parameters", "rope_parameters."),
        ]
        .into_iter()
        .find(|(key, _)| is_set(key)) else {
            return Ok(Rope {
                theta,
                scaling: RopeScaling::Default,
            });
        };
        let found = config.get(key).expect("it is set");
        let fields = Fields::new(found, path)?;
        refuse_partial(&fields)?;
        if let Some((inner, _)) = fields.entries().find(|(_, value)| value.is_object()) {
            return Err(PluginError::unsupported(format!(
                "config.json: `{key}.{inner}` gives a kind of layer its own rotary embedding, \
                 these families have one for all layers"
            )));
        }
        theta = fields.positive("rope_theta", Some(theta))?;
        let older = fields.text("type", "default")?;
        let scaling = match fields.text("rope_type", older)? {
            "default" => RopeScaling::Default,
            "linear" => RopeScaling::Linear {
                factor: fields.positive("factor", None)?,
            },
            "llama3" => llama3(config, &fields, max_positions)?,
            other => {
                return Err(PluginError::unsupported(format!(
                    "config.json: rope type `{other}` in `{key}`; this family has `default`, \
                     `linear` and `llama3`"
                )));
            }
        };
        Ok(Rope { theta, scaling })
    }

    /// Checks that the angular frequencies of heads of width `head_dim` are finite in f32.
    ///
    /// # Errors
    /// `INVALID` where one is not, with the values that cause it.
    pub(crate) fn check(&self, head_dim: u64) -> Result<()> {
        let steps = self.inv_freq(head_dim);
        match steps.iter().position(|step| !step.is_finite()) {
            None => Ok(()),
            Some(pair) => Err(PluginError::invalid(format!(
                "config.json: `rope_theta` {:e}{}: expected angular steps that f32 holds, found {} for pair {pair} of \
                 heads {head_dim} wide",
                self.theta,
                match self.scaling {
                    RopeScaling::Default => "",
                    RopeScaling::Linear { .. } | RopeScaling::Llama3 { .. } => " with its scaling",
                },
                steps[pair]
            ))),
        }
    }

    /// The angular frequency of each pair of channels, `[K / 2]` f32, in radians per position.
    ///
    /// # Source
    /// transformers 5, `modeling_rope_utils.py`. There, a scalar over a tensor is computed as the
    /// reciprocal times the scalar.
    pub fn inv_freq(&self, head_dim: u64) -> Vec<f32> {
        let plain = (0..head_dim / 2).map(|pair| {
            let exponent = (2 * pair) as f32 / head_dim as f32;
            // The power is computed in f64 and rounded once, so it is the same on every machine.
            1.0 / f64::from(self.theta as f32).powf(f64::from(exponent)) as f32
        });
        match self.scaling {
            RopeScaling::Default => plain.collect(),
            RopeScaling::Linear { factor } => plain.map(|step| step / factor as f32).collect(),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_positions,
            } => {
                let length = original_max_positions as f64;
                let longest = (length / low_freq_factor) as f32;
                let shortest = (length / high_freq_factor) as f32;
                let span = (high_freq_factor - low_freq_factor) as f32;
                let factor = factor as f32;
                let scaled = |step: f32| {
                    let wavelength = step.recip() * (2.0 * PI);
                    if wavelength > longest {
                        step / factor
                    } else if wavelength < shortest {
                        step
                    } else {
                        let turns = wavelength.recip() * length as f32;
                        let smooth = (turns - low_freq_factor as f32) / span;
                        (1.0 - smooth) * step / factor + smooth * step
                    }
                };
                plain.map(scaled).collect()
            }
        }
    }
}

fn llama3(config: &Fields<'_>, fields: &Fields<'_>, max_positions: u64) -> Result<RopeScaling> {
    let key = "original_max_position_embeddings";
    let within = fields.count(key, 1..=1 << 40, Some(max_positions))?;
    let low_freq_factor = fields.positive("low_freq_factor", None)?;
    let high_freq_factor = fields.positive("high_freq_factor", None)?;
    if high_freq_factor <= low_freq_factor {
        return Err(PluginError::invalid(format!(
            "config.json: `high_freq_factor` {high_freq_factor} must be above `low_freq_factor` \
             {low_freq_factor}"
        )));
    }
    Ok(RopeScaling::Llama3 {
        factor: fields.positive("factor", None)?,
        low_freq_factor,
        high_freq_factor,
        // It takes precedence over the rope's own fields, as in transformers.
        original_max_positions: config.count(key, 1..=1 << 40, Some(within))?,
    })
}

fn refuse_partial(fields: &Fields<'_>) -> Result<()> {
    match fields.get("partial_rotary_factor") {
        Some(found) if found.as_f64() != Some(1.0) => Err(PluginError::unsupported(format!(
            "config.json: `partial_rotary_factor` is {found}, these families turn all channels"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
