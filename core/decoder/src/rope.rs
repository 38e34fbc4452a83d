//! Rotary parameters of a `config.json` -> the angular frequency of each pair of channels.
//!
//! `inv_freq[i] = theta^(-2 i / K)`, then scaled: `linear` divides all by a factor; `llama3`
//! divides those of long wavelengths, keeps those of short ones and interpolates between;
//! `longrope` divides each by its own factor, of one list in short sequences and of another one in
//! long ones. All in f32, operation by operation as transformers does it
//! (`modeling_rope_utils.py`).

mod longrope;

use std::f32::consts::PI;

use espalier_interface::{PluginError, Result};

use crate::dialect::Dialect;
use crate::fields::Fields;

pub use longrope::LongRope;

/// The rotary embedding that a config describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub theta: f64,
    /// How wavelengths are scaled.
    pub scaling: RopeScaling,
    /// The part of a head's channels that is turned, the first ones; at most 1.
    pub partial: f64,
}

/// The kinds of layers by which `rope_parameters` may be nested: without and with a window.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// The keys of one rotary embedding.
const OWN_KEYS: [&str; 8] = [
    "factor",
    "high_freq_factor",
    "low_freq_factor",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_theta",
    "rope_type",
    "type",
];

/// How wavelengths are scaled for longer sequences.
#[derive(Clone, Debug, PartialEq)]
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
    /// Each is scaled by a factor of its own, which differs between short and long sequences.
    Long(LongRope),
}

impl RopeScaling {
    /// Its name in a config.
    fn name(&self) -> &'static str {
        match self {
            RopeScaling::Default => "default",
            RopeScaling::Linear { .. } => "linear",
            RopeScaling::Llama3 { .. } => "llama3",
            RopeScaling::Long(_) => "longrope",
        }
    }
}

impl Rope {
    /// Reads `rope_scaling` and `rope_theta` (transformers 4) or `rope_parameters` (transformers
    /// 5): the rotary embedding of all layers, or of those without a window where the family's
    /// others have one of their own.
    ///
    /// # Errors
    /// `UNSUPPORTED` for any other rope type, `INVALID` for a value that is missing or impossible.
    pub fn read(config: &Fields<'_>, dialect: &Dialect, max_positions: u64) -> Result<Self> {
        let usual = dialect.defaults.rope_theta;
        let theta = config.positive("rope_theta", Some(usual))?;
        let partial = partial(config, dialect, 1.0)?;
        let plain = Rope {
            theta,
            scaling: RopeScaling::Default,
            partial,
        };
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
            return Ok(plain);
        };
        let found = config.get(key).expect("it is set");
        let fields = Fields::new(found, path)?;
        if !by_kind(&fields, key, dialect)? {
            return plain.with(config, &fields, key, dialect, max_positions);
        }
        let Some(of_kind) = fields.get(KINDS[0]) else {
            return Ok(plain);
        };
        let path = "rope_parameters.full_attention.";
        let fields = Fields::new(of_kind, path)?;
        plain.with(config, &fields, path, dialect, max_positions)
    }

    /// Reads the rotary embedding of layers with a window, where the family has another one for
    /// them: `rope_local_base_freq` (transformers 4) or `rope_parameters.sliding_attention`
    /// (transformers 5).
    ///
    /// # Errors
    /// As [`Rope::read`], and `UNSUPPORTED` for one that is scaled.
    pub fn read_local(config: &Fields<'_>, dialect: &Dialect) -> Result<Option<Self>> {
        let Some(usual) = dialect.gemma.and_then(|line| line.local_rope_theta) else {
            return Ok(None);
        };
        let plain = Rope {
            theta: config.positive("rope_local_base_freq", Some(usual))?,
            scaling: RopeScaling::Default,
            partial: 1.0,
        };
        let key = "rope_parameters";
        let of_kind = config.get(key).and_then(|value| value.get(KINDS[1]));
        let Some(of_kind) = of_kind.filter(|value| !value.is_null()) else {
            return Ok(Some(plain));
        };
        let path = "rope_parameters.sliding_attention.";
        let fields = Fields::new(of_kind, path)?;
        let rope = plain.with(config, &fields, path, dialect, 0)?;
        match &rope.scaling {
            RopeScaling::Default | RopeScaling::Linear { .. } => Ok(Some(rope)),
            other => Err(PluginError::unsupported(format!(
                "config.json: rope type `{}` in `{path}`; layers with a window have `default` and \
                 `linear`",
                other.name()
            ))),
        }
    }

    /// It with the theta and scaling of `fields`, which stand at `key` of `config`.
    fn with(
        self,
        config: &Fields<'_>,
        fields: &Fields<'_>,
        key: &str,
        dialect: &Dialect,
        max_positions: u64,
    ) -> Result<Self> {
        let key = key.trim_end_matches('.');
        let older = fields.text("type", "default")?;
        let scaling = match fields.text("rope_type", older)? {
            "default" => RopeScaling::Default,
            "linear" => RopeScaling::Linear {
                factor: fields.positive("factor", None)?,
            },
            "llama3" => llama3(config, fields, max_positions)?,
            name if name == "longrope" || dialect.longrope_names.contains(&name) => {
                RopeScaling::Long(LongRope::read(config, fields, key, dialect, max_positions)?)
            }
            other => {
                return Err(PluginError::unsupported(format!(
                    "config.json: rope type `{other}` in `{key}`; this family has `default`, \
                     `linear`, `llama3` and `longrope`"
                )));
            }
        };
        let more: &[&str] = match scaling {
            RopeScaling::Long(_) => &longrope::OWN_KEYS,
            _ => &[],
        };
        let unknown = |(name, _): &(&String, _)| {
            !OWN_KEYS.contains(&name.as_str()) && !more.contains(&name.as_str())
        };
        if let Some((name, value)) = fields.entries().find(unknown) {
            return Err(PluginError::unsupported(format!(
                "config.json: `{key}.{name}` is {value}, which this family does not know; it may \
                 change the rotary embedding. If it does not, remove it from config.json"
            )));
        }
        Ok(Rope {
            theta: fields.positive("rope_theta", Some(self.theta))?,
            scaling,
            partial: partial(fields, dialect, self.partial)?,
        })
    }

    /// Channels of a head of width `head_dim` that are turned.
    fn turned(&self, head_dim: u64) -> u64 {
        (head_dim as f64 * self.partial) as u64
    }

    /// Checks that the angular frequencies of heads of width `head_dim` are finite in f32.
    ///
    /// # Errors
    /// `INVALID` where one is not, with the values that cause it.
    pub(crate) fn check(&self, head_dim: u64) -> Result<()> {
        let turned = self.turned(head_dim);
        if turned < 2 || !turned.is_multiple_of(2) {
            return Err(PluginError::invalid(format!(
                "config.json: `partial_rotary_factor` {} of heads {head_dim} wide turns {turned} \
                 channels, expected pairs",
                self.partial
            )));
        }
        if let RopeScaling::Long(long) = &self.scaling {
            long.check_lengths(turned / 2, turned)?;
        }
        let mut steps = self.inv_freq(head_dim);
        steps.extend(
            self.inv_freq_beyond(head_dim)
                .into_iter()
                .flat_map(|(_, steps)| steps),
        );
        match steps.iter().position(|step| !step.is_finite()) {
            None => Ok(()),
            Some(pair) => Err(PluginError::invalid(format!(
                "config.json: `rope_theta` {:e}{}: expected angular steps that f32 holds, found {} \
                 for pair {} of heads {head_dim} wide",
                self.theta,
                match self.scaling {
                    RopeScaling::Default => "",
                    _ => " with its scaling",
                },
                steps[pair],
                pair as u64 % (turned / 2),
            ))),
        }
    }

    /// What multiplies cosines and sines.
    pub fn attention_factor(&self) -> f64 {
        match &self.scaling {
            RopeScaling::Long(long) => long.attention_factor,
            _ => 1.0,
        }
    }

    /// The angular frequencies of sequences of more tokens than the number beside them, as
    /// [`Rope::inv_freq`]; none where they are those of all sequences.
    pub fn inv_freq_beyond(&self, head_dim: u64) -> Option<(u64, Vec<f32>)> {
        let RopeScaling::Long(long) = &self.scaling else {
            return None;
        };
        let steps = longrope::divided(self.powers(head_dim), &long.long_factor);
        Some((long.original_max_positions, steps))
    }

    /// The power of theta of each pair of channels that is turned: its wavelength over 2 pi.
    fn powers(&self, head_dim: u64) -> impl Iterator<Item = f32> {
        let (width, theta) = (self.turned(head_dim), f64::from(self.theta as f32));
        (0..width / 2).map(move |pair| {
            let exponent = (2 * pair) as f32 / width as f32;
            // The power is computed in f64 and rounded once, so it is the same on every machine.
            theta.powf(f64::from(exponent)) as f32
        })
    }

    /// The angular frequency of each pair of channels that is turned, `[K / 2]` f32 where all of a
    /// head of width K are, in radians per position: of `longrope` those of short sequences.
    ///
    /// # Source
    /// transformers 5, `modeling_rope_utils.py`. There, a scalar over a tensor is computed as the
    /// reciprocal times the scalar.
    pub fn inv_freq(&self, head_dim: u64) -> Vec<f32> {
        let plain = self.powers(head_dim).map(|power| 1.0 / power);
        match self.scaling {
            RopeScaling::Default => plain.collect(),
            RopeScaling::Linear { factor } => plain.map(|step| step / factor as f32).collect(),
            RopeScaling::Long(ref long) => {
                longrope::divided(self.powers(head_dim), &long.short_factor)
            }
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

/// Whether `fields`, which stand at `key`, give each kind of layer its own object.
fn by_kind(fields: &Fields<'_>, key: &str, dialect: &Dialect) -> Result<bool> {
    let has_local = dialect
        .gemma
        .is_some_and(|line| line.local_rope_theta.is_some());
    let Some((inner, _)) = fields.entries().find(|(_, value)| value.is_object()) else {
        if has_local && key == "rope_parameters" {
            return Err(PluginError::unsupported(format!(
                "config.json: `{key}` is the same for all layers, this family has {}",
                KINDS.map(|kind| format!("`{key}.{kind}`")).join(" and ")
            )));
        }
        return Ok(false);
    };
    if !has_local || key == "rope_scaling" {
        return Err(PluginError::unsupported(format!(
            "config.json: `{key}.{inner}` gives a kind of layer its own rotary embedding, \
             these families have one for all layers"
        )));
    }
    match fields
        .entries()
        .find(|(kind, _)| !KINDS.contains(&kind.as_str()))
    {
        None => Ok(true),
        Some((other, _)) => Err(PluginError::unsupported(format!(
            "config.json: `{key}` has `{other}` beside kinds of layers; this family has {}",
            KINDS.map(|kind| format!("`{kind}`")).join(" and ")
        ))),
    }
}

/// The key `partial_rotary_factor`, or `default`.
fn partial(fields: &Fields<'_>, dialect: &Dialect, default: f64) -> Result<f64> {
    let key = "partial_rotary_factor";
    let part = fields.positive(key, Some(default))?;
    if part == 1.0 || (dialect.partial_rotary && part < 1.0) {
        return Ok(part);
    }
    Err(PluginError::unsupported(format!(
        "config.json: `{key}` is {part}, {}",
        if dialect.partial_rotary {
            "expected at most 1"
        } else {
            "these families turn all channels"
        }
    )))
}

#[cfg(test)]
mod tests;
