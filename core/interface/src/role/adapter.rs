//! Adapters: a model's sites -> new params, and fragments that replace sites.

use serde_json::Value as Json;

use crate::adaptation::{Adaptation, Site};
use crate::{Options, PluginError, Result};

/// A param to initialise from the weight of its site.
pub struct InitialValues<'a> {
    /// The param's [`name`](crate::adaptation::AdapterParam::name).
    pub name: &'a str,
    /// Its elements in the order of its shape, zeros at first.
    pub values: &'a mut [f32],
}

/// What [`Adapter::initialise`] is given.
pub struct InitialiseCall<'a> {
    /// The site.
    pub site: &'a Site,
    /// Its weight, of the shape of the site, row major: the numbers that the run computes with, so
    /// those that a packed weight decodes to.
    pub weight: &'a [f32],
    /// The run's seed, for values that are random as well.
    pub seed: u64,
    /// The bytes that [`Adapter::initialise_workspace`] asked for; aligned to 64 bytes.
    pub workspace: &'a mut [u8],
    /// The params of the site that begin as [`Init::FromWeight`](crate::Init::FromWeight), in the
    /// order of the adaptation.
    pub params: Vec<InitialValues<'a>>,
}

/// An adapter such as LoRA. The component's capability `peft_types` lists the `peft_type`s it
/// reads.
pub trait Adapter: Send + Sync {
    /// The params and fragments for `sites`: all sites of the model, in the order of its units,
    /// and behind them its norms where [`Adapter::takes_norms`] says so.
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

    /// Whether [`Adapter::adapt`] and [`Adapter::saved_config`] are given norms, too.
    ///
    /// # Errors
    /// None of its own; a failed call.
    fn takes_norms(&self) -> Result<bool> {
        Ok(false)
    }

    /// Fills in the initial values of a site's params that begin as
    /// [`Init::FromWeight`](crate::Init::FromWeight). It is called once a site while the weights
    /// are loaded, one weight at a time; not for params that a saved adapter or a checkpoint holds.
    /// Equal weights must give equal values.
    ///
    /// # Errors
    /// `UNSUPPORTED` for an adapter whose params begin otherwise.
    fn initialise(&self, call: InitialiseCall<'_>) -> Result<()> {
        Err(PluginError::unsupported(format!(
            "this adapter makes no initial values from the weight of `{}`",
            call.site.name
        )))
    }

    /// Bytes of workspace that [`Adapter::initialise`] needs for `site`.
    ///
    /// # Errors
    /// As [`Adapter::adapt`].
    fn initialise_workspace(&self, _site: &Site) -> Result<u64> {
        Ok(0)
    }
}
