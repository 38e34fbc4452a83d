//! Adapters: a model's sites -> new params, and fragments that replace sites.

use serde_json::Value as Json;

use crate::adaptation::{Adaptation, Site};
use crate::{Options, Result};

/// An adapter such as LoRA. The component's capability `peft_types` lists the `peft_type`s it
/// reads.
pub trait Adapter: Send + Sync {
    /// The params and fragments for `sites`: all sites of the model, in the order of its units.
    ///
    /// # Errors
    /// `INVALID` where the options fit no site; the message lists the sites that exist.
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation>;

    /// The content of `adapter_config.json`, a JSON object; `base_model` is the path or id of the
    /// base model.
    ///
    /// # Errors
    /// As [`Adapter::adapt`].
    fn saved_config(&self, sites: &[Site], base_model: &str) -> Result<Json>;

    /// The options that make this adapter equal to a saved one.
    ///
    /// # Errors
    /// `UNSUPPORTED` where `config`, a parsed `adapter_config.json`, asks for what this adapter
    /// does not do.
    fn options_from_saved(&self, config: &Json) -> Result<Options>;
}
