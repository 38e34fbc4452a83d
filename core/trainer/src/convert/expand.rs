//! A model directory -> the same model with added layers, each a copy that computes an identity.
//!
//! A copy is a layer whose products that are added to its input have zero weights, so that the
//! model's logits are the same bits. Training the added layers alone is LLaMA Pro
//! (arXiv 2401.02415). In a packed model the added layers are dense: packed ones cannot be trained.

mod expanded_config;
mod expanded_weights;
mod expansion;

use espalier_config::ResolvedConfig;
use espalier_engine::observer::{Event, Observer};
use espalier_interface::ErrorCode;
use espalier_interface::model::Model;
use espalier_system::failure::UsageError;
use espalier_system::files::{self, Existing, MAX_SHARD_BYTES, NewModel, TensorSpec};
use espalier_system::stop::StopFlag;
use serde_json::Value as Json;

use self::expanded_weights::ExpandedWeights;
use self::expansion::Expansion;
use super::base_weight::BaseWeights;
use super::{Converted, Source, new_directory};
use crate::Error;
use crate::calibration::TrainingRows;

/// An expanded model that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expanded {
    /// Its tensors.
    pub tensors: Converted,
    /// Its layers.
    pub layers: usize,
    /// The indices of the added ones.
    pub added: Vec<usize>,
}

/// Expands the model of the config at `rate` into the new directory `run.out`.
///
/// # Errors
/// A rate that does not work, an adapter, or a quantizer for a dense model; a family whose layers
/// cannot be an identity; a weight that is missing or not finite; a full disk. The output is then
/// removed.
pub fn expand(
    resolved: &ResolvedConfig,
    rate: f64,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Expanded, Error> {
    let out = new_directory(resolved)?;
    let source = Source::open(resolved, stop)?;
    refuse_changes(&source)?;
    let before = &source.opened_model.model;
    let layers = expanded_config::layers(before).len();
    let placed = Expansion::of(layers, rate)?.placed();
    let config = source.opened_model.directory.config();
    let mut config = expanded_config::expanded_config(config, &placed)?;
    let after = described(&source, &config)?;
    expanded_config::check(before, &after, &placed)?;
    let bases = BaseWeights::new(&source, None, TrainingRows::None, observer, stop)?;
    let mut weights = ExpandedWeights::new(&source, &bases, &after, &placed)?;
    if let Some(quantization_config) = weights.quantization_config(&after)? {
        config["quantization_config"] = quantization_config;
    }
    let model = NewModel {
        path: out,
        config: &config,
        source: &source.opened_model.directory,
        existing: Existing::Refuse,
        max_shard_bytes: MAX_SHARD_BYTES,
    };
    let mut tensors = Converted {
        bytes_before: source.store.bytes(),
        ..Converted::default()
    };
    let groups: Vec<Vec<TensorSpec>> = weights.specs();
    let total = groups.len() as u64;
    files::write_model_groups(&model, &groups, |index, sink| {
        stop.check()?;
        let copied = weights.write(index, sink)?;
        tensors.copied += copied;
        tensors.changed += groups[index].len() as u64 - copied;
        observer.observe(&Event::WriteProgress {
            tensor: &groups[index][0].name,
            done: index as u64 + 1,
            total,
        });
        Ok::<_, Error>(())
    })?;
    tensors.bytes_after = files::ModelDirectory::open(out)?.tensors()?.bytes();
    observer.observe(&Event::Saved(out));
    let added = placed.iter().enumerate().filter(|(_, layer)| layer.added);
    Ok(Expanded {
        tensors,
        layers: placed.len(),
        added: added.map(|(index, _)| index).collect(),
    })
}

/// Refuses components that would change weights: they are written as they are stored.
fn refuse_changes(source: &Source<'_>) -> Result<(), Error> {
    let components = &source.opened_model.components;
    let refuse = |message: &str, next_step: &str| {
        Err(Error::Usage(UsageError {
            message: message.to_owned(),
            next_step: next_step.to_owned(),
        }))
    };
    if components.adapter.is_some() {
        return refuse(
            "an adapter was given, and its layers would not be those of the expanded model",
            "merge it first (host merge), and expand the merged model",
        );
    }
    let quantizers = &components.quantizers;
    let named = quantizers.pack_by_default() || !source.opened_model.config.sites.is_empty();
    if named && quantizers.packed().is_none() {
        return refuse(
            "a quantizer was named, and weights are written as they are stored",
            "leave it out; name it in training, or pack the model first (host quantize)",
        );
    }
    Ok(())
}

/// The model that the family describes by the new `config`.
fn described(source: &Source<'_>, config: &Json) -> Result<Model, Error> {
    let family = &source.opened_model.components.family;
    let described = family.plugin.describe(config);
    let model = described.map_err(|error| match error.code {
        ErrorCode::INVALID | ErrorCode::UNSUPPORTED => Error::Usage(UsageError {
            message: format!(
                "the expanded model is not one of its family: {}",
                error.message
            ),
            next_step: "expand a model whose config.json has no values for single layers"
                .to_owned(),
        }),
        _ => family.failed("describe", error).into(),
    })?;
    espalier_registry::answer::model(family, &model)?;
    Ok(model)
}
