//! A run between two steps -> `checkpoints/step-N`: written to `.partial`, synced, committed by one
//! rename.

use std::path::{Path, PathBuf};

use espalier_engine::executor::{Executor, StatePart};
use espalier_engine::gather::keepers;
use espalier_engine::load::{agree, together};
use espalier_engine::team::Team;
use espalier_interface::Adapter;
use espalier_interface::adaptation::Site;
use espalier_registry::Chosen;
use espalier_system::files::{self, FileError, FileHash, PendingDirectory, TensorSpec};
use serde_json::Value as Json;

use super::manifest::{BY_RANK, WHOLE};
use super::piece::{Piece, file_of_rank};
use super::{
    Checkpoints, MANIFEST, METRICS, Manifest, OPTIMIZER, PARAMS, Position, Progress, seal,
};
use crate::{Error, export};

/// The content of a checkpoint.
pub struct Snapshot<'a> {
    /// The ranks.
    pub team: &'a Team,
    /// The parts of the PEFT adapter; `None` for full fine-tuning, which trains the model's params.
    pub adapter: Option<AdapterParts<'a>>,
    /// The content of `run.json`.
    pub run: &'a Json,
    /// The progress of the run.
    pub progress: &'a Progress,
    /// The position in the rows.
    pub position: Position,
    /// The run's `metrics.jsonl`, complete up to this step.
    pub metrics: &'a Path,
}

/// An adapter, its sites and the name of its base model.
pub type AdapterParts<'a> = (&'a Chosen<dyn Adapter>, &'a [Site], &'a str);

/// Writes a checkpoint atomically, and returns its directory's path. Every process calls this: each
/// rank writes its own elements, and the first process commits once all are on disk.
///
/// # Errors
/// [`FileError::DiskFull`] or another write error, on any rank; earlier checkpoints are unchanged.
pub fn save(home: &Checkpoints, snapshot: &Snapshot<'_>) -> Result<PathBuf, Error> {
    let team = snapshot.team;
    let target = home.path(snapshot.progress.step);
    let opened = if team.world().writes() {
        PendingDirectory::begin(&target).map(Some)
    } else {
        Ok(None)
    };
    let (pending, sent) = match opened {
        Ok(pending) => {
            let path = pending.as_ref().map(|pending| pending.path().to_owned());
            (pending, Ok(path))
        }
        Err(error) => (None, Err(Error::from(error))),
    };
    let mut sent: Vec<Option<PathBuf>> = together(team, "beginning a checkpoint", sent)?;
    let path = sent.swap_remove(0).expect("the first process writes");
    let ranks = parts(team.first());
    let seen = if ranks.is_none() || path.is_dir() {
        Ok(())
    } else {
        Err(not_shared(&path))
    };
    // Before any process writes: all of them continue without the checkpoint, or none does.
    agree(team, "seeing a checkpoint's directory", seen)?;
    // A rank that cannot write is not lost: it reports the error, and all continue without the
    // checkpoint.
    let written = team.each(|executor| Ok::<_, Error>(write_own(executor, &path, ranks)))?;
    let written: Result<Vec<_>, Error> = written.into_iter().collect();
    let written = together(
        team,
        "writing a checkpoint",
        written.map(|files| files.concat()),
    )?;
    if let Some((adapter, sites, base)) = snapshot.adapter {
        export::adapter(team, adapter, sites, base, &path)?.commit()?;
    }
    let of_processes = written.chunks(team.world().ranks_per_process() as usize);
    let files = of_processes.flat_map(|same| same[0].clone()).collect();
    let committed = match pending {
        Some(pending) => commit(pending, snapshot, ranks, files),
        None => Ok(()),
    };
    agree(team, "committing a checkpoint", committed)?;
    Ok(target)
}

/// Writes the files that belong to no rank and the manifest, and commits the directory.
fn commit(
    pending: PendingDirectory,
    snapshot: &Snapshot<'_>,
    ranks: Option<u32>,
    mut files: Vec<FileHash>,
) -> Result<(), Error> {
    let path = pending.path();
    files::copy_file(snapshot.metrics, &path.join(METRICS))?;
    files.push(files::hash_member(path, METRICS)?);
    if snapshot.adapter.is_some() {
        for name in files::ADAPTER_FILES {
            files.push(files::hash_member(path, &format!("adapter/{name}"))?);
        }
    }
    let manifest = Manifest {
        format: ranks.map_or(WHOLE, |_| BY_RANK),
        ranks,
        progress: snapshot.progress.clone(),
        position: snapshot.position,
        run: snapshot.run.clone(),
        files,
    };
    let value = serde_json::to_value(&manifest).expect("a manifest is plain data");
    files::write_atomically(&path.join(MANIFEST), seal::seal(&value).as_bytes())?;
    Ok(pending.commit_replacing()?)
}

/// The files of trained params, with the params and parts that each has; none for state where the
/// optimizer keeps nothing.
fn files_of(executor: &Executor) -> Vec<(&'static str, Vec<(usize, StatePart)>)> {
    let trainable = executor.trainable().into_iter();
    let all = trainable.flat_map(|param| {
        let parts = executor.state_parts(param).into_iter();
        parts.map(move |part| (param, part))
    });
    let (values, state) = all.partition(|(_, part)| *part == StatePart::Values);
    let files = [(PARAMS, values), (OPTIMIZER, state)].into_iter();
    files
        .filter(|(_, parts): &(_, Vec<_>)| !parts.is_empty())
        .collect()
}

/// The name of a part of a param in its file.
pub(super) fn stored_name(executor: &Executor, param: usize, part: StatePart) -> String {
    let param = &executor.params()[param].name;
    match executor.state_name(part) {
        None => param.clone(),
        Some(state) => format!("{param}.{state}"),
    }
}

/// The number of ranks with own files; `None` where the first one holds all elements.
fn parts(executor: &Executor) -> Option<u32> {
    let trainable = executor.trainable().into_iter();
    let ranks = trainable.map(|param| keepers(executor, param)).max();
    ranks.filter(|&ranks| ranks > 1)
}

/// Writes this rank's elements of all trainable params, each in its own dtype, and returns the
/// files.
fn write_own(
    executor: &Executor,
    directory: &Path,
    ranks: Option<u32>,
) -> Result<Vec<FileHash>, Error> {
    let rank = executor.peers().rank();
    let mut hashes = Vec::new();
    for (file, parts) in files_of(executor) {
        let name = match ranks {
            None => file.to_owned(),
            Some(ranks) => file_of_rank(file, rank, ranks),
        };
        let own = own_tensors(executor, &parts, ranks);
        if ranks.is_none() && rank > 0 || ranks.is_some() && own.is_empty() {
            continue;
        }
        let specs: Vec<TensorSpec> = own.iter().map(|(.., spec)| spec.clone()).collect();
        let path = directory.join(&name);
        files::write_safetensors(&path, &[("format", "pt")], &specs, |index, sink| {
            let (param, part, _) = own[index];
            executor.download_state(param, part, &mut |bytes| {
                Ok::<_, espalier_engine::Error>(sink.write_bytes(bytes)?)
            })
        })?;
        hashes.push(files::hash_member(directory, &name)?);
    }
    Ok(hashes)
}

/// The tensors of this rank: parts of params, complete or only its own elements.
fn own_tensors(
    executor: &Executor,
    parts: &[(usize, StatePart)],
    ranks: Option<u32>,
) -> Vec<(usize, StatePart, TensorSpec)> {
    let rank = executor.peers().rank();
    let mut own = Vec::new();
    for &(param, part) in parts {
        if rank >= keepers(executor, param) {
            continue;
        }
        let elements = executor.own_elements(param, part);
        let (name, dtype) = (
            stored_name(executor, param, part),
            executor.state_dtype(param, part),
        );
        if ranks.is_none() {
            let spec = TensorSpec::new(name, dtype, executor.state_shape(param, part));
            own.push((param, part, spec));
        } else if !elements.is_empty() {
            let shape = vec![elements.end - elements.start];
            let name = Piece { name, elements }.tensor();
            own.push((param, part, TensorSpec::new(name, dtype, shape)));
        }
    }
    own
}

fn not_shared(directory: &Path) -> Error {
    let missing = std::io::Error::new(
        std::io::ErrorKind::NotFound,
        "the first process made it, and this one does not see it: --out must be on a file system that all machines share",
    );
    Error::File(FileError::Read {
        path: directory.to_owned(),
        source: missing,
    })
}
