//! Errors of data, tokenizers, chat templates and their options; exit code 3.

mod row_error;
mod row_location;
mod template_error;
mod tokenizer_error;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use espalier_system::failure::{ExitClass, Failure};
use espalier_system::files::FileError;

use super::format::Format;

pub use row_error::{RowError, RowFault};
pub use row_location::{RowLocation, RowNumber};
pub use template_error::TemplateError;
pub use tokenizer_error::TokenizerError;

/// Why the data cannot be trained on.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A row of a file is at fault.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The model's tokenizer is at fault.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template is at fault.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// No file was named.
    #[error("no data file is given; name one with --data or data.files")]
    NoFiles,
    /// No rows are held out.
    #[error(
        "no held-out rows, by which arms could be compared; name files with data.eval_files, or hold rows out with \
         data.eval_split=0.1"
    )]
    NoHeldOut,
    /// A file cannot be read.
    #[error("cannot read {}: {source}; check the path and its permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file has another extension.
    #[error(
        "{} is not of a kind that this version reads; expected .jsonl, .json or .parquet, found `{found}`",
        path.display()
    )]
    FileKind {
        /// The file.
        path: PathBuf,
        /// Its extension.
        found: String,
    },
    /// A repository that is not in the local cache, or is incomplete.
    #[error(transparent)]
    Repository(Box<FileError>),
    /// A repository that holds no file of rows.
    #[error(
        "{} has no .jsonl, .json or .parquet file; name its files one by one",
        path.display()
    )]
    NoRowsInRepository {
        /// Its snapshot.
        path: PathBuf,
    },
    /// A file without any row.
    #[error("{} has no row; expected at least one", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// An option that cannot be used.
    #[error("data.{key} = {found} cannot be used; expected {expected}")]
    Option {
        /// The key below `[data]`.
        key: &'static str,
        /// What was expected.
        expected: String,
        /// The value.
        found: String,
    },
    /// `fields` renames something that no format has.
    #[error(
        "data.fields renames `{found}`, which no format has; did you mean `{nearest}`? the names \
         are {known}"
    )]
    UnknownField {
        /// The name given.
        found: String,
        /// The known name nearest to it.
        nearest: String,
        /// All known names.
        known: String,
    },
    /// A micro-batch whose tokens no i32 can count.
    #[error(
        "a micro-batch would hold {found} tokens; expected at most 2147483647: lower \
         data.micro_batch"
    )]
    MicroBatch {
        /// Tokens of the largest micro-batch.
        found: u64,
    },
    /// `train_on` asks for turns that the format does not have.
    #[error(
        "{}: data.train_on = \"assistant\" needs rows with roles; rows of format {format} have \
         none: use \"completion\" or \"all\", or turn them into conversations with data.chat_template",
        path.display()
    )]
    TrainOn {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: Format,
    },
    /// No token of any row is trained.
    #[error(
        "no token would be trained: of {rows} rows, {untrained} have no trained token, {prompt_fills} have a \
         prompt that fills data.max_seq_len, {too_long} are too long and {dropped} were left out as bad; check \
         labels, data.max_seq_len and data.train_on"
    )]
    NothingTrained {
        /// Rows left out as bad.
        dropped: u64,
        /// Rows read.
        rows: u64,
        /// Rows without a trained token.
        untrained: u64,
        /// Rows whose trained tokens are all after the cut.
        prompt_fills: u64,
        /// Rows dropped for their length.
        too_long: u64,
    },
    /// More rows than an index can number.
    #[error("{found} rows are too many; expected at most {expected}: split the data")]
    TooManyRows {
        /// The largest count.
        expected: u64,
        /// Rows read.
        found: u64,
    },
    /// `eval_split` would leave one side empty.
    #[error(
        "data.eval_split = {split} takes {eval} of {rows} rows; expected at least one row on each \
         side"
    )]
    Split {
        /// The option.
        split: f64,
        /// Rows it would take.
        eval: u64,
        /// Rows in all.
        rows: u64,
    },
    /// The temporary file for rows that exceed memory fails.
    #[error("cannot {doing} the temporary file for {bytes} bytes of tokens in {}: {source}; make room there, or name another directory with data.cache_dir", directory.display())]
    Cache {
        /// What was tried: make, write or read.
        doing: &'static str,
        /// Where the file is.
        directory: PathBuf,
        /// Bytes of the tokens so far.
        bytes: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// More than half of the rows are bad.
    #[error("{dropped} of {rows} rows were left out as bad, more than half; the first: {first}")]
    MostDropped {
        /// Bad rows.
        dropped: u64,
        /// Rows read.
        rows: u64,
        /// What is wrong with the first.
        first: String,
    },
    /// Cut rows and rows left out lose a larger share of the trained tokens than `max_lost` allows.
    #[error(
        "{share} of the trained tokens of the {which} rows would be lost, expected at most data.max_lost = \
         {most}: {reasons}; {advice}"
    )]
    Lost {
        /// Training, held-out or evaluation rows.
        which: &'static str,
        /// What would be lost.
        share: String,
        /// `max_lost`.
        most: f64,
        /// Rows and shares by the reason.
        reasons: String,
        /// What to set.
        advice: String,
    },
    /// A check of rows found what stops a run.
    #[error("{faults} would stop a run on these rows")]
    Checked {
        /// The number of faults, as text.
        faults: String,
    },
}

impl Failure for DataError {
    fn exit_class(&self) -> ExitClass {
        match self {
            // The disk is at fault, not the data.
            DataError::Cache { .. } => ExitClass::Resources,
            DataError::Repository(error) => error.exit_class(),
            _ => ExitClass::Data,
        }
    }

    fn next_step(&self) -> String {
        match self {
            DataError::Repository(error) => return error.next_step(),
            DataError::Lost { .. } => {
                "see `host data doctor` for the rows, or set data.max_lost; nothing was written"
            }
            DataError::Checked { .. } => {
                "correct the rows, or set what is named: data.on_bad_row, data.max_seq_len, data.max_lost"
            }
            _ => "correct what the message names; nothing was written",
        }
        .to_owned()
    }
}

impl DataError {
    pub(super) fn option(
        key: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Self {
        DataError::Option {
            key,
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        DataError::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}
