//! A dense model directory -> the same model packed, in the format of the quantizer's common
//! loader.

use std::collections::{BTreeMap, HashMap};

use espalier_config::ResolvedConfig;
use espalier_engine::encoded::encode;
use espalier_engine::load::{CalibratedWeights, SavedWeight, Scratch, read_weight, stored_float};
use espalier_engine::observer::{Event, Observer};
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::saved_form::SavedModel;
use espalier_interface::{DType, Quantizer, Services};
use espalier_plan::packing::{PackedWeight, SavedParam, packed_weights};
use espalier_registry::{Chosen, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::{
    self, Existing, GroupSink, MAX_SHARD_BYTES, NewModel, TensorEntry, TensorSpec,
};
use espalier_system::stop::StopFlag;
use serde_json::Value as Json;

use super::base_weight::{decode, empty_segments};
use super::{Converted, Source, new_directory};
use crate::Error;
use crate::calibration::TrainingRows;
use crate::tensor_copy as copy;

/// Packs the model of the config into the new directory `run.out`.
///
/// # Errors
/// No quantizer, several, or one without a saved form; a checkpoint that is packed already; a
/// weight that is missing or not finite; a full disk. The output is then removed.
pub fn quantize(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Converted, Error> {
    let out = new_directory(resolved)?;
    let source = Source::open(resolved, stop)?;
    let weights = weights_to_pack(&source)?;
    let Some(quantizer) = the_quantizer(&weights)? else {
        return Err(Error::Usage(UsageError {
            message: "no quantizer was named for any weight".to_owned(),
            next_step: "name one: --plugins nf4".to_owned(),
        }));
    };
    let plan = Plan::new(&source, &weights, Some(quantizer))?;
    let new_config = plan.config(&source);
    let model = NewModel {
        path: out,
        config: &new_config,
        source: &source.opened_model.directory,
        existing: Existing::Refuse,
        max_shard_bytes: MAX_SHARD_BYTES,
    };
    let groups: Vec<Vec<TensorSpec>> = plan
        .tensors
        .iter()
        .map(|tensor| tensor.specs.clone())
        .collect();
    let rows = TrainingRows::InFiles;
    let calibrated = source.calibrated(weights.iter(), rows, observer, stop)?;
    let mut packer = Packer::new(&source).calibrated_by(calibrated);
    let mut converted = Converted::default();
    let total = groups.len() as u64;
    files::write_model_groups(&model, &groups, |index, sink| {
        stop.check()?;
        let tensor = &plan.tensors[index];
        converted.bytes_before += tensor.entry.bytes.end - tensor.entry.bytes.start;
        match &tensor.packed {
            Some(packed) => {
                packer.pack(tensor.entry, packed, sink)?;
                converted.changed += 1;
            }
            None => {
                copy::copy(&source.store, tensor.entry, &mut sink.tensor(0))?;
                converted.copied += 1;
            }
        }
        observer.observe(&Event::WriteProgress {
            tensor: &tensor.entry.name,
            done: index as u64 + 1,
            total,
        });
        Ok::<_, Error>(())
    })?;
    converted.bytes_after = files::ModelDirectory::open(out)?.tensors()?.bytes();
    observer.observe(&Event::Saved(out));
    Ok(converted)
}

/// The weights of a dense model that the config packs.
///
/// # Errors
/// A checkpoint that is packed already.
pub(super) fn weights_to_pack<'a>(source: &'a Source<'a>) -> Result<Vec<PackedWeight<'a>>, Error> {
    let opened_model = &source.opened_model;
    let quantizers = &opened_model.components.quantizers;
    if let Some(packed) = quantizers.packed() {
        return Err(Error::Usage(UsageError {
            message: format!("the model is packed already, by `{}`", packed.component()),
            next_step: "start from its original weights".to_owned(),
        }));
    }
    let of = |site: &Site| quantizers.of(opened_model.config, site);
    Ok(packed_weights(&opened_model.model, &source.sites, of)?)
}

/// The one quantizer of all weights, if there are any: a checkpoint names one.
///
/// # Errors
/// Several.
pub(super) fn the_quantizer<'a>(
    weights: &[PackedWeight<'a>],
) -> Result<Option<&'a Chosen<dyn Quantizer>>, Error> {
    let Some(first) = weights.first() else {
        return Ok(None);
    };
    let name = &first.quantizer.identity.component;
    let other = weights
        .iter()
        .find(|weight| &weight.quantizer.identity.component != name);
    match other {
        None => Ok(Some(first.quantizer)),
        Some(other) => Err(Error::Usage(UsageError {
            message: format!(
                "a checkpoint is packed by one quantizer, the config names `{name}` and `{}`",
                other.quantizer.identity.component
            ),
            next_step: "let [[sites]] name one quantizer, or none".to_owned(),
        })),
    }
}

/// The output of each stored tensor.
pub(super) struct Plan<'a> {
    /// In the order of the files.
    pub tensors: Vec<PlannedTensor<'a>>,
    quantization_config: Option<Json>,
}

/// A stored tensor and what is written in its place.
pub(super) struct PlannedTensor<'a> {
    /// The stored one.
    pub entry: &'a TensorEntry,
    /// The tensors that are written.
    pub specs: Vec<TensorSpec>,
    /// The packed weight, where it becomes one.
    pub packed: Option<PlannedWeight<'a>>,
}

/// A weight to pack, and the form in which it is saved.
pub(super) struct PlannedWeight<'a> {
    saved: SavedParam,
    weight: &'a PackedWeight<'a>,
}

impl PlannedWeight<'_> {
    /// Writes its segments.
    ///
    /// # Errors
    /// A write error.
    pub fn write(&self, segments: &[Vec<u8>], sink: &mut GroupSink<'_, '_>) -> Result<(), Error> {
        Ok(self.saved().write(segments, sink)?)
    }

    fn saved(&self) -> SavedWeight<'_> {
        SavedWeight::new(&self.saved, &self.weight.format)
    }
}

impl<'a> Plan<'a> {
    /// The plan to pack `weights` by `quantizer`, which is the one of all of them.
    ///
    /// # Errors
    /// A weight that is missing or that this program does not copy; errors of the quantizer.
    pub fn new(
        source: &'a Source<'a>,
        weights: &'a [PackedWeight<'a>],
        quantizer: Option<&Chosen<dyn Quantizer>>,
    ) -> Result<Self, Error> {
        let mut by_name = HashMap::new();
        for weight in weights {
            let name = source.stored_name(weight.param)?;
            by_name.insert(name, weight);
        }
        let mut tensors = Vec::with_capacity(source.store.entries().len());
        let mut dtype = None;
        for entry in source.store.entries() {
            let Some(&weight) = by_name.get(&entry.name) else {
                let specs = vec![copy::spec(&source.store, entry, None)?];
                tensors.push(PlannedTensor {
                    entry,
                    specs,
                    packed: None,
                });
                continue;
            };
            let stored = stored_float(entry);
            dtype = dtype.or(Some(stored));
            let site = &source.sites[weight.site];
            let saved = SavedParam::stored(site, weight, stored)?;
            let packed = PlannedWeight { saved, weight };
            let specs = packed.saved().specs();
            tensors.push(PlannedTensor {
                entry,
                specs,
                packed: Some(packed),
            });
        }
        let packed: Vec<usize> = weights.iter().map(|weight| weight.site).collect();
        let dense =
            source.sites.iter().enumerate().filter(|(index, site)| {
                site.kind != SiteKind::Embedding && !packed.contains(index)
            });
        let model = SavedModel {
            dtype: dtype.unwrap_or(DType::F32),
            dense_modules: dense.map(|(_, site)| site.name.clone()).collect(),
            configs: BTreeMap::new(),
        };
        let named = weights.iter();
        let named = named.map(|one| (source.sites[one.site].name.clone(), one.quantizer));
        let config = quantizer.map(|quantizer| config_of_all(named, quantizer, model));
        Ok(Plan {
            tensors,
            quantization_config: config.transpose()?,
        })
    }

    /// The `config.json` of the new model.
    pub fn config(&self, source: &Source<'_>) -> Json {
        let mut config = source.opened_model.directory.config().clone();
        if let Some(quantization_config) = &self.quantization_config {
            config["quantization_config"] = quantization_config.clone();
        }
        config
    }
}

/// The `quantization_config` of a model whose weights, given by module, can be packed with several
/// options of one quantizer.
///
/// # Errors
/// Those of the quantizer.
pub fn config_of_all<'a>(
    weights: impl Iterator<Item = (String, &'a Chosen<dyn Quantizer>)>,
    quantizer: &Chosen<dyn Quantizer>,
    mut model: SavedModel,
) -> Result<Json, Error> {
    let config = |quantizer: &Chosen<dyn Quantizer>, model: &SavedModel| {
        let config = quantizer.plugin.quantization_config(model);
        config.map_err(|error| quantizer.failed("quantization_config", error))
    };
    let mut configs = BTreeMap::new();
    for (module, own) in weights {
        configs.insert(module, config(own, &model)?);
    }
    let own = config(quantizer, &model)?;
    if configs.values().all(|config| *config == own) {
        return Ok(own);
    }
    model.configs = configs;
    Ok(config(quantizer, &model)?)
}

/// Memory for one weight.
pub(super) struct Packer<'a> {
    source: &'a Source<'a>,
    calibrated: Option<CalibratedWeights>,
    scratch: Scratch,
    workspace: Scratch,
}

impl<'a> Packer<'a> {
    /// Memory for weights of `source`, none of it taken yet.
    pub fn new(source: &'a Source<'a>) -> Self {
        Packer {
            source,
            calibrated: None,
            scratch: Scratch::default(),
            workspace: Scratch::default(),
        }
    }

    /// Takes the weights that were calibrated from `calibrated`.
    fn calibrated_by(self, calibrated: Option<CalibratedWeights>) -> Self {
        Packer { calibrated, ..self }
    }

    /// Packs a stored weight.
    ///
    /// # Errors
    /// A weight that cannot be read, errors of the quantizer, a write error.
    pub fn pack(
        &mut self,
        entry: &TensorEntry,
        packed: &PlannedWeight<'_>,
        sink: &mut GroupSink<'_, '_>,
    ) -> Result<(), Error> {
        let weight = self.scratch.floats(entry.elements() as usize)?;
        read_weight(&self.source.store, &entry.name, weight)?;
        if let Some(calibrated) = &self.calibrated {
            let format = &packed.weight.format;
            let name = &self.source.opened_model.model.params[packed.weight.param].name;
            let mut segments = empty_segments(format);
            let mut parts: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
            if calibrated.fill((name, format), &mut parts)?.is_some() {
                return packed.write(&segments, sink);
            }
        }
        let services = self.source.opened_model.services;
        let segments = encoded(services, (&entry.name, packed), weight, &mut self.workspace)?;
        packed.write(&segments, sink)
    }

    /// The segments of `weight`, which becomes what they decode to.
    ///
    /// # Errors
    /// Those of the quantizer.
    pub fn segments(
        &mut self,
        entry: &TensorEntry,
        packed: &PlannedWeight<'_>,
        weight: &mut [f32],
    ) -> Result<Vec<Vec<u8>>, Error> {
        let services = self.source.opened_model.services;
        let segments = encoded(services, (&entry.name, packed), weight, &mut self.workspace)?;
        decode(services, (packed.weight, &entry.name), &segments, weight)?;
        Ok(segments)
    }
}

fn encoded(
    services: &dyn Services,
    (name, packed): (&str, &PlannedWeight<'_>),
    weight: &mut [f32],
    workspace: &mut Scratch,
) -> Result<Vec<Vec<u8>>, Error> {
    let (format, chosen) = (&packed.weight.format, packed.weight.quantizer);
    let mut segments = empty_segments(format);
    let mut parts: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    let bytes = answer::encode_workspace(chosen, format.shape)?;
    let workspace = workspace.bytes(bytes as usize)?;
    let of = (chosen, name, format);
    encode(services, of, weight, &mut parts, workspace)?;
    Ok(segments)
}
