//! A `config.json` of Gemma's line -> its numbers beside those of other decoders.

use espalier_interface::{PluginError, Result};

use crate::dialect::{Dialect, GemmaLine};
use crate::fields::Fields;

/// The activation of all members, under both keys that name it.
const ACTIVATION: &str = "gelu_pytorch_tanh";

/// `query_pre_attn_scalar` where it is left out. Source: transformers 5, `Gemma2Config` and
/// `Gemma3TextConfig`.
const QUERY_SCALAR: f64 = 256.0;

/// The numbers of a model of Gemma's line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemma {
    /// What the products of queries and keys are divided by the root of.
    pub query_scalar: f64,
    /// `c` of `c tanh(score / c)`.
    pub attention_softcap: Option<f64>,
    /// `c` of `c tanh(logit / c)`.
    pub logits_softcap: Option<f64>,
}

impl Gemma {
    /// The numbers of a config, where its family is of the line.
    ///
    /// # Errors
    /// `INVALID` for a number that is not above 0, `UNSUPPORTED` for another activation, for a cap
    /// that the family does not have, and for attention in both directions.
    pub fn read(fields: &Fields<'_>, dialect: &Dialect) -> Result<Option<Self>> {
        let Some(line) = dialect.gemma else {
            return Ok(None);
        };
        for key in ["hidden_activation", "hidden_act"] {
            let found = fields.text(key, ACTIVATION)?;
            if found != ACTIVATION {
                return Err(PluginError::unsupported(format!(
                    "config.json: `{key}` is `{found}`, this family's is `{ACTIVATION}`"
                )));
            }
        }
        if fields.flag("use_bidirectional_attention")? {
            return Err(PluginError::unsupported(
                "config.json: `use_bidirectional_attention` is true: this family's tokens attend \
                 to earlier ones only",
            ));
        }
        Ok(Some(Gemma {
            query_scalar: fields.positive("query_pre_attn_scalar", Some(QUERY_SCALAR))?,
            attention_softcap: attention_softcap(fields, line)?,
            logits_softcap: fields
                .optional_positive("final_logit_softcapping", line.logits_softcap)?,
        }))
    }
}

fn attention_softcap(fields: &Fields<'_>, line: GemmaLine) -> Result<Option<f64>> {
    let key = "attn_logit_softcapping";
    match (line.attention_softcap, fields.get(key)) {
        (Some(default), _) => fields.optional_positive(key, Some(default)),
        (None, None) => Ok(None),
        // transformers reads it and does not apply it.
        (None, Some(found)) => Err(PluginError::unsupported(format!(
            "config.json: `{key}` is {found}, which this family does not have"
        ))),
    }
}
