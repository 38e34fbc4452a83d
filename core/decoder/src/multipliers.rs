//! Numbers of a `config.json` by which a family scales values on their way through the model.

use espalier_interface::{PluginError, Result};

use crate::fields::Fields;

/// The factors of Granite's models; those of other families change nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipliers {
    /// Of the embeddings.
    pub embedding: f64,
    /// Of the products of queries and keys; unset for one over the root of the head width.
    pub attention: Option<f64>,
    /// Of what attention and the feed-forward part add.
    pub residual: f64,
    /// What logits are divided by.
    pub logits_divisor: f64,
}

/// Factors that change nothing.
const NONE: Multipliers = Multipliers {
    embedding: 1.0,
    attention: None,
    residual: 1.0,
    logits_divisor: 1.0,
};

/// The keys, all 1 where they are left out.
const KEYS: [&str; 4] = [
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "logits_scaling",
];

impl Multipliers {
    /// The factors of a config whose family has them, or has none.
    ///
    /// # Errors
    /// `INVALID` for a factor that is not above 0, `UNSUPPORTED` where the family has none.
    pub fn read(fields: &Fields<'_>, family_has_them: bool) -> Result<Self> {
        if family_has_them {
            let [embedding, attention, residual, logits_divisor] =
                KEYS.map(|key| fields.positive(key, Some(1.0)));
            return Ok(Multipliers {
                embedding: embedding?,
                attention: Some(attention?),
                residual: residual?,
                logits_divisor: logits_divisor?,
            });
        }
        let set = KEYS.iter().find_map(|key| Some((key, fields.get(key)?)));
        match set {
            None => Ok(NONE),
            Some((key, found)) => Err(PluginError::unsupported(format!(
                "config.json: `{key}` is {found}, which this family does not have"
            ))),
        }
    }
}
