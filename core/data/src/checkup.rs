//! Files of rows -> everything that is wrong with them: bad rows, cut rows, rows that train
//! nothing.

mod lengths;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::counts::{Counts, percent};
use super::dataset::Dataset;
use super::error::{DataError, RowLocation, RowNumber};
use super::fault::Dropped;
use super::file_record::FileRecord;
use super::file_rows;
use super::limit::TooLongIs;
use super::options::{DataOptions, OnBadRow, TooLong};
use super::row::{self, Row};
use super::special_tokens::SplitToken;
use super::store::Store;
use super::tokenizer::Vocabulary;

pub use lengths::{Bin, LengthLoss, Lengths};

/// Faults whose text is kept; all are counted.
const MOST_FAULTS: usize = 1000;
/// Repeated rows whose places are kept.
const MOST_REPEATED: usize = 20;

/// The findings in all files of a run.
#[derive(Debug, Serialize)]
pub struct Checkup {
    /// The training files.
    pub training: Part,
    /// The held-out files, where they are files of their own.
    pub held_out: Option<Part>,
    /// Held-out rows that are also trained on; unset where no files are held out.
    pub held_out_trained: Option<u64>,
    /// What would stop a run, as messages.
    pub stops: Vec<String>,
}

/// The findings in the training files or the held-out files.
#[derive(Debug, Default, Serialize)]
pub struct Part {
    /// The files that could be read to their end.
    pub files: Vec<FileRecord>,
    /// What becomes of their rows in a run that leaves bad rows out.
    pub counts: Counts,
    /// Special tokens that the chat template writes and the tokenizer splits.
    pub split_tokens: Vec<SplitToken>,
    /// Bad rows by their fault.
    pub bad_rows: Dropped,
    /// The faults of rows and files with their places; the first thousand.
    pub faults: Vec<String>,
    /// Faults of whole files that cannot be read or used.
    pub file_faults: u64,
    /// The rows' lengths, and what other values of `max_seq_len` would lose.
    pub lengths: Lengths,
    /// Rows that repeat an earlier one, token for token.
    pub repeated: u64,
    /// Places of the first of them, each with that of the row it repeats.
    pub repeats: Vec<[String; 2]>,
}

/// Hashes of rows, each with the place of the first that has it.
type Seen = HashMap<[u8; 16], (usize, RowNumber)>;

impl Checkup {
    /// Reads all files that `options` name, to their end where that is possible.
    pub fn of(options: &DataOptions, vocabulary: &Vocabulary, too_long: TooLongIs) -> Self {
        let (training, trained) =
            Part::of(options, &options.files, vocabulary, Dataset::training_files);
        let mut stops = training.stops("training", options, too_long);
        let (mut held_out, mut held_out_trained) = (None, None);
        if !options.eval_files.is_empty() {
            let files = &options.eval_files;
            let (part, seen) = Part::of(options, files, vocabulary, Dataset::held_out_files);
            stops.extend(part.stops("held-out", options, too_long));
            let both = seen.keys().filter(|hash| trained.contains_key(*hash));
            held_out_trained = Some(both.count() as u64);
            held_out = Some(part);
        }
        Checkup {
            training,
            held_out,
            held_out_trained,
            stops,
        }
    }
}

/// Resolves repositories among `files` to files.
type Named = fn(&[PathBuf]) -> Result<Vec<PathBuf>, DataError>;

impl Part {
    fn of(
        options: &DataOptions,
        files: &[PathBuf],
        vocabulary: &Vocabulary,
        named: Named,
    ) -> (Self, Seen) {
        let mut part = Part::default();
        let mut seen = Seen::new();
        let files = named(files).unwrap_or_else(|fault| {
            part.file_fault(&fault);
            Vec::new()
        });
        part.lengths = Lengths::new(options.max_seq_len);
        // Like a run that ignores every fault.
        let lenient = DataOptions {
            on_bad_row: OnBadRow::Drop,
            too_long: match options.too_long {
                TooLong::Error => TooLong::Truncate,
                chosen => chosen,
            },
            ..options.clone()
        };
        let mut store = Store::counting();
        for (number, path) in files.iter().enumerate() {
            let read = part.file(
                path,
                number,
                &files,
                (&lenient, vocabulary),
                &mut store,
                &mut seen,
            );
            if let Err(fault) = read {
                part.file_fault(&fault);
                store.give_file_up();
            }
        }
        store.counts.finish();
        part.counts = store.counts;
        part.bad_rows = store.counts.dropped;
        part.files = std::mem::take(&mut store.files);
        part.split_tokens = std::mem::take(&mut store.split);
        part.lengths.finish();
        (part, seen)
    }

    fn file(
        &mut self,
        path: &Path,
        number: usize,
        files: &[PathBuf],
        (options, vocabulary): (&DataOptions, &Vocabulary),
        store: &mut Store,
        seen: &mut Seen,
    ) -> Result<(), DataError> {
        let mut take = |at: RowNumber, row: Result<Row, DataError>| {
            let row = match row {
                Ok(row) => row,
                Err(fault) => {
                    let text = fault.to_string();
                    store.counts.dropped.add(fault)?;
                    store.counts.rows += 1;
                    self.keep(text);
                    return Ok(());
                }
            };
            self.lengths.add(&row);
            let place =
                |(file, at): (usize, RowNumber)| RowLocation::new(&files[file], at).to_string();
            let first = *seen.entry(hash(&row)).or_insert((number, at));
            if first != (number, at) {
                self.repeated += 1;
                if self.repeats.len() < MOST_REPEATED {
                    self.repeats.push([place((number, at)), place(first)]);
                }
            }
            let outcome = row::cut(row, options, || RowLocation::new(path, at))?;
            store.add(outcome, at)
        };
        let file = file_rows::read(path, options, vocabulary, &mut take, &mut |_, _| ())?;
        store.end_file(file);
        Ok(())
    }

    fn file_fault(&mut self, fault: &DataError) {
        self.file_faults += 1;
        self.keep(fault.to_string());
    }

    fn keep(&mut self, fault: String) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
        }
    }

    /// The findings that would stop a run.
    fn stops(
        &self,
        which: &'static str,
        options: &DataOptions,
        too_long: TooLongIs,
    ) -> Vec<String> {
        let mut stops = Vec::new();
        let counts = self.counts;
        let bad = self.bad_rows.total();
        if self.file_faults > 0 {
            stops.push(format!("{} {which} files cannot be used", self.file_faults));
        }
        match options.on_bad_row {
            OnBadRow::Error if bad > 0 => {
                stops.push(format!(
                    "{bad} {which} rows are bad (data.on_bad_row = \"error\")"
                ));
            }
            _ if 2 * bad > counts.rows => {
                stops.push(format!(
                    "more than half of the {which} rows are bad: {bad} of {}",
                    counts.rows
                ));
            }
            _ => {}
        }
        let long = self.lengths.longer_than_max_seq_len;
        if options.too_long == TooLong::Error && long > 0 {
            stops.push(format!(
                "{long} {which} rows are longer than data.max_seq_len = {} (data.too_long = \"error\")",
                options.max_seq_len
            ));
        }
        if let Some(capacity) = options.pack_tokens
            && options.max_seq_len.min(self.lengths.longest) > capacity
        {
            stops.push(format!(
                "a {which} row of {} tokens does not fit into data.pack_tokens = {capacity}",
                options.max_seq_len.min(self.lengths.longest)
            ));
        }
        if counts.kept() == 0 && counts.rows > 0 {
            stops.push(format!("no token of the {which} rows would be trained"));
        } else if let Err(lost) = counts.check_lost(which, options, too_long) {
            stops.push(match lost {
                DataError::Lost { share, most, .. } => format!(
                    "{share} of the trained tokens of the {which} rows would be lost (data.max_lost = {most})"
                ),
                other => other.to_string(),
            });
        }
        stops
    }

    /// The share of the trained tokens that is lost, as text.
    pub fn lost(&self) -> String {
        percent(self.counts.share(self.counts.lost.total()))
    }
}

/// The hash of a row's tokens and labels.
fn hash(row: &Row) -> [u8; 16] {
    let mut hasher = Sha256::new();
    let numbers = |numbers: &[i32]| -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    };
    hasher.update(numbers(&row.tokens));
    hasher.update(numbers(row.labels.as_deref().unwrap_or_default()));
    let digest = hasher.finalize();
    std::array::from_fn(|index| digest[index])
}
