//! A model and an adapter -> a complete model directory with the adapter merged into the weights; a
//! packed model alone -> its dense weights.

use std::collections::BTreeMap;
use std::path::Path;

use espalier_compile::splice;
use espalier_config::ResolvedConfig;
use espalier_engine::device_graph::GraphKernels;
use espalier_engine::load::{read_weight, stored_name};
use espalier_engine::observer::{Event, Observer};
use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::{Adapter, DType};
use espalier_registry::{Chosen, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::{
    self, AdapterDirectory, Existing, GroupSink, MAX_SHARD_BYTES, ModelDirectory, NewModel,
    TensorEntry, TensorSpec,
};
use espalier_system::stop::StopFlag;
use serde_json::{Value as Json, json};

use super::base_weight::{BaseWeight, BaseWeights};
use super::fragment;
use super::joined::Joined;
use super::saved_param;
use super::{Base, Converted, Source, new_directory};
use crate::Error;
use crate::calibration::TrainingRows;
use crate::tensor_copy as copy;

/// How an adapter is merged.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeOptions {
    /// The weights it is added to; unset: decoded where the checkpoint is packed, original
    /// otherwise.
    pub base: Option<Base>,
    /// Dtype of all weights written; unset: each as it was stored.
    pub dtype: Option<DType>,
}

/// Merges the adapter of the config into its model, and writes the new directory `run.out`. A
/// packed model without an adapter is unpacked.
///
/// # Errors
/// No adapter for a dense model, one of another model, one that is not linear; a weight that is
/// missing or not finite; a full disk. The output is then removed.
pub fn merge(
    resolved: &ResolvedConfig,
    options: MergeOptions,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Converted, Error> {
    let out = new_directory(resolved)?;
    let source = Source::open(resolved, stop)?;
    let components = &source.opened_model.components;
    let adapter = components.adapter.as_ref();
    let adapter = adapter.zip(components.saved_adapter.as_ref());
    let adaptation = match adapter {
        Some((adapter, saved)) => checked_adaptation(&source, adapter, saved)?,
        None if components.quantizers.packed().is_some() => Adaptation::default(),
        None => {
            return Err(Error::Usage(UsageError {
                message: "no adapter to merge was given".to_owned(),
                next_step: "name its directory with --adapter DIR".to_owned(),
            }));
        }
    };
    write(
        out,
        &source,
        adapter,
        &adaptation,
        options,
        TrainingRows::None,
        (observer, stop),
    )
}

/// Writes what the packed weights of the config's model decode to into the new directory `run.out`,
/// all in f32, so that no decoded number is rounded. A dense model is packed for it.
///
/// # Errors
/// No quantizer for a dense model; a weight that is missing or not finite; errors of the
/// quantizer; a full disk. The output is then removed.
pub fn decode(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Converted, Error> {
    let out = new_directory(resolved)?;
    let source = Source::open(resolved, stop)?;
    let options = MergeOptions {
        base: Some(Base::Decoded),
        dtype: Some(DType::F32),
    };
    let nothing = Adaptation::default();
    write(
        out,
        &source,
        None,
        &nothing,
        options,
        TrainingRows::InFiles,
        (observer, stop),
    )
}

/// Writes the model of `source`, with what the adapter adds, where there is one.
fn write(
    out: &Path,
    source: &Source<'_>,
    adapter: Option<(&Chosen<dyn Adapter>, &AdapterDirectory)>,
    adaptation: &Adaptation,
    options: MergeOptions,
    rows: TrainingRows<'_>,
    (observer, stop): (&dyn Observer, &StopFlag),
) -> Result<Converted, Error> {
    let bases = BaseWeights::new(source, options.base, rows, observer, stop)?;
    let norms = match adapter {
        Some((adapter, _)) => replaced_norms(source, adapter, adaptation)?,
        None => BTreeMap::new(),
    };
    let outputs = outputs(source, adaptation, &norms, &bases, options.dtype)?;
    let config = merged_config(source, adaptation);
    let model = NewModel {
        path: out,
        config: &config,
        source: &source.opened_model.directory,
        existing: Existing::Refuse,
        max_shard_bytes: MAX_SHARD_BYTES,
    };
    let groups: Vec<Vec<TensorSpec>> = outputs.iter().map(|output| output.specs.clone()).collect();
    let mut merger = Merger {
        source,
        adaptation,
        adapter,
        bases: &bases,
        kernels: source.opened_model.graph_kernels()?,
    };
    let mut converted = Converted {
        bytes_before: source.store.bytes(),
        ..Converted::default()
    };
    let total = outputs.len() as u64;
    files::write_model_groups(&model, &groups, |index, sink| {
        stop.check()?;
        let output = &outputs[index];
        merger.write(output, sink)?;
        match output.action {
            Action::Copy(_) => converted.copied += 1,
            Action::Norm(_) | Action::Weight { .. } => converted.changed += 1,
        }
        observer.observe(&Event::WriteProgress {
            tensor: &output.specs[0].name,
            done: index as u64 + 1,
            total,
        });
        Ok::<_, Error>(())
    })?;
    converted.bytes_after = written_bytes(out)?;
    observer.observe(&Event::Saved(out));
    Ok(converted)
}

/// What `adapter` adds to the model, once its files are those of it and can be merged.
fn checked_adaptation(
    source: &Source<'_>,
    adapter: &Chosen<dyn Adapter>,
    saved: &AdapterDirectory,
) -> Result<Adaptation, Error> {
    let model = &source.opened_model.model;
    // The source's own sites come first.
    let sites = answer::adapter_sites(adapter, model)?;
    let adaptation = answer::adaptation(adapter, &sites)?;
    saved_param::check(&adaptation, saved)?;
    for join in &adaptation.joins {
        fragment::check(&join.fragment).map_err(|error| adapter.failed("merge", error))?;
    }
    Ok(adaptation)
}

fn written_bytes(out: &Path) -> Result<u64, Error> {
    Ok(ModelDirectory::open(out)?.tensors()?.bytes())
}

/// Tensors of the new directory that are computed together.
struct Output<'a> {
    specs: Vec<TensorSpec>,
    action: Action<'a>,
}

enum Action<'a> {
    /// Copied unchanged.
    Copy(&'a TensorEntry),
    /// An adapter's param in place of a norm's weight, by its index.
    Norm(usize),
    /// A site's weight, and its bias where an adapter can change it.
    Weight {
        site: &'a Site,
        join: Option<usize>,
        base: BaseWeight<'a>,
        bias: Option<String>,
    },
}

/// The stored names of the norms that `adapter` replaces, with its params.
fn replaced_norms(
    source: &Source<'_>,
    adapter: &Chosen<dyn Adapter>,
    adaptation: &Adaptation,
) -> Result<BTreeMap<String, usize>, Error> {
    let sites = answer::adapter_sites(adapter, &source.opened_model.model)?;
    let norms = adaptation.norms.iter();
    norms
        .map(|norm| Ok((source.stored_weight(&sites[norm.site])?, norm.param)))
        .collect()
}

/// The output of every stored tensor, in their order.
fn outputs<'a>(
    source: &'a Source<'a>,
    adaptation: &Adaptation,
    norms: &BTreeMap<String, usize>,
    bases: &'a BaseWeights<'a>,
    dtype: Option<DType>,
) -> Result<Vec<Output<'a>>, Error> {
    let join_of = |index: usize| adaptation.joins.iter().position(|join| join.site == index);
    let mut changed: Vec<(String, Output<'a>)> = Vec::new();
    let mut done: Vec<String> = Vec::new();
    for (index, site) in source.sites.iter().enumerate() {
        let (join, base) = (join_of(index), bases.of(index)?);
        if join.is_none() && base.is_dense() && !untied(source, adaptation, site) {
            continue;
        }
        let name = format!("{}.weight", site.name);
        let stored = base.dtype();
        let spec = TensorSpec::new(name.clone(), dtype.unwrap_or(stored), site.shape);
        let mut specs = vec![spec];
        let bias = join.and_then(|_| bias_of(source, site)).transpose()?;
        if let Some(bias) = &bias {
            let entry = source.store.entry(bias)?;
            specs.push(copy::spec(&source.store, entry, dtype)?);
            done.push(bias.clone());
        }
        let action = Action::Weight {
            site,
            join,
            base,
            bias,
        };
        changed.push((name, Output { specs, action }));
    }
    let mut outputs = Vec::new();
    for entry in source.store.entries() {
        match changed.iter().position(|(name, _)| *name == entry.name) {
            Some(at) => outputs.push(changed.remove(at).1),
            None if done.contains(&entry.name) || bases.is_part(&entry.name) => {}
            None => outputs.push(Output {
                specs: vec![copy::spec(&source.store, entry, dtype)?],
                action: match norms.get(&entry.name) {
                    Some(&param) => Action::Norm(param),
                    None => Action::Copy(entry),
                },
            }),
        }
    }
    // Weights stored under another name: a tied head that becomes untied.
    outputs.extend(changed.into_iter().map(|(_, output)| output));
    Ok(outputs)
}

/// True where `site` shares its weight with another site, and an adapter changes only one of them.
fn untied(source: &Source<'_>, adaptation: &Adaptation, site: &Site) -> bool {
    let shares = |other: &Site| {
        other.tied_to.as_ref() == Some(&site.name) || site.tied_to.as_ref() == Some(&other.name)
    };
    let tied = site.tied_to.is_some() || source.sites.iter().any(shares);
    let mut joined = adaptation.joins.iter().map(|join| &source.sites[join.site]);
    tied && joined.any(|other| shares(other) || other.name == site.name)
}

/// The stored name of the bias that `site` adds, where its operation has one.
fn bias_of(source: &Source<'_>, site: &Site) -> Option<Result<String, Error>> {
    let model = &source.opened_model.model;
    let param = *splice::params_of(model, &site.name)?.get(1)?;
    let spec = &model.params[param];
    let (name, aliases) = (&spec.name, &spec.aliases);
    let stored = stored_name(&source.store, name, aliases, &spec.shape);
    Some(stored.map_err(Error::from))
}

/// The config of the merged model: dense, and untied where the adapter changes only one of head and
/// table.
fn merged_config(source: &Source<'_>, adaptation: &Adaptation) -> Json {
    let mut config = source.opened_model.directory.config().clone();
    if let Some(entries) = config.as_object_mut() {
        entries.shift_remove("quantization_config");
    }
    if source
        .sites
        .iter()
        .any(|site| untied(source, adaptation, site))
    {
        config["tie_word_embeddings"] = json!(false);
    }
    config
}

struct Merger<'a> {
    source: &'a Source<'a>,
    adaptation: &'a Adaptation,
    /// The adapter and its files; without one, nothing joins a site.
    adapter: Option<(&'a Chosen<dyn Adapter>, &'a AdapterDirectory)>,
    bases: &'a BaseWeights<'a>,
    kernels: GraphKernels,
}

impl Merger<'_> {
    fn write(&mut self, output: &Output<'_>, sink: &mut GroupSink<'_, '_>) -> Result<(), Error> {
        let (site, join, base, bias) = match &output.action {
            Action::Copy(entry) => {
                return copy::copy(&self.source.store, entry, &mut sink.tensor(0));
            }
            Action::Norm(param) => {
                let (_, saved) = self.adapter.expect("only an adapter replaces a norm");
                let values = self.adapter_param(saved, *param)?;
                return copy::write_rounded(&mut sink.tensor(0), &values);
            }
            Action::Weight {
                site,
                join,
                base,
                bias,
            } => (site, join, base, bias),
        };
        let weight = self.bases.read(base, site)?;
        let Some(join) = join else {
            return copy::write_rounded(&mut sink.tensor(0), &weight);
        };
        let bias = match bias {
            Some(name) => Some(self.tensor(name)?),
            None => None,
        };
        let (merged, merged_bias) = self.joined(site, *join, &weight, bias.as_deref())?;
        copy::write_rounded(&mut sink.tensor(0), &merged)?;
        if bias.is_some() {
            copy::write_rounded(&mut sink.tensor(1), &merged_bias)?;
        }
        Ok(())
    }

    /// The merged weight and bias of `site`.
    fn joined(
        &self,
        site: &Site,
        join: usize,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<(Vec<f32>, Vec<f32>), Error> {
        let join = &self.adaptation.joins[join];
        let (adapter, saved) = self.adapter.expect("only an adapter joins a site");
        let mut params = vec![Vec::new(); join.fragment.params.len()];
        if let Some(local) = join.base_weight() {
            params[local] = weight.to_vec();
        }
        for (local, bound) in join.bound() {
            params[local] = self.adapter_param(saved, bound)?;
        }
        let joined = Joined {
            kernels: &self.kernels,
            services: self.source.opened_model.services,
            site,
            graph: &join.fragment,
            params: &params,
        };
        let mut merged = vec![0.0; weight.len()];
        let bias = joined
            .merge(weight, bias, &mut merged)
            .map_err(|error| adapter.failed("merge", error))?;
        Ok((merged, bias))
    }

    fn adapter_param(&self, saved: &AdapterDirectory, index: usize) -> Result<Vec<f32>, Error> {
        saved_param::values(
            self.adaptation,
            saved,
            index,
            self.source.opened_model.services,
        )
    }

    fn tensor(&self, name: &str) -> Result<Vec<f32>, Error> {
        let entry = self.source.store.entry(name)?;
        let mut values = vec![0.0; entry.elements() as usize];
        read_weight(&self.source.store, name, &mut values)?;
        Ok(values)
    }
}
