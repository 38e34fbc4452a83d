//! A run between two steps -> `checkpoints/step-N`: written beside, synced, committed by one rename.

use std::path::{Path, PathBuf};

use espalier_interface::Adapter;
use espalier_interface::adaptation::Site;
use serde_json::Value as Json;

use super::manifest::FORMAT;
use super::{
    Checkpoints, MANIFEST, METRICS, Manifest, OPTIMIZER, PARAMS, Position, Progress, seal,
};
use crate::executor::{Executor, StatePart};
use crate::files::{self, FileHash, PendingDirectory, TensorSpec};
use crate::select::Chosen;
use crate::{Error, export};

/// All that a checkpoint is made of.
pub(crate) struct Snapshot<'a> {
    /// The device's side.
    pub executor: &'a Executor,
    /// How to write the adapter for PEFT; none after full fine-tuning, whose params are the model.
    pub adapter: Option<AdapterParts<'a>>,
    /// What `run.json` holds.
    pub run: &'a Json,
    /// How far the run is.
    pub progress: &'a Progress,
    /// Where in the rows.
    pub position: Position,
    /// The run's `metrics.jsonl`, complete up to this step.
    pub metrics: &'a Path,
}

/// An adapter, its sites and the name of the model below it.
pub(crate) type AdapterParts<'a> = (&'a Chosen<dyn Adapter>, &'a [Site], &'a str);

/// Writes a checkpoint, whole or not at all, and returns its directory's path.
///
/// # Errors
/// A full disk or another failure to write: what was there before stays.
pub(crate) fn save(home: &Checkpoints, snapshot: &Snapshot<'_>) -> Result<PathBuf, Error> {
    let target = home.path(snapshot.progress.step);
    let pending = PendingDirectory::begin(&target)?;
    let path = pending.path();
    let mut names = [PARAMS, OPTIMIZER, METRICS].map(str::to_owned).to_vec();
    write_parts(snapshot.executor, &path.join(PARAMS), &[StatePart::Values])?;
    let moments = [StatePart::FirstMoment, StatePart::SecondMoment];
    write_parts(snapshot.executor, &path.join(OPTIMIZER), &moments)?;
    files::copy_file(snapshot.metrics, &path.join(METRICS))?;
    if let Some((adapter, sites, base)) = snapshot.adapter {
        export::adapter(snapshot.executor, adapter, sites, base, path)?;
        names.extend(files::ADAPTER_FILES.map(|name| format!("adapter/{name}")));
    }
    let manifest = Manifest {
        format: FORMAT,
        progress: snapshot.progress.clone(),
        position: snapshot.position,
        run: snapshot.run.clone(),
        files: names
            .iter()
            .map(|name| hash(path, name))
            .collect::<Result<_, Error>>()?,
    };
    let value = serde_json::to_value(&manifest).expect("a manifest is plain data");
    files::write_atomically(&path.join(MANIFEST), seal::seal(&value).as_bytes())?;
    pending.commit_replacing()?;
    Ok(target)
}

/// The name of a part of a param in the file of all moments.
pub(super) fn stored_name(param: &str, part: StatePart) -> String {
    match part {
        StatePart::Values => param.to_owned(),
        StatePart::FirstMoment => format!("{param}.first_moment"),
        StatePart::SecondMoment => format!("{param}.second_moment"),
    }
}

/// Writes parts of all trainable params, each in its own dtype.
fn write_parts(executor: &Executor, path: &Path, parts: &[StatePart]) -> Result<(), Error> {
    let trainable = executor.trainable();
    let all: Vec<(usize, StatePart)> = trainable
        .iter()
        .flat_map(|&param| parts.iter().map(move |&part| (param, part)))
        .collect();
    let specs: Vec<TensorSpec> = all
        .iter()
        .map(|&(index, part)| {
            let param = &executor.params()[index];
            let name = stored_name(&param.name, part);
            TensorSpec::new(name, executor.state_dtype(index, part), param.shape.clone())
        })
        .collect();
    files::write_safetensors(path, &[("format", "pt")], &specs, |index, sink| {
        let (param, part) = all[index];
        executor.download_state(param, part, &mut |bytes| {
            Ok::<_, Error>(sink.write_bytes(bytes)?)
        })
    })
}

/// The hash of a file under its path in the directory.
fn hash(directory: &Path, name: &str) -> Result<FileHash, Error> {
    let found = files::hash_file(&directory.join(name))?;
    let file = name.to_owned();
    Ok(FileHash { file, ..found })
}
