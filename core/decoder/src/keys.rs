//! The keys of a `config.json` that a family knows: those it reads, and those that change nothing.

use espalier_interface::{PluginError, Result};
use serde_json::Value as Json;

use crate::dialect::{Dialect, Norm, Window};
use crate::fields::Fields;

/// Keys that every family reads, or refuses by name.
const READ: &[&str] = &[
    "attention_bias",
    "attention_dropout",
    "attention_multiplier",
    "attn_logit_softcapping",
    "embd_pdrop",
    "embedding_multiplier",
    "final_logit_softcapping",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "layer_types",
    "logits_scaling",
    "max_position_embeddings",
    "mlp_bias",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "resid_pdrop",
    "residual_multiplier",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "vocab_size",
];

/// Keys that only families of Gemma's line read.
const READ_BY_GEMMA: &[&str] = &[
    "hidden_activation",
    "query_pre_attn_scalar",
    "rope_local_base_freq",
    "sliding_window_pattern",
    "use_bidirectional_attention",
];

/// Keys that only families read whose norms divide by a root mean square.
const READ_BY_ROOT_MEAN_SQUARES: &[&str] = &["rms_norm_eps"];

/// Keys that only families with layer norms read, or refuse by name.
const READ_BY_LAYER_NORMS: &[&str] = &[
    "embedding_dropout",
    "norm_epsilon",
    "residual_dropout",
    "use_bias",
];

/// Keys that only families read whose windows a key switches on.
const READ_WHERE_SWITCHED: &[&str] = &["max_window_layers", "use_sliding_window"];

/// Keys of every model's config that change nothing of what it computes: names, versions, special
/// tokens, what transformers returns, how it keeps its cache and how it generates. The host reads
/// how weights are packed, and which layers `host expand` added. Source: the keys of transformers
/// 4.0 to 5.23's `PretrainedConfig`.
const HARMLESS: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "auto_map",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "expanded_layers",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_max_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "quantization_config",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// Keys that change nothing with this number.
const HARMLESS_AT: &[(&str, f64)] = &[
    // Slices of a product: others round otherwise.
    ("pretraining_tp", 1.0),
    ("chunk_size_feed_forward", 0.0),
    ("hidden_dropout", 0.0),
    ("hidden_dropout_prob", 0.0),
];

/// Refuses a key that the family does not know. A switch that is off and an empty list pass.
///
/// # Errors
/// `UNSUPPORTED`, naming the key and what it is.
pub fn refuse_unknown(fields: &Fields<'_>, dialect: &Dialect) -> Result<()> {
    let is_off = |value: &Json| match value {
        Json::Bool(on) => !on,
        Json::Array(list) => list.is_empty(),
        Json::Object(object) => object.is_empty(),
        _ => false,
    };
    let mut entries = fields.entries();
    match entries.find(|(key, value)| !is_known(key, value, dialect) && !is_off(value)) {
        None => Ok(()),
        Some((key, value)) => Err(PluginError::unsupported(format!(
            "config.json: `{key}` is {value}, which this family does not know; it may change what \
             the model computes. If it does not, remove it from config.json"
        ))),
    }
}

/// Whether the family reads the key, or the key changes nothing with this value.
fn is_known(key: &str, value: &Json, dialect: &Dialect) -> bool {
    let is_of = |keys: &[&str]| keys.contains(&key);
    let mut harmless_at = HARMLESS_AT.iter();
    is_of(READ)
        || is_of(HARMLESS)
        || is_of(dialect.harmless_keys)
        || dialect.gemma.is_some() && is_of(READ_BY_GEMMA)
        || is_of(match dialect.norm {
            Norm::RootMeanSquare => READ_BY_ROOT_MEAN_SQUARES,
            Norm::Layer => READ_BY_LAYER_NORMS,
        })
        || dialect.window == Window::Switched && is_of(READ_WHERE_SWITCHED)
        || harmless_at.any(|(known, number)| *known == key && value.as_f64() == Some(*number))
}
