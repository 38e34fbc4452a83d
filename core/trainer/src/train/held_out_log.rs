//! A run's evaluations -> each held-out document's loss on disk, a file an evaluation.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_engine::document_loss::DocumentLoss;
use espalier_system::files::{write_atomically, write_error};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The losses of held-out documents, one by one, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldOut {
    /// Steps that were done before.
    pub step: u64,
    /// Each document.
    pub documents: Vec<DocumentLoss>,
}

/// Where a run leaves the losses of its held-out documents.
#[derive(Clone, Debug)]
pub struct HeldOutLog {
    run: PathBuf,
    /// More documents than this are not written.
    most: usize,
}

/// Documents that a run outside of a comparison writes at most. More than these are so many that a
/// change of their mean is hardly due to their choice.
const MOST_OF_A_RUN: usize = 100_000;

/// The file of a run's [`HeldOut`] after `step` steps.
pub fn held_out_file(run: &Path, step: u64) -> PathBuf {
    run.join("held_out").join(format!("step-{step}.json"))
}

impl HeldOut {
    /// The sums over all documents that have trained tokens; others say nothing.
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
    /// That of the run in the output directory `run`, of a comparison.
    pub fn of(run: &Path) -> Self {
        HeldOutLog {
            run: run.to_owned(),
            most: usize::MAX,
        }
    }

    /// That of a run outside of a comparison, where documents are not too many.
    pub fn of_run_alone(run: &Path) -> Self {
        HeldOutLog {
            most: MOST_OF_A_RUN,
            ..HeldOutLog::of(run)
        }
    }

    /// Writes what an evaluation after `step` steps found, whole or not at all, over what stood
    /// there.
    ///
    /// To be called before `metrics.jsonl` or a checkpoint says that the evaluation was done: a run
    /// that goes on from there does not repeat it.
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
