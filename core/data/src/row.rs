//! One row: its bytes -> its fields; its token ids -> the ones that are kept.

use serde_json::error::Category;
use serde_json::{Map, Value};

use super::counts::Answers;
use super::error::{DataError, RowFault, RowLocation, RowNumber};
use super::fields;
use super::format::Format;
use super::options::{DataOptions, TooLong, TrainOn};
use super::reader::{MOST_ROW_BYTES, RawRow};

/// The label of a token that is not trained (Hugging Face's and PyTorch's `ignore_index`).
pub const UNTRAINED: i32 = -100;

/// One sequence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// `[n]` token ids.
    pub tokens: Vec<i32>,
    /// `[n]` labels aligned with `tokens` (not shifted); none where every token is trained.
    pub labels: Option<Vec<i32>>,
    /// Tokens before any were cut off.
    pub full_length: usize,
    /// Trained tokens before any were cut off.
    pub full_trained: usize,
    /// Its kind, for the counts.
    pub kind: Kind,
}

/// The kind of a row, for the counts of all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub format: Format,
    /// What decides about its trained tokens; not `auto`.
    pub train_on: TrainOn,
    pub answers: Answers,
    /// How often each of the file's split special tokens occurs in it.
    pub split: Vec<u32>,
}

impl Row {
    /// A row that is not cut yet.
    pub(super) fn new(tokens: Vec<i32>, labels: Option<Vec<i32>>, kind: Kind) -> Self {
        let mut row = Row {
            full_length: tokens.len(),
            full_trained: 0,
            tokens,
            labels,
            kind,
        };
        row.full_trained = row.trained();
        row
    }

    /// Tokens that are trained: those with a label, except the first token.
    pub(super) fn trained(&self) -> usize {
        self.trained_within(self.tokens.len())
    }

    /// As [`Row::trained`], of the first `length` tokens alone.
    pub(super) fn trained_within(&self, length: usize) -> usize {
        let length = length.min(self.tokens.len());
        match &self.labels {
            Some(labels) => labels[..length]
                .iter()
                .skip(1)
                .filter(|&&label| label != UNTRAINED)
                .count(),
            None => length.saturating_sub(1),
        }
    }
}

/// The outcome of one row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Kept(Row),
    TooLong(Row),
}

/// The row as a JSON object.
pub(super) fn parse(raw: &RawRow, place: &RowLocation) -> Result<Map<String, Value>, DataError> {
    let bytes = raw.bytes.as_deref().ok_or_else(|| {
        RowFault::RowBytes {
            most: MOST_ROW_BYTES,
        }
        .at(place.clone())
    })?;
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let place = place.clone();
        match e.error_len() {
            None if raw.last => RowFault::Truncated.at(place),
            _ => RowFault::Utf8 {
                byte: e.valid_up_to() + 1,
            }
            .at(place),
        }
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(row)) => Ok(row),
        Ok(other) => Err(wrong_type(place, "the row", "an object", &other)),
        Err(e) if raw.last && e.classify() == Category::Eof => {
            let place = place.clone();
            Err(RowFault::Truncated.at(place))
        }
        Err(e) => {
            let reason = e.to_string();
            // The parser counts from the row's first byte; the place is more useful.
            let reason = reason
                .rsplit_once(" at line ")
                .map_or(reason.as_str(), |(r, _)| r);
            Err(RowFault::Json {
                column: e.column() + if e.line() > 1 { 0 } else { raw.column },
                reason: reason.to_owned(),
            }
            .at(RowLocation {
                path: place.path.clone(),
                number: RowNumber::Line(raw.line + (e.line() as u64).saturating_sub(1)),
            }))
        }
    }
}

/// Applies `max_seq_len` and `too_long`.
///
/// # Errors
/// [`RowFault::TooLong`] for a longer row under [`TooLong::Error`].
pub(super) fn cut(
    mut row: Row,
    options: &DataOptions,
    place: impl FnOnce() -> RowLocation,
) -> Result<Outcome, DataError> {
    let longest = options.max_seq_len;
    match options.too_long {
        _ if row.full_length <= longest => {}
        TooLong::Truncate => {
            row.tokens.truncate(longest);
            if let Some(labels) = &mut row.labels {
                labels.truncate(longest);
            }
        }
        TooLong::Drop => return Ok(Outcome::TooLong(row)),
        TooLong::Error => {
            return Err(RowFault::TooLong {
                expected: longest,
                found: row.full_length,
            }
            .at(place()));
        }
    }
    Ok(Outcome::Kept(row))
}

pub(super) fn required<'a>(
    row: &'a Map<String, Value>,
    field: &str,
    place: &RowLocation,
) -> Result<&'a Value, DataError> {
    row.get(field).ok_or_else(|| {
        RowFault::MissingField {
            field: field.into(),
            found: fields::names(row),
        }
        .at(place.clone())
    })
}

pub(super) fn wrong_field(
    place: &RowLocation,
    field: &str,
    expected: &'static str,
    found: &Value,
) -> DataError {
    wrong_type(place, &format!("field `{field}`"), expected, found)
}

pub(super) fn wrong_type(
    place: &RowLocation,
    what: &str,
    expected: &'static str,
    found: &Value,
) -> DataError {
    RowFault::WrongType {
        what: what.into(),
        expected,
        found: match found {
            Value::Null => "null".into(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => format!("the number {number}"),
            Value::String(text) => format!("the string \"{}\"", fields::clip(text)),
            Value::Array(_) => "an array".into(),
            Value::Object(_) => "an object".into(),
        },
    }
    .at(place.clone())
}
