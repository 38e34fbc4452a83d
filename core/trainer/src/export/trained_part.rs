//! Trained weights and the files of the model that they are a part of -> a model directory with
//! both.
//!
//! Frozen weights are copied from the files, also where the run packed them: so the result is what
//! `host merge` makes of an adapter. Where the files hold them packed, they stay packed.

use std::collections::HashSet;
use std::path::PathBuf;

use espalier_compile::params::Param;
use espalier_engine::gather::{follow, gather_f32};
use espalier_engine::load::stored_name;
use espalier_engine::team::Team;
use espalier_interface::WeightLayout;
use espalier_system::files::{
    self, Existing, ModelDirectory, NewModel, TensorEntry, TensorSpec, TensorStore,
};

use super::Export;
use crate::Error;
use crate::tensor_copy::{self as copy, module_groups};

/// Writes the model for the directory `target`. Every process calls this; the first one writes.
///
/// # Errors
/// A tensor that is missing; a full disk or another write error; errors of the
/// backend.
pub fn model(team: &Team, source: &ModelDirectory, target: PathBuf) -> Result<Export, Error> {
    let all = team.first().params();
    let trained: Vec<usize> = (0..all.len()).filter(|&one| all[one].trainable).collect();
    if !team.world().writes() {
        follow(team, &trained)?;
        let pending = None;
        return Ok(Export { target, pending });
    }
    let store = source.tensors()?;
    let frozen = frozen_groups(&store, all);
    let mut groups = Vec::with_capacity(frozen.len() + trained.len());
    for group in &frozen {
        let specs = group.iter().map(|entry| copy::spec(&store, entry, None));
        groups.push(specs.collect::<Result<Vec<TensorSpec>, Error>>()?);
    }
    for &index in &trained {
        let Param {
            name,
            aliases,
            shape,
            ..
        } = &all[index];
        let stored = stored_name(&store, name, aliases, shape)?;
        groups.push(vec![copy::spec(&store, store.entry(&stored)?, None)?]);
    }
    let model = NewModel {
        path: &target,
        config: source.config(),
        source,
        existing: Existing::Replace,
        max_shard_bytes: files::MAX_SHARD_BYTES,
    };
    let pending = files::write_pending_model(&model, &groups, |index, sink| {
        let Some(entries) = frozen.get(index) else {
            let param = trained[index - frozen.len()];
            let mut sink = sink.tensor(0);
            gather_f32(team, param, &mut |part| Ok(sink.write_f32(part)?))?;
            return Ok(());
        };
        // The weights were checked when they were loaded; packed ones may be stored as floats.
        for (at, entry) in entries.iter().enumerate() {
            copy::copy_bytes(&store, entry, &mut sink.tensor(at))?;
        }
        Ok::<_, Error>(())
    })?;
    let pending = Some(pending);
    Ok(Export { target, pending })
}

/// The stored tensors of all weights that are not trained; those of a packed weight are together.
fn frozen_groups<'s>(store: &'s TensorStore, all: &[Param]) -> Vec<Vec<&'s TensorEntry>> {
    let trained = all.iter().filter(|param| param.trainable);
    let trained: HashSet<&str> = trained
        .flat_map(|param| std::iter::once(&param.name).chain(&param.aliases))
        .map(String::as_str)
        .collect();
    let packed = all
        .iter()
        .filter(|param| matches!(param.layout, WeightLayout::Packed(_)));
    let modules = packed.filter_map(|param| param.name.strip_suffix(".weight"));
    let modules: HashSet<&str> = modules.collect();
    let entries: Vec<&TensorEntry> = store
        .entries()
        .iter()
        .filter(|entry| !trained.contains(entry.name.as_str()))
        .collect();
    let names = entries.iter().map(|entry| entry.name.as_str());
    let groups = module_groups(names, &modules).into_iter();
    groups
        .map(|group| group.into_iter().map(|index| entries[index]).collect())
        .collect()
}
