//! The common part of families of decoders: reading `config.json`, rotary embeddings, and graphs.
//!
//! A family of decoders with grouped-query attention, norms, rotary embeddings and a feed-forward
//! part describes its differences in a [`Dialect`]; [`describe`] does the rest.

mod config;
mod dialect;
mod fields;
mod gemma;
mod graphs;
mod keys;
mod model;
mod multipliers;
mod rope;
mod window;

use espalier_interface::Result;
use espalier_interface::model::Model;
use serde_json::Value as Json;

pub use config::DecoderConfig;
pub use dialect::{AttentionBias, Defaults, Dialect, FeedForward, GemmaLine, Norm, Window};
pub use gemma::Gemma;
pub use multipliers::Multipliers;
pub use rope::{LongRope, Rope, RopeScaling};

/// The model that `config`, a parsed `config.json`, describes in `dialect`.
///
/// # Errors
/// Those of [`DecoderConfig::read`].
pub fn describe(config: &Json, dialect: &Dialect) -> Result<Model> {
    model::build(&DecoderConfig::read(config, dialect)?)
}

/// The text of a small `config.json` of the given `model_type` and activation. It is the capability
/// `sample_config`, with which the conformance kit tests a family.
#[macro_export]
macro_rules! sample_config {
    ($model_type:literal) => {
        $crate::sample_config!($model_type, "silu")
    };
    ($model_type:literal, $activation:literal) => {
        concat!(
            r#"{"model_type": ""#,
            $model_type,
            r#"", "hidden_act": ""#,
            $activation,
            r#"", "hidden_size": 32, "intermediate_size": 64, "#,
            r#""num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "#,
            r#""head_dim": 8, "vocab_size": 64, "max_position_embeddings": 64, "#,
            r#""rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "#,
            r#""initializer_range": 0.1}"#
        )
    };
}
