//! Files of rows -> the training rows, the held-out rows, and the questions of a run.

use std::sync::Arc;

use espalier_config::{Origin, ResolvedConfig};
use espalier_data::{BatchSchedule, Dataset, Horizon, Progress, TooLongIs, Vocabulary};
use espalier_engine::observer::{Event, Observer};
use espalier_interface::model::Model;
use espalier_plan::plan::Purpose;
use espalier_system::failure::UsageError;
use espalier_system::files::ModelDirectory;

use super::row_report;
use crate::Error;
use crate::generate::Questions;

/// Rows in file order; the runs that share them order them differently. Cheap to clone.
#[derive(Clone)]
pub struct Rows {
    /// The rows to train on; of an evaluation, its rows.
    pub train: Dataset,
    /// The rows held out.
    pub eval: Option<Dataset>,
    /// The rows of training, also where `train` has others: quantizers are calibrated on them.
    calibration: Option<Dataset>,
    /// With the tokenizer, if any row of text needed it.
    vocabulary: Arc<Vocabulary>,
}

/// The model that rows are read for.
#[derive(Clone, Copy)]
pub(super) struct RowsModel<'a> {
    /// The config with the files.
    pub resolved: &'a ResolvedConfig,
    /// The model's directory: its tokenizer and its template.
    pub directory: &'a ModelDirectory,
    /// The family's description.
    pub model: &'a Model,
}

/// A run's rows.
pub struct RunData {
    /// Steps of training; of an evaluation, one pass over its rows.
    pub train: BatchSchedule,
    /// One pass over the held-out rows, if there are any.
    pub eval: Option<BatchSchedule>,
    /// The rows of training, where they were read: quantizers are calibrated on them.
    pub calibration: Option<Dataset>,
    /// Rows to be answered at every evaluation.
    pub questions: Option<Questions>,
    /// The tokenizer's hash, if any row of text needed it.
    pub tokenizer_sha256: Option<String>,
}

impl Rows {
    /// Reads the files of the config.
    ///
    /// # Errors
    /// The first error in the order of files and rows; more lost rows than `data.max_lost` allows.
    pub(super) fn read(
        model: &RowsModel<'_>,
        purpose: Purpose,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let config = model.resolved.config();
        let (data, directory) = (&config.data, model.directory);
        let vocabulary = Vocabulary::new(directory.path(), model.model.vocab_size as usize);
        let mut progress = |read: Progress<'_>| {
            observer.observe(&Event::ReadProgress {
                rows: read.rows,
                bytes: read.bytes,
                total_bytes: read.total_bytes,
            });
        };
        let (train, eval) = match purpose {
            Purpose::Train => {
                let seed = data.split_seed.unwrap_or(config.run.seed);
                Dataset::open(data, &vocabulary, seed, &mut progress)?
            }
            Purpose::Evaluate | Purpose::Generate => {
                let files = &data.files;
                let rows = Dataset::load_held_out(files, data, &vocabulary, &mut progress)?;
                (rows, None)
            }
        };
        let longest = data.max_seq_len as u64;
        if longest > model.model.max_positions {
            observer.observe(&Event::Note(&format!(
                "data.max_seq_len is {longest}, the model was made for {} positions",
                model.model.max_positions
            )));
        }
        let which = match purpose {
            Purpose::Train => "training",
            Purpose::Evaluate | Purpose::Generate => "evaluation",
        };
        let too_long = match model.resolved.origin("data.too_long") {
            Origin::Default => TooLongIs::Default,
            _ => TooLongIs::Chosen,
        };
        let own_files = eval.iter().filter(|eval| !eval.shares_files(&train));
        let parts =
            std::iter::once((&train, which)).chain(own_files.map(|eval| (eval, "held-out")));
        for (rows, which) in parts.clone() {
            rows.counts().check_lost(which, data, too_long)?;
        }
        for (rows, which) in parts {
            row_report::report(rows, which, observer);
            row_report::lengths(rows, which, &model.model.length_limits(), observer);
        }
        if purpose == Purpose::Train {
            observer.observe(&Event::Note(&row_report::trained(&train, data.train_on)));
        }
        Ok(Rows {
            calibration: (purpose == Purpose::Train).then(|| train.clone()),
            train,
            eval,
            vocabulary: Arc::new(vocabulary),
        })
    }

    /// The held-out rows alone, as those of an evaluation.
    pub fn held_out(&self) -> Option<Self> {
        Some(Rows {
            train: self.eval.clone()?,
            eval: None,
            calibration: self.calibration.clone(),
            vocabulary: Arc::clone(&self.vocabulary),
        })
    }

    /// Some of the rows to train on, drawn by `seed`: at most `tokens` tokens, and at least one
    /// row.
    pub fn drawn(&self, tokens: u64, seed: u64) -> Self {
        Rows {
            train: self.train.drawn(tokens, seed),
            eval: None,
            calibration: self.calibration.clone(),
            vocabulary: Arc::clone(&self.vocabulary),
        }
    }

    /// Orders them into the steps of a run.
    ///
    /// # Errors
    /// A sequence too long for any micro-batch; questions without rows.
    pub(super) fn into_data(
        self,
        model: &RowsModel<'_>,
        purpose: Purpose,
    ) -> Result<RunData, Error> {
        let config = model.resolved.config();
        let horizon = Horizon {
            epochs: config.run.epochs,
            max_steps: config.run.max_steps,
        };
        let train = match purpose {
            Purpose::Train => {
                BatchSchedule::training(&self.train, &config.data, config.run.seed, horizon)?
            }
            Purpose::Evaluate | Purpose::Generate => {
                BatchSchedule::evaluation(&self.train, &config.data)?
            }
        };
        let eval = self.eval.as_ref();
        let eval = eval.map(|eval| BatchSchedule::evaluation(eval, &config.data));
        let eval = eval.transpose()?;
        let tokenizer = self.vocabulary.loaded_tokenizer();
        let tokenizer_sha256 = tokenizer.map(|tokenizer| tokenizer.sha256().to_owned());
        let asked = match purpose {
            Purpose::Train => eval.as_ref(),
            Purpose::Evaluate | Purpose::Generate => Some(&train),
        };
        let questions = match (config.run.eval_answers, asked) {
            (None, _) => None,
            (Some(count), Some(rows)) => {
                let (rows, directory) = (rows.dataset(), model.directory);
                Some(Questions::of(rows, count, directory, self.vocabulary)?)
            }
            (Some(_), None) => {
                return Err(Error::Usage(UsageError {
                    message: "run.eval_answers asks held-out rows, and there are none".to_owned(),
                    next_step: "give data.eval_files or data.eval_split".to_owned(),
                }));
            }
        };
        Ok(RunData {
            train,
            eval,
            calibration: self.calibration,
            questions,
            tokenizer_sha256,
        })
    }
}
