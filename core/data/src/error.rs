//! What can be wrong with data, a tokenizer or the options that join them; the host's exit code 3.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use espalier_system::failure::{ExitClass, Failure};
use espalier_system::files::FileError;

use super::format::Format;

/// Where a row begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Its line, counted from 1.
    pub line: u64,
}

impl Place {
    pub(super) fn new(path: &Path, line: u64) -> Self {
        Place {
            path: path.to_path_buf(),
            line,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// A reason why the data cannot be trained on.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
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
    /// The file's name says that it is of another kind.
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
    /// A repository that is not in the local cache, or not whole.
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
        /// What would do.
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
    /// The first row of a file has no format's fields.
    #[error(
        "{place}: no known format has the fields {found}; known are {known}; rename one with \
         data.fields"
    )]
    UnknownFormat {
        /// The row.
        place: Place,
        /// Its fields.
        found: String,
        /// The formats with their fields.
        known: &'static str,
    },
    /// The first row of a file has the fields of several formats.
    #[error("{place}: the fields fit several formats ({formats}); choose one with data.format")]
    AmbiguousFormat {
        /// The row.
        place: Place,
        /// The formats that fit.
        formats: String,
    },
    /// Text that is not JSON.
    #[error("{place}: invalid JSON at column {column}: {reason}")]
    Json {
        /// The line with the fault.
        place: Place,
        /// Byte in that line, counted from 1; 0 where the fault is the line's end.
        column: usize,
        /// The parser's reason.
        reason: String,
    },
    /// The file ends inside a row.
    #[error(
        "{place}: the file ends inside this row; it seems to be cut off, fetch or write it again"
    )]
    Truncated {
        /// The row.
        place: Place,
    },
    /// Bytes that are no UTF-8.
    #[error("{place}: byte {byte} of the row is not valid UTF-8; convert the file to UTF-8")]
    Utf8 {
        /// The row.
        place: Place,
        /// The first bad byte of the row, counted from 1.
        byte: usize,
    },
    /// A field, or the row itself, of another type.
    #[error("{place}: {what} is {found}; expected {expected}")]
    WrongType {
        /// The row.
        place: Place,
        /// The field, or the row.
        what: String,
        /// The type it should have.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A row lacks a field of its file's format.
    #[error("{place}: field `{field}` is missing; the row has {found}")]
    MissingField {
        /// The row.
        place: Place,
        /// The field's name in the file.
        field: String,
        /// The fields that are there.
        found: String,
    },
    /// A token id or label that the model has no embedding for.
    #[error(
        "{place}: {field}[{index}] = {found} is outside the model's vocabulary; expected {expected}"
    )]
    TokenId {
        /// The row.
        place: Place,
        /// The field.
        field: String,
        /// Position in the row.
        index: usize,
        /// The id.
        found: String,
        /// The range of ids.
        expected: String,
    },
    /// Labels or a mask of another length than the tokens.
    #[error("{place}: {field} has {found} entries; expected {expected}, one for each of input_ids")]
    Length {
        /// The row.
        place: Place,
        /// The field.
        field: &'static str,
        /// Entries of `input_ids`.
        expected: usize,
        /// Entries of the field.
        found: usize,
    },
    /// A pre-tokenized row that is padded.
    #[error(
        "{place}: attention_mask[{index}] is 0; expected rows without padding: remove the padded \
         tokens"
    )]
    Padded {
        /// The row.
        place: Place,
        /// The first masked position.
        index: usize,
    },
    /// A row above `max_seq_len` under `too_long = "error"`.
    #[error(
        "{place}: the row has {found} tokens; data.max_seq_len is {expected} and data.too_long is\
          \"error\""
    )]
    TooLong {
        /// The row.
        place: Place,
        /// `max_seq_len`.
        expected: usize,
        /// Tokens of the row.
        found: usize,
    },
    /// A sequence that no micro-batch can hold.
    #[error(
        "{place}: the row has {found} tokens, data.pack_tokens holds {expected}; raise it or \
         lower data.max_seq_len"
    )]
    PackTokens {
        /// The row.
        place: Place,
        /// `pack_tokens`.
        expected: usize,
        /// Tokens of the row.
        found: usize,
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
        /// Rows whose trained tokens all lie behind the cut.
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
        /// Rows that are there.
        rows: u64,
    },
    /// The model directory has no tokenizer.
    #[error(
        "{} does not exist; text rows need the model's tokenizer: put it there or use \
         pre-tokenized rows",
        path.display()
    )]
    NoTokenizer {
        /// The path of `tokenizer.json`.
        path: PathBuf,
    },
    /// A tokenizer file that cannot be used.
    #[error(
        "{} is not a usable tokenizer: {reason}; fetch the model's directory again",
        path.display()
    )]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The tokenizer's ids do not fit into the model's embedding.
    #[error(
        "{} does not match the model: token `{token}` has id {id}; the model's vocab_size is \
         {vocab_size}",
        path.display()
    )]
    TokenizerMismatch {
        /// The path of `tokenizer.json`.
        path: PathBuf,
        /// The token with the highest id.
        token: String,
        /// Its id.
        id: u32,
        /// Rows of the model's embedding.
        vocab_size: usize,
    },
    /// No file of the model's directory tells the end token.
    #[error(
        "{} names no end token; set eos_token in tokenizer_config.json or eos_token_id in \
         config.json",
        directory.display()
    )]
    NoEndToken {
        /// The model's directory.
        directory: PathBuf,
    },
    /// A text that is no chat template.
    #[error(
        "the chat template {origin} cannot be used: {reason}; correct it or choose another with data.chat_template"
    )]
    Template {
        /// Its name or file.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A chat template refuses a conversation.
    #[error("the chat template {origin} raised: {reason}")]
    TemplateRaised {
        /// Its name or file.
        origin: String,
        /// What it says.
        reason: String,
    },
    /// A chat template takes more than one from outside may.
    #[error(
        "{row}the chat template {origin} {met}: correct it or choose another with data.chat_template"
    )]
    TemplateBound {
        /// The row's place with what follows it; empty where there is none.
        row: String,
        /// Its name or file.
        origin: String,
        /// The bound with its value, and the line of the template.
        met: String,
    },
    /// Rows with turns, and no template to write them with.
    #[error("{} has conversations, and the model has no chat template; set data.chat_template to one of {known}, or to a file", path.display())]
    NoTemplate {
        /// The data file.
        path: PathBuf,
        /// The shipped templates.
        known: String,
    },
    /// A conversation that the template refuses, or of which it cannot tell what is trained.
    #[error("{place}: the chat template {origin} cannot be used for this row: {reason}")]
    Conversation {
        /// The row.
        place: Place,
        /// The template's name or file.
        origin: String,
        /// What it raised, or which renderings do not fit together.
        reason: String,
    },
    /// A conversation without a turn.
    #[error("{place}: field `{field}` is empty; expected at least one message")]
    NoTurns {
        /// The row.
        place: Place,
        /// The field's name in the file.
        field: String,
    },
    /// A turn of nobody known.
    #[error("{place}: {what} is \"{found}\", which no template knows; expected one of {known}")]
    UnknownRole {
        /// The row.
        place: Place,
        /// The field.
        what: String,
        /// The role.
        found: String,
        /// The known ones.
        known: String,
    },
    /// A row that takes more than a reader may hold.
    #[error(
        "{place}: the row has more than {most} bytes; split it, or check for a missing line end"
    )]
    RowBytes {
        /// The row.
        place: Place,
        /// The most that is read.
        most: usize,
    },
    /// A parquet file that cannot be read; its places are numbers of rows.
    #[error(
        "{place}: the parquet file cannot be read here: {reason}; write it again, uncompressed or with snappy, gzip or lz4"
    )]
    Parquet {
        /// The row; 0 for the file itself.
        place: Place,
        /// The reason.
        reason: String,
    },
    /// The rows fill more than memory may hold, and the file for them fails.
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
    /// An answer or a text without a word.
    #[error(
        "{place}: field `{field}` is empty; expected {expected}: write one, or leave such rows out with \
         data.on_bad_row = \"drop\" (data.on_empty = \"train\" trains them all the same)"
    )]
    Empty {
        /// The row.
        place: Place,
        /// The field's name in the file.
        field: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// Tools, or calls of tools, that would have no effect on what is trained.
    #[error("{place}: {what} would be ignored: {why}")]
    Unused {
        /// The row.
        place: Place,
        /// The field.
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// Cut rows and rows left out take more of what is to be trained than `max_lost` allows.
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
        /// How many faults there are, in words.
        faults: String,
    },
    /// The tokenizer cannot encode this text.
    #[error("{place}: the tokenizer cannot encode the row: {reason}")]
    Encode {
        /// The row.
        place: Place,
        /// The tokenizer's reason.
        reason: String,
    },
}

impl Failure for DataError {
    fn exit_class(&self) -> ExitClass {
        match self {
            // The disk is at fault, not the data.
            DataError::Cache { .. } => ExitClass::Resources,
            _ => ExitClass::Data,
        }
    }

    fn next_step(&self) -> String {
        match self {
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
