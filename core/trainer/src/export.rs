//! What was trained -> files that the ecosystem reads: a PEFT adapter directory, or a whole model's.

use std::path::{Path, PathBuf};

use espalier_interface::adaptation::Site;
use espalier_interface::{Adapter, DType, PluginError};

use crate::Error;
use crate::answer;
use crate::files::{self, ModelDirectory, TensorSpec};
use crate::gather::{follow, gather_f32};
use crate::select::Chosen;
use crate::team::Team;

/// Writes `adapter/` into `out`: f32, in PEFT's names. Every process calls this; the first one writes.
///
/// # Errors
/// A full disk or another failure to write; what the adapter or the backend reports.
pub fn adapter(
    team: &Team,
    adapter: &Chosen<dyn Adapter>,
    sites: &[Site],
    base_model: &str,
    out: &Path,
) -> Result<PathBuf, Error> {
    let target = out.join("adapter");
    let config = answer::saved_config(adapter, sites, base_model)?;
    let all = team.first().params();
    let of_adapter = |index: &usize| all[*index].kind.is_none();
    let params: Vec<usize> = (0..all.len()).filter(of_adapter).collect();
    if !team.world().writes() {
        follow(team, &params)?;
        return Ok(target);
    }
    let specs: Vec<TensorSpec> = params
        .iter()
        .map(|&index| {
            let param = &all[index];
            TensorSpec::new(param.name.clone(), DType::F32, param.shape.clone())
        })
        .collect();
    files::write_adapter(&target, &config, &specs, |index, sink| {
        gather_f32(team, params[index], &mut |part| Ok(sink.write_f32(part)?))
    })?;
    Ok(target)
}

/// Writes `model/` into `out`: a complete Hugging Face directory in `dtype`. Every process calls this; the first one writes.
///
/// # Errors
/// As [`adapter`].
pub fn model(
    team: &Team,
    source: &ModelDirectory,
    dtype: DType,
    out: &Path,
) -> Result<PathBuf, Error> {
    let target = out.join("model");
    let all = team.first().params();
    if !team.world().writes() {
        follow(team, &(0..all.len()).collect::<Vec<_>>())?;
        return Ok(target);
    }
    let specs: Vec<TensorSpec> = all
        .iter()
        .map(|param| TensorSpec::new(param.name.clone(), dtype, param.shape.clone()))
        .collect();
    let config = source.config().clone();
    files::write_model(
        &target,
        &config,
        source,
        &specs,
        files::MAX_SHARD_BYTES,
        |index, sink| {
            gather_f32(team, index, &mut |part| {
                Ok::<_, Error>(sink.write_f32(part)?)
            })
        },
    )?;
    Ok(target)
}

impl From<PluginError> for Error {
    fn from(error: PluginError) -> Self {
        Error::plugin("backend", "download", error)
    }
}
