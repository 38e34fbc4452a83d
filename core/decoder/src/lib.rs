//! What the families of decoders share: reading `config.json`, rotary embeddings, and the graphs of a decoder.
//!
//! A family that is a decoder with grouped-query attention, RMS norms, rotary embeddings and a gated feed-forward part
//! says in a [`Dialect`] what is special about it; [`describe`] does the rest.

mod config;
mod dialect;
mod fields;
mod graphs;
mod model;
mod rope;
mod window;

use espalier_interface::Result;
use espalier_interface::model::Model;
use serde_json::Value as Json;

pub use config::DecoderConfig;
pub use dialect::{AttentionBias, Dialect, Window};
pub use rope::{Rope, RopeScaling};

/// The model that `config`, a parsed `config.json`, describes in `dialect`.
///
/// # Errors
/// What [`DecoderConfig::read`] gives.
pub fn describe(config: &Json, dialect: &Dialect) -> Result<Model> {
    model::build(&DecoderConfig::read(config, dialect)?)
}

/// The text of a small `config.json` of the given `model_type`: the capability `sample_config`, on which the conformance kit
/// tries a family.
#[macro_export]
macro_rules! sample_config {
    ($model_type:literal) => {
        concat!(
            r#"{"model_type": ""#,
            $model_type,
            r#"", "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 64, "#,
            r#""num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "#,
            r#""head_dim": 8, "vocab_size": 64, "max_position_embeddings": 64, "#,
            r#""rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "#,
            r#""initializer_range": 0.1}"#
        )
    };
}
