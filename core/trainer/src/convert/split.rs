//! A dense model and an adapter that begins with a part of its weights -> the base without that
//! part, packed where a quantizer packs it, and the adapter: two directories to train with.

mod begun_site;

use std::collections::{BTreeMap, HashMap};

use espalier_config::ResolvedConfig;
use espalier_engine::load::read_weight;
use espalier_engine::observer::{Event, Observer};
use espalier_interface::adaptation::{Adaptation, BaseChange, Site};
use espalier_interface::{Adapter, DType};
use espalier_plan::plan::Purpose;
use espalier_registry::{Chosen, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::{
    self, Existing, GroupSink, MAX_SHARD_BYTES, NewModel, PendingDirectory, TensorSpec,
};
use espalier_system::stop::StopFlag;
use serde_json::json;

use self::begun_site::{BegunSite, SiteAdapter};
use super::quantize::{Packer, Plan, PlannedTensor, the_quantizer, weights_to_pack};
use super::{Converted, Source, new_directory};
use crate::Error;
use crate::tensor_copy as copy;

/// The base's directory in the one that is written, and the adapter's.
pub const DIRECTORIES: [&str; 2] = ["base", "adapter"];

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Split {
    /// The tensors of the base; the changed ones are packed, or lack the adapter's part.
    pub base: Converted,
    /// Sites with a changed base.
    pub sites: u64,
    /// Numbers of the adapter.
    pub params: u64,
    /// How far packed weights are from the dense ones.
    pub errors: PackingErrors,
}

/// Sums of squares over the packed weights with a changed base.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PackingErrors {
    /// The dense weights.
    pub weights: f64,
    /// Their differences from the packed base and the adapter's part together.
    pub with_adapter: f64,
    /// Their differences from themselves packed: the error of an adapter that begins as zero.
    pub packed_alone: f64,
}

impl PackingErrors {
    /// The errors relative to the weights, with the adapter and packed alone; `None` where no such
    /// weight is packed.
    pub fn relative(&self) -> Option<[f64; 2]> {
        let of = |sum: f64| (sum / self.weights).sqrt();
        (self.weights > 0.0).then(|| [of(self.with_adapter), of(self.packed_alone)])
    }
}

/// Splits the model of the config into the new directory `run.out`, which gets the directories
/// `base` and `adapter`.
///
/// # Errors
/// No adapter, a saved one, or one that leaves the base as it is; a packed model; a site whose
/// weight another site shares; a weight that is missing or not finite; a full disk. The output is
/// then removed.
pub fn split(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Split, Error> {
    let out = new_directory(resolved)?;
    let one_rank = BTreeMap::from([("run.ranks", json!(1)), ("run.devices", json!([]))]);
    let resolved = resolved.with_values("host split", one_rank)?;
    refuse_saved(&resolved)?;
    let source = Source::open_for(&resolved, Purpose::Train, stop)?;
    let weights = weights_to_pack(&source)?;
    let quantizer = the_quantizer(&weights)?;
    let (adapter, adaptation, change) = beginning(&source)?;
    let plan = Plan::new(&source, &weights, quantizer)?;
    let joins = changed_joins(&source, &adaptation, &change, &plan, adapter)?;
    let base_model = out.join(DIRECTORIES[0]).display().to_string();
    let adapter_config = answer::saved_config(adapter, &source.sites, &base_model)?;
    let pending = PendingDirectory::begin(out)?;
    let mut splitter = Splitter {
        plan: &plan,
        joins,
        packer: Packer::new(&source),
        sites: SiteAdapter::new(&source, adapter, &adaptation, change.rounds)?,
        source: &source,
        done: Split::default(),
    };
    splitter.write_base(&pending, observer, stop)?;
    let Splitter { sites, done, .. } = splitter;
    let specs = adaptation.params.iter();
    let specs = specs.map(|one| TensorSpec::new(one.name.clone(), DType::F32, one.shape.clone()));
    let specs: Vec<TensorSpec> = specs.collect();
    let path = pending.path().join(DIRECTORIES[1]);
    files::write_adapter(&path, &adapter_config, &specs, |index, sink| {
        Ok::<_, Error>(sink.write_f32(&sites.params()[index])?)
    })?
    .commit()?;
    pending.commit()?;
    observer.observe(&Event::Saved(out));
    let numbers = sites.params().iter().map(|values| values.len() as u64);
    Ok(Split {
        params: numbers.sum(),
        ..done
    })
}

/// Refuses a saved adapter, which begins as it was saved.
fn refuse_saved(resolved: &ResolvedConfig) -> Result<(), Error> {
    match &resolved.config().model.adapter {
        None => Ok(()),
        Some(saved) => Err(Error::Usage(UsageError {
            message: format!(
                "model.adapter is a saved adapter, {}, and host split makes a new one from the \
                 weights",
                saved.display()
            ),
            next_step: "leave model.adapter out; merge the saved one first (host merge), to begin \
                        from its model"
                .to_owned(),
        })),
    }
}

/// The adapter, what it adds, and how it changes the base.
fn beginning<'a>(
    source: &'a Source<'_>,
) -> Result<(&'a Chosen<dyn Adapter>, Adaptation, BaseChange), Error> {
    let usage =
        |message: String, next_step: String| Err(Error::Usage(UsageError { message, next_step }));
    let Some(adapter) = &source.opened_model.components.adapter else {
        return usage(
            "no adapter was named".to_owned(),
            "name one that begins with a part of the weights: --plugins lora --set \
             adapter.lora.init=pissa"
                .to_owned(),
        );
    };
    let adaptation = answer::adaptation(adapter, &source.sites)?;
    let name = &adapter.identity.component;
    let Some(change) = adaptation.base_change.clone() else {
        return usage(
            format!("adapter `{name}` leaves the base as it is, so that there is nothing to split"),
            format!("train with it as it is, or set how it begins: `host plugins inspect {name}`"),
        );
    };
    let of_change = |param: &usize| {
        let mut changed = change.joins.iter();
        changed.any(|&join| adaptation.joins[join].params.contains(param))
    };
    match (0..adaptation.params.len()).find(|param| !of_change(param)) {
        None => Ok((adapter, adaptation, change)),
        Some(other) => usage(
            format!(
                "adapter `{name}`: param `{}` belongs to a site whose base stays as it is, and \
                 host split makes only those of changed ones",
                adaptation.params[other].name
            ),
            "let the adapter join sites with a changed base alone".to_owned(),
        ),
    }
}

/// The joins with a changed base, by the stored name of their weight.
fn changed_joins(
    source: &Source<'_>,
    adaptation: &Adaptation,
    change: &BaseChange,
    plan: &Plan<'_>,
    adapter: &Chosen<dyn Adapter>,
) -> Result<HashMap<String, usize>, Error> {
    let name = &adapter.identity.component;
    let mut joins = HashMap::new();
    for &index in &change.joins {
        let site = &source.sites[adaptation.joins[index].site];
        let shared = |other: &Site| other.tied_to.as_ref() == Some(&site.name);
        if site.tied_to.is_some() || source.sites.iter().any(shared) {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "adapter.{name}.{} changes the base at `{}`, which shares its weight with \
                     another site (tie_word_embeddings)",
                    change.option, site.name
                ),
                next_step: format!("leave it out of the sites of adapter `{name}`"),
            }));
        }
        let stored = source.stored_weight(site)?;
        let mut tensors = plan.tensors.iter();
        let packs = tensors.any(|one| one.entry.name == stored && one.packed.is_some());
        if change.rounds > 0 && !packs {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "adapter.{name}.{} lets the adapter begin with what packing loses, and no \
                     quantizer packs `{}` (plugins, [[sites]])",
                    change.option, site.name
                ),
                next_step: format!(
                    "name a quantizer, --plugins nf4,{name}, or another {}",
                    change.option
                ),
            }));
        }
        joins.insert(stored, index);
    }
    Ok(joins)
}

/// The writing of a base.
struct Splitter<'a> {
    source: &'a Source<'a>,
    plan: &'a Plan<'a>,
    /// Joins with a changed base, by the stored name of their weight.
    joins: HashMap<String, usize>,
    packer: Packer<'a>,
    sites: SiteAdapter<'a>,
    done: Split,
}

impl Splitter<'_> {
    /// Writes the base into the directory `pending`.
    fn write_base(
        &mut self,
        pending: &PendingDirectory,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<(), Error> {
        let path = pending.path().join(DIRECTORIES[0]);
        let model = NewModel {
            path: &path,
            config: &self.plan.config(self.source),
            source: &self.source.opened_model.directory,
            existing: Existing::Refuse,
            max_shard_bytes: MAX_SHARD_BYTES,
        };
        let tensors = &self.plan.tensors;
        let specs = tensors.iter().map(|tensor| tensor.specs.clone());
        let groups: Vec<Vec<TensorSpec>> = specs.collect();
        self.done.base.bytes_before = self.source.store.bytes();
        files::write_model_groups(&model, &groups, |index, sink| {
            stop.check()?;
            let tensor = &tensors[index];
            self.write(tensor, sink)?;
            observer.observe(&Event::WriteProgress {
                tensor: &tensor.entry.name,
                done: index as u64 + 1,
                total: groups.len() as u64,
            });
            Ok::<_, Error>(())
        })?;
        self.done.base.bytes_after = files::ModelDirectory::open(&path)?.tensors()?.bytes();
        Ok(())
    }

    fn write(
        &mut self,
        tensor: &PlannedTensor<'_>,
        sink: &mut GroupSink<'_, '_>,
    ) -> Result<(), Error> {
        let entry = tensor.entry;
        match (self.joins.get(&entry.name), &tensor.packed) {
            (Some(&join), packed) => {
                let mut weight = vec![0.0; entry.elements() as usize];
                read_weight(&self.source.store, &entry.name, &mut weight)?;
                let begun = BegunSite {
                    adapter: &mut self.sites,
                    packer: &mut self.packer,
                    join,
                    entry,
                };
                match packed {
                    Some(packed) => {
                        let (segments, errors) = begun.packed(&weight, packed)?;
                        packed.write(&segments, sink)?;
                        let sums = &mut self.done.errors;
                        sums.weights += errors.weights;
                        sums.with_adapter += errors.with_adapter;
                        sums.packed_alone += errors.packed_alone;
                    }
                    None => copy::write_rounded(&mut sink.tensor(0), &begun.dense(&weight)?)?,
                }
                self.done.sites += 1;
                self.done.base.changed += 1;
            }
            (None, Some(packed)) => {
                self.packer.pack(entry, packed, sink)?;
                self.done.base.changed += 1;
            }
            (None, None) => {
                copy::copy(&self.source.store, entry, &mut sink.tensor(0))?;
                self.done.base.copied += 1;
            }
        }
        Ok(())
    }
}
