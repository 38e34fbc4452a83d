//! One model directory -> another, weight by weight: packed, expanded, with a merged adapter, or
//! without the part of the weights that an adapter begins with.
//!
//! At most one weight is held at a time. The new directory is written to `.partial` and committed
//! by one rename.

mod base_weight;
pub mod expand;
mod fragment;
mod joined;
pub mod merge;
pub mod merge_check;
pub mod quantize;
mod saved_param;
pub mod split;

use std::path::Path;

use espalier_compile::splice;
use espalier_compile::splice::weight_of;
use espalier_config::{Origin, ResolvedConfig};
use espalier_engine::load::{CalibratedWeights, WeightCache, stored_name};
use espalier_engine::observer::Observer;
use espalier_interface::adaptation::Site;
use espalier_plan::packing::PackedWeight;
use espalier_plan::patterns;
use espalier_plan::plan::Purpose;
use espalier_registry::answer;
use espalier_system::failure::UsageError;
use espalier_system::files::{TensorStore, WeightsError, refuse_existing};
use espalier_system::stop::StopFlag;

use crate::Error;
use crate::calibration::{Calibrating, TrainingRows, WeightToPack};
use crate::session::{OpenedModel, ProcessContext};
use crate::weights::tell_packed;

pub use crate::tensor_copy::Unwritable;
pub use espalier_interface::DType;

/// The weights that an adapter is merged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The dense weights of the checkpoint.
    Original,
    /// The values decoded by the quantizer, on which the adapter was trained.
    Decoded,
}

/// Counts of the written tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Weights that were packed, merged with the adapter, or made for an added layer.
    pub changed: u64,
    /// Tensors copied unchanged.
    pub copied: u64,
    /// Bytes of all weights before.
    pub bytes_before: u64,
    /// Bytes of all weights after.
    pub bytes_after: u64,
}

/// The directory to write, which must not exist.
fn new_directory(resolved: &ResolvedConfig) -> Result<&Path, Error> {
    let out = resolved.config().run.out.as_deref();
    let out = out.ok_or_else(|| {
        Error::Usage(UsageError {
            message: "no directory to write was given".to_owned(),
            next_step: "name one with --out DIR".to_owned(),
        })
    })?;
    refuse_existing(out)?;
    Ok(out)
}

/// The source model of a conversion.
struct Source<'a> {
    opened_model: OpenedModel<'a>,
    sites: Vec<Site>,
    store: TensorStore,
}

/// Refuses components of the command line that are not used in writing a model.
fn refuse_idle(resolved: &ResolvedConfig, opened_model: &OpenedModel<'_>) -> Result<(), Error> {
    let of_command = matches!(resolved.origin("plugins"), Origin::Flag(_) | Origin::Set(_));
    let sharding = std::iter::once(&opened_model.components.sharding.identity);
    let named = &opened_model.config.plugins;
    let mut idle = sharding.chain(opened_model.collectives.identities());
    match idle.find(|one| of_command && named.contains(&one.component)) {
        None => Ok(()),
        Some(idle) => Err(Error::Usage(UsageError {
            message: format!(
                "`{}` is a {}, which has no part in writing a model: weights are taken one after the other",
                idle.component, idle.role
            ),
            next_step: "leave it out of --plugins".to_owned(),
        })),
    }
}

impl<'a> Source<'a> {
    /// Opens the model and creates the plugins of the config; an adapter must be a saved one.
    fn open(resolved: &'a ResolvedConfig, stop: &StopFlag) -> Result<Self, Error> {
        Source::open_for(resolved, Purpose::Evaluate, stop)
    }

    /// As [`Source::open`], with an adapter that `purpose` can have.
    fn open_for(
        resolved: &'a ResolvedConfig,
        purpose: Purpose,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let process_context = ProcessContext::start(resolved.config(), stop)?;
        let opened_model = OpenedModel::open(resolved, purpose, &process_context)?;
        let components = &opened_model.components;
        answer::model(&components.family, &opened_model.model)?;
        let sites = splice::sites(&opened_model.model);
        patterns::check_sites(resolved, &components.quantizers, &sites)?;
        refuse_idle(resolved, &opened_model)?;
        Ok(Source {
            sites,
            store: opened_model.directory.tensors()?,
            opened_model,
        })
    }

    /// Those of `weights` that are packed with statistics of their inputs, where there are any.
    ///
    /// # Errors
    /// As [`Calibrating::run`].
    fn calibrated<'w>(
        &self,
        weights: impl Iterator<Item = &'w PackedWeight<'w>>,
        rows: TrainingRows<'_>,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Option<CalibratedWeights>, Error> {
        let opened_model = &self.opened_model;
        let mut weights: Vec<WeightToPack<'_>> = weights
            .map(|weight| WeightToPack {
                site: &self.sites[weight.site],
                param: weight.param,
                format: &weight.format,
                quantizer: weight.quantizer,
            })
            .collect();
        weights.sort_by_key(|weight| weight.param);
        let (config, directory) = (opened_model.config, &opened_model.directory);
        let cache = WeightCache::open(config.run.weight_cache_gb, directory.path());
        let calibrating = Calibrating {
            config,
            directory,
            model: &opened_model.model,
            components: &opened_model.components,
            device: opened_model.device_info(),
            cache: cache.as_ref(),
            rows,
            observer,
            stop,
        };
        let calibrated = calibrating.run(&weights, || opened_model.graph_kernels())?;
        if let Some(calibrated) = &calibrated {
            tell_packed(calibrated.counts(), cache.as_ref(), observer);
        }
        Ok(calibrated)
    }

    /// The stored name of the weight of `site`.
    fn stored_weight(&self, site: &Site) -> Result<String, Error> {
        let param = weight_of(&self.opened_model.model, site).ok_or_else(|| {
            Error::Weights(WeightsError {
                path: self.opened_model.directory.path().to_owned(),
                message: format!("the model describes no weight of `{}`", site.name),
            })
        })?;
        self.stored_name(param)
    }

    /// The stored name of param number `param` of the model.
    fn stored_name(&self, param: usize) -> Result<String, Error> {
        let spec = &self.opened_model.model.params[param];
        let (name, aliases) = (&spec.name, &spec.aliases);
        Ok(stored_name(&self.store, name, aliases, &spec.shape)?)
    }
}
