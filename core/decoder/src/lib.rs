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
