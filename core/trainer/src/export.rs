//! What was trained -> files that the ecosystem reads: a PEFT adapter directory, or a whole model's.

use std::path::{Path, PathBuf};

use espalier_interface::adaptation::Site;
use espalier_interface::{Adapter, DType, PluginError};

use crate::Error;
use crate::answer;
use crate::executor::Executor;
use crate::files::{self, ModelDirectory, TensorSpec};
use crate::select::Chosen;

/// Writes `adapter/` into `out`: f32, in PEFT's names.
///
/// # Errors
/// A full disk or another failure to write; what the adapter or the backend reports.
pub fn adapter(
    executor: &Executor,
    adapter: &Chosen<dyn Adapter>,
    sites: &[Site],
    base_model: &str,
    out: &Path,
) -> Result<PathBuf, Error> {
    let target = out.join("adapter");
    let config = answer::saved_config(adapter, sites, base_model)?;
    let of_adapter = |index: &usize| executor.params()[*index].kind.is_none();
    let params: Vec<usize> = (0..executor.params().len()).filter(of_adapter).collect();
    let specs: Vec<TensorSpec> = params
        .iter()
        .map(|&index| {
            let param = &executor.params()[index];
            TensorSpec::new(param.name.clone(), DType::F32, param.shape.clone())
        })
        .collect();
    files::write_adapter(&target, &config, &specs, |index, sink| {
        executor.param_parts(params[index], &mut |part| {
            Ok::<_, Error>(sink.write_f32(part)?)
        })
    })?;
    Ok(target)
}

/// Writes `model/` into `out`: a complete Hugging Face directory in `dtype`.
///
/// # Errors
/// As [`adapter`].
pub fn model(
    executor: &Executor,
    source: &ModelDirectory,
    dtype: DType,
    out: &Path,
) -> Result<PathBuf, Error> {
    let target = out.join("model");
    let specs: Vec<TensorSpec> = executor
        .params()
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
            executor.param_parts(index, &mut |part| Ok::<_, Error>(sink.write_f32(part)?))
        },
    )?;
    Ok(target)
}

impl From<PluginError> for Error {
    fn from(error: PluginError) -> Self {
        Error::plugin("backend", "download", error)
    }
}
