//! The rows of files -> the sequences to train or evaluate on, with shifted labels.

use std::path::PathBuf;
use std::sync::Arc;

use espalier_interface::random::{self, Purpose};
use espalier_system::files::HubCache;

use super::counts::Counts;
use super::error::{DataError, RowLocation};
use super::file_record::FileRecord;
use super::named_files::{RepositoryPart, named_files};
use super::options::DataOptions;
use super::order;
use super::row::UNTRAINED;
use super::special_tokens::SplitToken;
use super::store::{Progress, Store};
use super::tokenizer::Vocabulary;

/// Sequences of tokens in file order; cheap to clone.
#[derive(Clone)]
pub struct Dataset {
    store: Arc<Store>,
    /// Rows of the store that belong to this dataset, in file order; none where all do.
    rows: Option<Arc<[u32]>>,
}

/// One sequence with its labels.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// `[n]` token ids.
    pub tokens: Vec<i32>,
    /// `[n]` labels aligned with `tokens`; none where every token is trained.
    aligned: Option<Vec<i32>>,
    /// Tokens that are trained.
    pub trained_tokens: usize,
}

/// Where a sequence comes from.
pub struct SequenceOrigin {
    /// Its row.
    pub place: RowLocation,
    /// Tokens of the row before any were cut off.
    pub full_length: usize,
}

impl Sequence {
    /// The labels as the model needs them, `[n]`: entry `t` is the token after `t`, or
    /// [`UNTRAINED`]; the last one always is.
    pub fn labels(&self) -> impl Iterator<Item = i32> + '_ {
        let aligned = self.aligned.as_ref().unwrap_or(&self.tokens);
        let shifted = aligned.get(1..).unwrap_or_default().iter().copied();
        shifted.chain((!aligned.is_empty()).then_some(UNTRAINED))
    }
}

impl Dataset {
    /// Reads the training rows and, where the options ask for any, the evaluation rows.
    ///
    /// # Errors
    /// The first [`DataError`] in the order of files and rows, for any number of threads.
    pub fn open(
        options: &DataOptions,
        vocabulary: &Vocabulary,
        seed: u64,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(Dataset, Option<Dataset>), DataError> {
        options.validate()?;
        let train = Dataset::load(&options.files, options, vocabulary, progress)?;
        if let Some(split) = options.eval_split {
            let (train, eval) = train.split(split, seed)?;
            return Ok((train, Some(eval)));
        }
        if options.eval_files.is_empty() {
            return Ok((train, None));
        }
        let eval = Dataset::load_held_out(&options.eval_files, options, vocabulary, progress)?;
        Ok((train, Some(eval)))
    }

    /// Reads `files` in order; rows are tokenized in parallel on rayon's current pool. A repository
    /// id stands for its training files in the local Hugging Face cache.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn load(
        files: &[PathBuf],
        options: &DataOptions,
        vocabulary: &Vocabulary,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Dataset, DataError> {
        let files = Dataset::training_files(files)?;
        Dataset::read(&files, options, vocabulary, progress)
    }

    /// As [`Dataset::load`]; a repository id stands for its held-out files.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn load_held_out(
        files: &[PathBuf],
        options: &DataOptions,
        vocabulary: &Vocabulary,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Dataset, DataError> {
        let files = Dataset::held_out_files(files)?;
        Dataset::read(&files, options, vocabulary, progress)
    }

    /// `files`, and for a repository id among them its training files in the local Hugging Face
    /// cache.
    pub(super) fn training_files(files: &[PathBuf]) -> Result<Vec<PathBuf>, DataError> {
        named_files(
            &HubCache::from_environment(),
            files,
            RepositoryPart::Training,
        )
    }

    /// As [`Dataset::training_files`], with its held-out files.
    pub(super) fn held_out_files(files: &[PathBuf]) -> Result<Vec<PathBuf>, DataError> {
        named_files(
            &HubCache::from_environment(),
            files,
            RepositoryPart::HeldOut,
        )
    }

    fn read(
        files: &[PathBuf],
        options: &DataOptions,
        vocabulary: &Vocabulary,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Dataset, DataError> {
        if files.is_empty() {
            return Err(DataError::NoFiles);
        }
        let mut total_bytes = 0;
        for path in files {
            total_bytes += path.metadata().map_err(|e| DataError::io(path, e))?.len();
        }
        let mut store = Store::new(&options.cache_directory());
        let mut bytes_before = 0;
        for path in files {
            let mut report = |rows, bytes| {
                progress(Progress {
                    path,
                    rows,
                    bytes: bytes_before + bytes,
                    total_bytes,
                });
            };
            bytes_before += store.read_file(path, options, vocabulary, &mut report)?;
        }
        store.finish()?;
        let store = Arc::new(store);
        Ok(Dataset { store, rows: None })
    }

    /// Takes rows for evaluation: a fraction (rounded up) or a number of them, drawn by `seed`;
    /// both sides keep file order.
    ///
    /// # Errors
    /// [`DataError::Split`] where a side would be empty.
    pub fn split(&self, split: f64, seed: u64) -> Result<(Dataset, Dataset), DataError> {
        let rows = self.num_sequences();
        let eval = if split < 1.0 {
            (split * rows as f64).ceil()
        } else {
            split
        } as usize;
        if eval == 0 || eval >= rows {
            return Err(DataError::Split {
                split,
                eval: eval as u64,
                rows: rows as u64,
            });
        }
        let key = random::key(seed, Purpose::SHUFFLE, 0);
        // The third word separates this draw from the orders of the epochs.
        let drawn = order::shuffled(rows as u32, |row| random::philox(key, [row, 0, 1, 0]));
        let side = |part: &[u32]| {
            let mut rows: Vec<u32> = part.iter().map(|&row| self.row(row as usize)).collect();
            rows.sort_unstable();
            Dataset {
                store: Arc::clone(&self.store),
                rows: Some(rows.into()),
            }
        };
        Ok((side(&drawn[eval..]), side(&drawn[..eval])))
    }

    /// Rows drawn by `seed`, in file order: as many of the draw's first as have at most `tokens`
    /// tokens together, and at least one.
    pub fn drawn(&self, tokens: u64, seed: u64) -> Dataset {
        let key = random::key(seed, Purpose::SHUFFLE, 0);
        // The third word separates this draw from the orders of the epochs and from splits.
        let words = |row| random::philox(key, [row, 0, 2, 0]);
        let drawn = order::shuffled(self.num_sequences() as u32, words);
        let mut sum = 0;
        let within = drawn.iter().take_while(|&&row| {
            let first = sum == 0;
            sum += self.length(row as usize) as u64;
            first || sum <= tokens
        });
        let mut rows: Vec<u32> = within.map(|&row| self.row(row as usize)).collect();
        rows.sort_unstable();
        Dataset {
            store: Arc::clone(&self.store),
            rows: Some(rows.into()),
        }
    }

    /// Number of sequences; never 0.
    pub fn num_sequences(&self) -> usize {
        self.rows
            .as_ref()
            .map_or_else(|| self.store.len(), |rows| rows.len())
    }

    /// The sequence at `index` in file order.
    ///
    /// # Errors
    /// [`DataError::Cache`] for a temporary file that cannot be read.
    ///
    /// # Panics
    /// Where `index` is not below [`Dataset::num_sequences`].
    pub fn sequence(&self, index: usize) -> Result<Sequence, DataError> {
        let record = self.store.record(self.row(index) as usize)?;
        Ok(Sequence {
            tokens: record.tokens,
            aligned: record.labels,
            trained_tokens: record.trained,
        })
    }

    /// Tokens of the sequence at `index`.
    pub fn length(&self, index: usize) -> usize {
        self.store.length(self.row(index) as usize)
    }

    /// Where the sequence at `index` comes from.
    ///
    /// # Errors
    /// As [`Dataset::sequence`].
    pub fn origin(&self, index: usize) -> Result<SequenceOrigin, DataError> {
        let origin = self.store.origin(self.row(index) as usize)?;
        Ok(SequenceOrigin {
            place: RowLocation::new(&self.store.files[origin.file].path, origin.number),
            full_length: origin.full_length,
        })
    }

    /// The files that were read, with their content's hash.
    pub fn files(&self) -> &[FileRecord] {
        &self.store.files
    }

    /// Counts of these files' rows; after a split, of both sides together.
    pub fn counts(&self) -> Counts {
        self.store.counts
    }

    /// Special tokens that the chat template writes and the tokenizer splits, with their counts in
    /// these files.
    pub fn split_tokens(&self) -> &[SplitToken] {
        &self.store.split
    }

    /// Whether these rows and `other` are parts of the same files.
    pub fn shares_files(&self, other: &Dataset) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// Host memory that the sequences take, in bytes; after a split, of both sides together.
    pub fn host_bytes(&self) -> u64 {
        let rows = self.rows.as_ref().map_or(0, |rows| size_of_val(&**rows));
        (self.store.memory_bytes() + rows) as u64
    }

    /// Bytes of the temporary file that the sequences are in; 0 where they are in memory.
    pub fn file_bytes(&self) -> u64 {
        self.store.file_bytes()
    }

    /// A dataset of the given tokens, with labels where the second part has them.
    #[cfg(test)]
    pub(super) fn of_rows(rows: &[(Vec<i32>, Option<Vec<i32>>)]) -> Dataset {
        use super::error::RowNumber;
        use super::format::Format;
        use super::options::TrainOn;
        use super::row::{Kind, Outcome, Row};
        let mut store = Store::new(std::path::Path::new("."));
        for (line, (tokens, labels)) in (1..).zip(rows) {
            let row = Row::new(tokens.clone(), labels.clone(), Kind::default());
            store
                .add(Outcome::Kept(row), RowNumber::Line(line))
                .expect("few rows");
        }
        store.files.push(FileRecord {
            path: "rows.jsonl".into(),
            sha256: String::new(),
            bytes: 0,
            rows: rows.len() as u64,
            format: Format::InputIds,
            train_on: TrainOn::Completion,
        });
        store.finish().expect("rows to train on");
        let store = Arc::new(store);
        Dataset { store, rows: None }
    }

    /// The store's number of the sequence at `index`.
    fn row(&self, index: usize) -> u32 {
        match &self.rows {
            Some(rows) => rows[index],
            None => index as u32,
        }
    }
}

#[cfg(test)]
mod tests;
