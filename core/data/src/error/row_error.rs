//! What is wrong with one row of a file, and where that row begins.

use super::{DataError, RowLocation};

/// A row that cannot be trained on.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct RowError {
    /// The row; the bad line of it where its JSON is at fault.
    pub place: RowLocation,
    /// What is wrong with it.
    pub fault: RowFault,
}

/// What can be wrong with a row.
#[derive(Debug, thiserror::Error)]
pub enum RowFault {
    /// The first row of a file has no format's fields.
    #[error(
        "no known format has the fields {found}; known are {known}; rename one with \
         data.fields"
    )]
    UnknownFormat {
        /// Its fields.
        found: String,
        /// The formats with their fields.
        known: &'static str,
    },
    /// The first row of a file has the fields of several formats.
    #[error("the fields fit several formats ({formats}); choose one with data.format")]
    AmbiguousFormat {
        /// The formats that fit.
        formats: String,
    },
    /// Text that is not JSON.
    #[error("invalid JSON at column {column}: {reason}")]
    Json {
        /// Byte in that line, counted from 1; 0 where the fault is the line's end.
        column: usize,
        /// The parser's reason.
        reason: String,
    },
    /// The file ends inside a row.
    #[error("the file ends inside this row; it seems to be cut off, fetch or write it again")]
    Truncated,
    /// Bytes that are no UTF-8.
    #[error("byte {byte} of the row is not valid UTF-8; convert the file to UTF-8")]
    Utf8 {
        /// The first bad byte of the row, counted from 1.
        byte: usize,
    },
    /// A field, or the row itself, of another type.
    #[error("{what} is {found}; expected {expected}")]
    WrongType {
        /// The field, or the row.
        what: String,
        /// The type it should have.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A row lacks a field of its file's format.
    #[error("field `{field}` is missing; the row has {found}")]
    MissingField {
        /// The field's name in the file.
        field: String,
        /// The fields that are there.
        found: String,
    },
    /// A token id or label that the model has no embedding for.
    #[error("{field}[{index}] = {found} is outside the model's vocabulary; expected {expected}")]
    TokenId {
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
    #[error("{field} has {found} entries; expected {expected}, one for each of input_ids")]
    Length {
        /// The field.
        field: &'static str,
        /// Entries of `input_ids`.
        expected: usize,
        /// Entries of the field.
        found: usize,
    },
    /// A pre-tokenized row that is padded.
    #[error(
        "attention_mask[{index}] is 0; expected rows without padding: remove the padded \
         tokens"
    )]
    Padded {
        /// The first masked position.
        index: usize,
    },
    /// A row above `max_seq_len` under `too_long = "error"`.
    #[error(
        "the row has {found} tokens; data.max_seq_len is {expected} and data.too_long is \
          \"error\""
    )]
    TooLong {
        /// `max_seq_len`.
        expected: usize,
        /// Tokens of the row.
        found: usize,
    },
    /// A sequence that no micro-batch can hold.
    #[error(
        "the row has {found} tokens, data.pack_tokens holds {expected}; raise it or \
         lower data.max_seq_len"
    )]
    PackTokens {
        /// `pack_tokens`.
        expected: usize,
        /// Tokens of the row.
        found: usize,
    },
    /// A conversation that the template refuses, or in which answers cannot be located.
    #[error("the chat template {origin} cannot be used for this row: {reason}")]
    Conversation {
        /// The template's name or file.
        origin: String,
        /// What it raised, or which renderings do not fit together.
        reason: String,
    },
    /// A conversation without a turn.
    #[error("field `{field}` is empty; expected at least one message")]
    NoTurns {
        /// The field's name in the file.
        field: String,
    },
    /// A turn with an unknown role.
    #[error("{what} is \"{found}\", which no template knows; expected one of {known}")]
    UnknownRole {
        /// The field.
        what: String,
        /// The role.
        found: String,
        /// The known ones.
        known: String,
    },
    /// A row that takes more than a reader may hold.
    #[error("the row has more than {most} bytes; split it, or check for a missing line end")]
    RowBytes {
        /// The most that is read.
        most: usize,
    },
    /// A parquet file that cannot be read; its places are numbers of rows.
    #[error(
        "the parquet file cannot be read here: {reason}; write it again, uncompressed or with snappy, gzip or lz4"
    )]
    Parquet {
        /// The reason.
        reason: String,
    },
    /// An empty answer or text.
    #[error(
        "field `{field}` is empty; expected {expected}: write one, or leave such rows out with \
         data.on_bad_row = \"drop\" (data.on_empty = \"train\" trains them all the same)"
    )]
    Empty {
        /// The field's name in the file.
        field: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// Tools, or tool calls, without an effect on training.
    #[error("{what} would be ignored: {why}")]
    Unused {
        /// The field.
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// The tokenizer cannot encode this text.
    #[error("the tokenizer cannot encode the row: {reason}")]
    Encode {
        /// The tokenizer's reason.
        reason: String,
    },
}

impl RowFault {
    /// The error of the row at `place`.
    pub(crate) fn at(self, place: RowLocation) -> DataError {
        RowError { place, fault: self }.into()
    }
}
