//! Model families: a `config.json` -> a model as data.

use serde_json::Value as Json;

use crate::Result;
use crate::model::Model;

/// A model family such as Llama. The component's capability `model_types` lists the `model_type`s
/// it reads.
pub trait Family: Send + Sync {
    /// The model that `config`, the parsed `config.json`, describes.
    ///
    /// # Errors
    /// `INVALID` for a missing or impossible value, `UNSUPPORTED` for a variant that this family
    /// does not know; the message names it.
    fn describe(&self, config: &Json) -> Result<Model>;
}
