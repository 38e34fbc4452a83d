//! A run's evaluations -> each held-out document's loss on disk, one file per evaluation.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_engine::document_loss::DocumentLoss;
use espalier_system::files::{write_atomically, write_error};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The losses of single held-out documents, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldOut {
    /// Completed steps.
    pub step: u64,
    /// Each document.
    pub documents: Vec<DocumentLoss>,
}

/// Writes the losses of a run's held-out documents.
#[derive(Clone, Debug)]
pub struct HeldOutLog {
    run: PathBuf,
    /// More documents than this are not written.
    most: usize,
}

/// Most documents written by a run outside of a comparison. With more, the choice of documents
/// hardly affects a change of their mean.
const MOST_OF_A_RUN: usize = 100_000;

/// The file of a run's [`HeldOut`] after `step` steps.
pub fn held_out_file(run: &Path, step: u64) -> PathBuf {
    run.join("held_out").join(format!("step-{step}.json"))
}

impl HeldOut {
    /// The sums over all documents with trained tokens.
    pub fn total(&self) -> DocumentLoss {
        let mut total = DocumentLoss::default();
        let bearing = |document: &&DocumentLoss| document.trained > 0;
        for document in self.documents.iter().filter(bearing) {
            total.loss += document.loss;
            total.correct += document.correct;
            total.trained += document.trained;
        }
        total
    }
}

impl HeldOutLog {
    /// The log of a comparison's run in the output directory `run`.
    pub fn of(run: &Path) -> Self {
        HeldOutLog {
            run: run.to_owned(),
            most: usize::MAX,
        }
    }

    /// The log of a run outside of a comparison, with a limit on the number of documents.
    pub fn of_run_alone(run: &Path) -> Self {
        HeldOutLog {
            most: MOST_OF_A_RUN,
            ..HeldOutLog::of(run)
        }
    }

    /// Writes the result of an evaluation after `step` steps atomically, replacing an older file.
    ///
    /// Must be called before `metrics.jsonl` or a checkpoint records the evaluation: a run resumed
    /// from there does not repeat it.
    ///
    /// # Errors
    /// A directory that cannot be written, a full disk.
    pub fn write(&self, step: u64, documents: Vec<DocumentLoss>) -> Result<(), Error> {
        if documents.len() > self.most {
            return Ok(());
        }
        let file = held_out_file(&self.run, step);
        let folder = file.parent().expect("a file of the run's folder");
        fs::create_dir_all(folder).map_err(|error| write_error(folder, 0, error))?;
        let held_out = HeldOut { step, documents };
        let mut text = serde_json::to_vec(&held_out).expect("losses are plain data");
        text.push(b'\n');
        Ok(write_atomically(&file, &text)?)
    }
}
