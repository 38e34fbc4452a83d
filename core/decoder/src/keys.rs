//! The keys of a `config.json` that a family knows: those it reads, and those that change nothing.

use espalier_interface::{PluginError, Result};
use serde_json::Value as Json;

use crate::dialect::Dialect;
use crate::fields::Fields;

/// Keys that are read, or refused by name, for some family.
const READ: &[&str] = &[
    "attention_bias",
    "attention_dropout",
    "attn_logit_softcapping",
    "embd_pdrop",
    "final_logit_softcapping",
    "head_dim",
    "hidden_act",
    "hidden_activation",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "mlp_bias",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "query_pre_attn_scalar",
    "resid_pdrop",
    "rms_norm_eps",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "sliding_window_pattern",
    "tie_word_embeddings",
    "use_bidirectional_attention",
    "vocab_size",
];

/// Keys of every model's config that change nothing of what it computes: names, versions, special
/// tokens, what transformers returns and how it keeps its cache. How weights are packed is read by
/// the host.
const HARMLESS: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "dtype",
    "eos_token_id",
    "id2label",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "quantization_config",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// Refuses a key that the family does not know, where the family lists its harmless ones. A switch
/// that is off and an empty list pass.
///
/// # Errors
/// `UNSUPPORTED`, naming the key and what it is.
pub fn refuse_unknown(fields: &Fields<'_>, dialect: &Dialect) -> Result<()> {
    let Some(own) = dialect.harmless_keys else {
        return Ok(());
    };
    let known = |key: &str| [READ, HARMLESS, own].concat().contains(&key);
    let is_off = |value: &Json| match value {
        Json::Bool(on) => !on,
        Json::Array(list) => list.is_empty(),
        Json::Object(object) => object.is_empty(),
        _ => false,
    };
    let mut entries = fields.entries();
    match entries.find(|(key, value)| !known(key) && !is_off(value)) {
        None => Ok(()),
        Some((key, value)) => Err(PluginError::unsupported(format!(
            "config.json: `{key}` is {value}, which this family does not know; it may change what \
             the model computes. If it does not, remove it from config.json"
        ))),
    }
}
