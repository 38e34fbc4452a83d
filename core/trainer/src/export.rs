//! Trained params -> a PEFT adapter directory, or a Hugging Face model directory.

mod exported;
mod trained_part;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use espalier_engine::gather::{follow, gather_f32};
use espalier_engine::team::Team;
use espalier_interface::adaptation::Site;
use espalier_interface::{Adapter, DType};
use espalier_registry::{Chosen, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::{self, ModelDirectory, PendingDirectory, TensorSpec};

use crate::Error;

pub(crate) use exported::{EXPORTED, ExportRecord, Exported, last_step};

/// A directory written to `.partial`; dropped without [`Export::commit`], it is removed.
#[derive(Debug)]
pub struct Export {
    target: PathBuf,
    /// `None` in a process that does not write.
    pending: Option<PendingDirectory>,
}

impl Export {
    /// The hashes of its files; `None` in a process that does not write.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn exported(&self) -> Result<Option<Exported>, Error> {
        let name = self.target.file_name().unwrap_or_default();
        let hashed =
            |pending: &PendingDirectory| Exported::of(pending.path(), &name.to_string_lossy());
        self.pending.as_ref().map(hashed).transpose()
    }

    /// Adds the files of the tokenizer of `model`, and `chat_template` where the run chose another
    /// one than the tokenizer's. transformers and PEFT look for them beside the weights.
    ///
    /// # Errors
    /// A file that cannot be read, a full disk or another write error.
    pub fn with_tokenizer(
        self,
        model: &ModelDirectory,
        chat_template: Option<&str>,
    ) -> Result<Self, Error> {
        if let Some(pending) = &self.pending {
            let missing = |file: &PathBuf| {
                let name = file.file_name().expect("the name of a file");
                !pending.path().join(name).exists()
            };
            let mut tokenizer = model.tokenizer_files()?;
            tokenizer.retain(missing);
            files::copy_files(&tokenizer, pending.path(), &self.target)?;
            if let Some(text) = chat_template {
                let path = pending.path().join(files::CHAT_TEMPLATE);
                files::write_atomically(&path, text.as_bytes())?;
            }
        }
        Ok(self)
    }

    /// Renames the directory to its target, replaces an existing one, and returns its path.
    ///
    /// # Errors
    /// Extra files in the old directory; A full disk or another write error.
    pub fn commit(self) -> Result<PathBuf, Error> {
        let Some(pending) = self.pending else {
            return Ok(self.target);
        };
        let below = |path: &Path| files::files_below(path, "");
        let written = below(pending.path())?;
        let replaced = if self.target.is_dir() {
            below(&self.target)?
        } else {
            // A file of that name does not belong to a run.
            BTreeSet::new()
        };
        if let Some(other) = replaced.difference(&written).next() {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "{}: {other} would be lost, as this run did not write it and replaces the directory",
                    self.target.display()
                ),
                next_step: "move that file away, then continue with --resume".to_owned(),
            }));
        }
        pending.commit_replacing()?;
        Ok(self.target)
    }
}

/// Writes `adapter/` for `out`: f32, with PEFT's names. Every process calls this; the first one
/// writes.
///
/// # Errors
/// A full disk or another write error; errors of the adapter or the backend.
pub fn adapter(
    team: &Team,
    adapter: &Chosen<dyn Adapter>,
    sites: &[Site],
    base_model: &str,
    out: &Path,
) -> Result<Export, Error> {
    let target = out.join("adapter");
    let config = answer::saved_config(adapter, sites, base_model)?;
    let all = team.first().params();
    let of_adapter = |index: &usize| all[*index].kind.is_none() && all[*index].part_of.is_none();
    let params: Vec<usize> = (0..all.len()).filter(of_adapter).collect();
    if !team.world().writes() {
        follow(team, &params)?;
        let pending = None;
        return Ok(Export { target, pending });
    }
    let specs: Vec<TensorSpec> = params
        .iter()
        .map(|&index| {
            let param = &all[index];
            TensorSpec::new(param.name.clone(), DType::F32, param.shape.clone())
        })
        .collect();
    let pending = files::write_adapter(&target, &config, &specs, |index, sink| {
        gather_f32(team, params[index], &mut |part| Ok(sink.write_f32(part)?))
    })?;
    let pending = Some(pending);
    Ok(Export { target, pending })
}

/// Writes `model/` for `out`: a complete Hugging Face directory in `dtype`. Where only some weights
/// are trained, the others and all dtypes are those of the files of `source`. Every process calls
/// this; the first one writes.
///
/// # Errors
/// As [`adapter`].
pub fn model(
    team: &Team,
    source: &ModelDirectory,
    dtype: DType,
    out: &Path,
) -> Result<Export, Error> {
    let target = out.join("model");
    let all = team.first().params();
    if !all.iter().all(|param| param.trainable) {
        return trained_part::model(team, source, target);
    }
    if !team.world().writes() {
        follow(team, &(0..all.len()).collect::<Vec<_>>())?;
        let pending = None;
        return Ok(Export { target, pending });
    }
    let specs: Vec<TensorSpec> = all
        .iter()
        .map(|param| TensorSpec::new(param.name.clone(), dtype, param.shape.clone()))
        .collect();
    let config = source.config().clone();
    let pending = files::write_model(
        &target,
        &config,
        source,
        &specs,
        files::MAX_SHARD_BYTES,
        |index, sink| {
            gather_f32(team, index, &mut |part| {
                Ok::<_, espalier_engine::Error>(sink.write_f32(part)?)
            })
        },
    )?;
    let pending = Some(pending);
    Ok(Export { target, pending })
}
