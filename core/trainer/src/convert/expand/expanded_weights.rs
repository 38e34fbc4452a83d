//! The tensors of a model and the layers of its expansion -> the tensors of the expanded model.

use std::collections::{BTreeMap, HashMap, HashSet};

use espalier_compile::identity::identity_params;
use espalier_compile::splice;
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::model::{Model, Unit};
use espalier_interface::saved_form::SavedModel;
use espalier_system::failure::UsageError;
use espalier_system::files::{GroupSink, TensorEntry, TensorSpec, WeightsError};
use serde_json::Value as Json;

use super::super::Source;
use super::super::base_weight::BaseWeights;
use super::super::quantize::config_of_all;
use super::expanded_config::layers;
use super::expansion::Placed;
use crate::Error;
use crate::tensor_copy::{self as copy, module_groups};
use crate::train::stored_dtype;

/// Zeros written at once.
const ZEROS: usize = 1 << 16;

/// All tensors of an expanded model.
pub struct ExpandedWeights<'a> {
    source: &'a Source<'a>,
    bases: &'a BaseWeights<'a>,
    /// Groups of tensors, each in one file.
    groups: Vec<Vec<Output<'a>>>,
    /// The packed modules of the expanded model, each with the site that it is from.
    packed: Vec<(String, usize)>,
}

struct Output<'a> {
    spec: TensorSpec,
    content: Content<'a>,
}

enum Content<'a> {
    /// A stored tensor, unchanged.
    Copy(&'a TensorEntry),
    /// A stored tensor of a packed weight, unchanged.
    Part(&'a TensorEntry),
    /// Zeros.
    Zeros,
    /// The dense values of the packed weight of this site.
    Decoded(usize),
}

/// The original model, as far as its layers are concerned.
struct Originals<'a> {
    source: &'a Source<'a>,
    bases: &'a BaseWeights<'a>,
    /// The site of each packed module.
    packed_sites: HashMap<&'a str, usize>,
    /// Stored names of the params that are zero in a copy, packed ones included.
    zeros: HashSet<String>,
}

impl<'a> ExpandedWeights<'a> {
    /// The tensors of the model `after` with the layers `placed`.
    ///
    /// # Errors
    /// A layer that cannot be an identity; a tensor that is missing or of an unknown dtype.
    pub fn new(
        source: &'a Source<'a>,
        bases: &'a BaseWeights<'a>,
        after: &Model,
        placed: &[Placed],
    ) -> Result<Self, Error> {
        let before = &source.opened_model.model;
        let (old, new) = (layers(before), layers(after));
        let sites = bases.packed().map(|(site, _)| site);
        let packed_sites: HashMap<&str, usize> = sites
            .map(|site| (source.sites[site].name.as_str(), site))
            .collect();
        let originals = Originals {
            source,
            bases,
            zeros: zeros(source, placed)?,
            packed_sites,
        };
        let modules: HashSet<&str> = originals.packed_sites.keys().copied().collect();
        let entries = source.store.entries();
        let names = entries.iter().map(|entry| entry.name.as_str());
        let mut made = ExpandedWeights {
            source,
            bases,
            groups: Vec::new(),
            packed: Vec::new(),
        };
        for group in module_groups(names, &modules) {
            let group: Vec<&TensorEntry> = group.into_iter().map(|index| &entries[index]).collect();
            let Some(layer) = layer_of(&old, &group[0].name) else {
                made.groups.push(originals.moved(&group, "", "")?);
                continue;
            };
            let prefix = old[layer].prefix.as_str();
            for (unit, one) in new
                .iter()
                .zip(placed)
                .filter(|(_, one)| one.source == layer)
            {
                made.groups.push(if one.added {
                    originals.copied(&group, prefix, &unit.prefix)?
                } else {
                    originals.moved(&group, prefix, &unit.prefix)?
                });
            }
        }
        for (&module, &site) in &originals.packed_sites {
            let Some(layer) = layer_of(&old, module) else {
                made.packed.push((module.to_owned(), site));
                continue;
            };
            let kept = placed
                .iter()
                .position(|one| one.source == layer && !one.added);
            let kept = kept.expect("every layer stays");
            let rest = &module[old[layer].prefix.len()..];
            made.packed
                .push((format!("{}{rest}", new[kept].prefix), site));
        }
        made.packed.sort();
        Ok(made)
    }

    /// The tensors of each group.
    pub fn specs(&self) -> Vec<Vec<TensorSpec>> {
        let specs = |group: &Vec<Output<'_>>| group.iter().map(|one| one.spec.clone()).collect();
        self.groups.iter().map(specs).collect()
    }

    /// Writes group number `index`, and returns how many of its tensors are copies.
    ///
    /// # Errors
    /// A number that is not finite; a read or write error.
    pub fn write(&mut self, index: usize, sink: &mut GroupSink<'_, '_>) -> Result<u64, Error> {
        let group = &self.groups[index];
        let mut parts = group.iter().filter_map(|one| match one.content {
            Content::Part(entry) => Some(entry),
            _ => None,
        });
        if let Some(part) = parts.next() {
            let mut packed = self.bases.packed().map(|(site, _)| site);
            let of_site = |site: &usize| is_in(&part.name, &self.source.sites[*site].name);
            self.bases
                .check_saved(packed.find(of_site).expect("a part of one"))?;
        }
        let mut copies = 0;
        for (at, output) in group.iter().enumerate() {
            let mut sink = sink.tensor(at);
            match output.content {
                Content::Copy(entry) => {
                    copy::copy(&self.source.store, entry, &mut sink)?;
                    copies += 1;
                }
                Content::Part(entry) => {
                    copy::copy_bytes(&self.source.store, entry, &mut sink)?;
                    copies += 1;
                }
                Content::Zeros => {
                    let bytes = output.spec.dtype.bytes();
                    let mut left = output.spec.shape.iter().product::<u64>() * bytes;
                    while left > 0 {
                        let count = left.min(ZEROS as u64);
                        sink.write_bytes(&vec![0; count as usize])?;
                        left -= count;
                    }
                }
                Content::Decoded(site) => {
                    let base = self.bases.of(site)?;
                    let weight = self.bases.read(&base, &self.source.sites[site])?;
                    copy::write_rounded(&mut sink, &weight)?;
                }
            }
        }
        Ok(copies)
    }

    /// The `quantization_config` of the expanded model, in which the added layers are dense; none
    /// for a dense model. What the checkpoint's own says otherwise is kept.
    ///
    /// # Errors
    /// Those of the quantizer.
    pub fn quantization_config(&self, after: &Model) -> Result<Option<Json>, Error> {
        let config = self.source.opened_model.directory.config();
        let weights: BTreeMap<usize, _> = self.bases.packed().collect();
        let Some(first) = weights.values().next() else {
            return Ok(None);
        };
        let before: Vec<(String, usize)> = weights
            .keys()
            .map(|&site| (self.source.sites[site].name.clone(), site))
            .collect();
        let of = |packed: &[(String, usize)], sites: &[Site]| {
            let dense = sites.iter().filter(|site| {
                let is_packed = packed.iter().any(|(module, _)| *module == site.name);
                site.kind != SiteKind::Embedding && !is_packed
            });
            let model = SavedModel {
                dtype: stored_dtype(config),
                dense_modules: dense.map(|site| site.name.clone()).collect(),
                configs: BTreeMap::new(),
            };
            let named = packed.iter();
            let named = named.map(|(module, site)| (module.clone(), weights[site].quantizer));
            config_of_all(named, first.quantizer, model)
        };
        let own = &config["quantization_config"];
        let [old, new] = [
            of(&before, &self.source.sites)?,
            of(&self.packed, &splice::sites(after))?,
        ];
        Ok(Some(with_changes(own, &old, &new)))
    }
}

impl<'a> Originals<'a> {
    /// Tensors under another prefix.
    fn moved(
        &self,
        group: &[&'a TensorEntry],
        from: &str,
        to: &str,
    ) -> Result<Vec<Output<'a>>, Error> {
        let outputs = group.iter().map(|&entry| {
            let spec = copy::spec(&self.source.store, entry, None)?;
            Ok(Output {
                spec: TensorSpec {
                    name: format!("{to}{}", &entry.name[from.len()..]),
                    ..spec
                },
                content: if self.bases.is_part(&entry.name) {
                    Content::Part(entry)
                } else {
                    Content::Copy(entry)
                },
            })
        });
        outputs.collect()
    }

    /// The tensors of an added layer: dense, and zero where that makes it an identity.
    fn copied(
        &self,
        group: &[&'a TensorEntry],
        from: &str,
        to: &str,
    ) -> Result<Vec<Output<'a>>, Error> {
        let dense: Vec<&TensorEntry> = group
            .iter()
            .copied()
            .filter(|entry| !self.bases.is_part(&entry.name))
            .collect();
        let mut outputs = self.moved(&dense, from, to)?;
        for (output, entry) in outputs.iter_mut().zip(dense) {
            if self.zeros.contains(&entry.name) {
                output.content = Content::Zeros;
            }
        }
        let mut packed = self.packed_sites.iter();
        let found = packed.find(|(module, _)| is_in(&group[0].name, module));
        if let Some((module, &site)) = found {
            let weight = format!("{module}.weight");
            let content = if self.zeros.contains(&weight) {
                Content::Zeros
            } else {
                Content::Decoded(site)
            };
            let name = format!("{to}{}", &weight[from.len()..]);
            let dtype = self.bases.of(site)?.dtype();
            let spec = TensorSpec::new(name, dtype, self.source.sites[site].shape);
            outputs.push(Output { spec, content });
        }
        Ok(outputs)
    }
}

/// The stored names of the params that are zero in a copied layer; those of packed weights as if
/// they were dense.
fn zeros(source: &Source<'_>, placed: &[Placed]) -> Result<HashSet<String>, Error> {
    let model = &source.opened_model.model;
    let family = &source.opened_model.components.family;
    let old = layers(model);
    let packed = source.opened_model.components.quantizers.packed();
    let mut zeros = HashSet::new();
    for layer in placed.iter().filter(|layer| layer.added) {
        let unit = old[layer.source];
        let graph = &model.graphs[unit.graph];
        let params = identity_params(graph).map_err(|error| {
            Error::Usage(UsageError {
                message: format!("family `{}`: {}", family.identity.component, error.message),
                next_step: "expand a model of a family whose layers add products to their input"
                    .to_owned(),
            })
        })?;
        for local in params {
            let param = unit.params[local];
            let name = &model.params[param].name;
            let module = name.strip_suffix(".weight").unwrap_or(name);
            let is_packed = packed.is_some_and(|packed| packed.quantizer_of(module).is_some());
            let stored = if is_packed {
                name.clone()
            } else {
                source.stored_name(param)?
            };
            if !stored.starts_with(&unit.prefix) {
                return Err(Error::Weights(WeightsError {
                    path: source.opened_model.directory.path().to_owned(),
                    message: format!(
                        "tensor `{stored}` is not one of layer `{}` alone",
                        unit.name
                    ),
                }));
            }
            zeros.insert(stored);
        }
    }
    Ok(zeros)
}

/// Whether tensor `name` belongs to `module`.
fn is_in(name: &str, module: &str) -> bool {
    let rest = name.strip_prefix(module);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

/// The layer that tensor `name` belongs to.
fn layer_of(layers: &[&Unit], name: &str) -> Option<usize> {
    let is_of = |unit: &&Unit| !unit.prefix.is_empty() && name.starts_with(&unit.prefix);
    layers.iter().position(is_of)
}

/// `own` with what differs between `old` and `new`.
fn with_changes(own: &Json, old: &Json, new: &Json) -> Json {
    let mut changed = own.clone();
    if let (Some(entries), Some(new)) = (changed.as_object_mut(), new.as_object()) {
        for (key, value) in new
            .iter()
            .filter(|(key, value)| old.get(key) != Some(value))
        {
            entries.insert(key.clone(), value.clone());
        }
    }
    changed
}
