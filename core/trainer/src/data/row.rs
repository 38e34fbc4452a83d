//! The bytes of one row -> its token ids and labels.

use serde_json::error::Category;
use serde_json::{Map, Number, Value};

use super::chat_template::{self, ChatTemplate};
use super::conversation::{Example, Fields};
use super::error::{DataError, Place};
use super::format::{self, Format, renamed};
use super::options::{DataOptions, TooLong, TrainOn};
use super::reader::{MOST_ROW_BYTES, RawRow};
use super::tokenizer::{AddedTokens, TextTokenizer};
use super::turns::{self, trained_tokens};

/// The label of a token that is not trained (Hugging Face's and PyTorch's `ignore_index`).
pub const UNTRAINED: i32 = -100;

/// One sequence, cut to the longest length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// `[n]` token ids.
    pub tokens: Vec<i32>,
    /// `[n]` labels aligned with `tokens` (not shifted); none where every token is trained.
    pub labels: Option<Vec<i32>>,
    /// Tokens before any were cut off.
    pub full_length: usize,
}

/// `[n]` token ids and their labels, as in [`Row`].
type Labelled = (Vec<i32>, Option<Vec<i32>>);

/// What becomes of one row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Kept(Row),
    TooLong,
}

/// The row as a JSON object.
pub(super) fn parse(raw: &RawRow, place: &Place) -> Result<Map<String, Value>, DataError> {
    let bytes = raw.bytes.as_deref().ok_or_else(|| DataError::RowBytes {
        place: place.clone(),
        most: MOST_ROW_BYTES,
    })?;
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let place = place.clone();
        match e.error_len() {
            None if raw.last => DataError::Truncated { place },
            _ => DataError::Utf8 {
                place,
                byte: e.valid_up_to() + 1,
            },
        }
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(row)) => Ok(row),
        Ok(other) => Err(wrong_type(place, "the row", "an object", &other)),
        Err(e) if raw.last && e.classify() == Category::Eof => {
            let place = place.clone();
            Err(DataError::Truncated { place })
        }
        Err(e) => {
            let reason = e.to_string();
            // The parser's own position counts from the row's first byte; the place says it better.
            let reason = reason
                .rsplit_once(" at line ")
                .map_or(reason.as_str(), |(r, _)| r);
            Err(DataError::Json {
                place: Place {
                    path: place.path.clone(),
                    line: place.line + (e.line() as u64).saturating_sub(1),
                },
                column: e.column() + if e.line() > 1 { 0 } else { raw.column },
                reason: reason.to_owned(),
            })
        }
    }
}

/// How the rows of one file are read.
pub(super) struct RowRules<'a> {
    pub options: &'a DataOptions,
    /// A format, not `auto`.
    pub format: Format,
    /// For all formats but `input_ids`.
    pub tokenizer: Option<&'a TextTokenizer>,
    /// Where rows have turns.
    pub template: Option<ChatTemplate>,
    /// Rows of the model's embedding.
    pub vocab_size: usize,
}

impl RowRules<'_> {
    /// The tokens of `row`.
    pub(super) fn read(
        &self,
        row: &Map<String, Value>,
        place: &Place,
    ) -> Result<Outcome, DataError> {
        let (tokens, labels) = match self.tokenizer {
            Some(tokenizer) => self.example(tokenizer, row, place)?,
            None => self.input_ids(row, place)?,
        };
        self.cut(tokens, labels, place)
    }

    /// The ids and labels of a row of text or turns.
    fn example(
        &self,
        tokenizer: &TextTokenizer,
        row: &Map<String, Value>,
        place: &Place,
    ) -> Result<Labelled, DataError> {
        let fields = Fields {
            renames: &self.options.fields,
            templated: self.template.is_some(),
        };
        let unencoded = |reason| DataError::Encode {
            place: place.clone(),
            reason,
        };
        let (tokens, labels) = match (fields.read(self.format, row, place)?, &self.template) {
            (Example::Plain { prompt, completion }, _) => {
                let train_on = self.options.train_on;
                plain(tokenizer, &prompt, &completion, train_on).map_err(unencoded)?
            }
            (
                Example::Turns {
                    messages,
                    completion_from,
                },
                Some(template),
            ) => {
                let train_on = self.options.train_on;
                let rendered =
                    turns::render(template, tokenizer, &messages, completion_from, train_on)
                        .map_err(|reason| DataError::Conversation {
                            place: place.clone(),
                            origin: template.origin().to_owned(),
                            reason,
                        })?;
                let encoded = tokenizer.encode_with_offsets(&rendered.text, AddedTokens::None);
                let (ids, offsets) = encoded.map_err(unencoded)?;
                let labels = rendered.trained.map(|trained| {
                    let trained = trained_tokens(&offsets, &trained);
                    labels_where(&ids, &trained)
                });
                (ids, labels)
            }
            (Example::Turns { .. }, None) => {
                return Err(DataError::NoTemplate {
                    path: place.path.clone(),
                    known: chat_template::names(),
                });
            }
        };
        self.check_ids(&tokens, place)?;
        Ok((tokens, labels))
    }

    /// A tokenizer can give ids that the model has no row for.
    fn check_ids(&self, tokens: &[i32], place: &Place) -> Result<(), DataError> {
        let known = 0..self.vocab_size as i64;
        match tokens.iter().position(|&id| !known.contains(&id.into())) {
            Some(index) => Err(DataError::TokenId {
                place: place.clone(),
                field: "tokens".into(),
                index,
                found: tokens[index].to_string(),
                expected: format!("0 to {}", self.vocab_size.saturating_sub(1)),
            }),
            None => Ok(()),
        }
    }

    fn input_ids(&self, row: &Map<String, Value>, place: &Place) -> Result<Labelled, DataError> {
        let name = |field| renamed(&self.options.fields, field);
        let ids = name("input_ids");
        let tokens = self.ids(required(row, ids, place)?, ids, Ids::Tokens, place)?;
        let same_length = |field, found| match found == tokens.len() {
            true => Ok(()),
            false => Err(DataError::Length {
                place: place.clone(),
                field,
                expected: tokens.len(),
                found,
            }),
        };
        let mask = row.get(name("attention_mask")).filter(|v| !v.is_null());
        if let Some(mask) = mask {
            let Value::Array(mask) = mask else {
                return Err(wrong_field(place, name("attention_mask"), "an array", mask));
            };
            same_length("attention_mask", mask.len())?;
            if let Some(index) = mask.iter().position(|entry| entry.as_u64() != Some(1)) {
                let place = place.clone();
                return Err(DataError::Padded { place, index });
            }
        }
        let labels = row.get(name("labels")).filter(|v| !v.is_null());
        let labels = match labels {
            Some(labels) => Some(self.ids(labels, name("labels"), Ids::Labels, place)?),
            None => None,
        };
        if let Some(labels) = &labels {
            same_length("labels", labels.len())?;
        }
        Ok((tokens, labels))
    }

    /// An array of ids below the vocabulary's size; labels may also be [`UNTRAINED`].
    fn ids(
        &self,
        value: &Value,
        field: &str,
        kind: Ids,
        place: &Place,
    ) -> Result<Vec<i32>, DataError> {
        let Value::Array(entries) = value else {
            return Err(wrong_field(place, field, "an array of integers", value));
        };
        let mut ids = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let Value::Number(number) = entry else {
                let what = format!("field `{field}`[{index}]");
                return Err(wrong_type(place, &what, "an integer", entry));
            };
            match number.as_i64() {
                Some(id) if id >= 0 && (id as u64) < self.vocab_size as u64 => ids.push(id as i32),
                Some(id) if kind == Ids::Labels && id == i64::from(UNTRAINED) => {
                    ids.push(UNTRAINED)
                }
                None if number.is_f64() && !is_huge(number) => {
                    let what = format!("field `{field}`[{index}]");
                    return Err(wrong_type(place, &what, "an integer", entry));
                }
                _ => {
                    let mut expected = format!("0 to {}", self.vocab_size.saturating_sub(1));
                    if kind == Ids::Labels {
                        expected += ", or -100 where nothing is trained";
                    }
                    return Err(DataError::TokenId {
                        place: place.clone(),
                        field: field.into(),
                        index,
                        found: number.to_string(),
                        expected,
                    });
                }
            }
        }
        Ok(ids)
    }

    /// Applies `max_seq_len` and `too_long`.
    fn cut(
        &self,
        mut tokens: Vec<i32>,
        mut labels: Option<Vec<i32>>,
        place: &Place,
    ) -> Result<Outcome, DataError> {
        let longest = self.options.max_seq_len;
        let full_length = tokens.len();
        match self.options.too_long {
            _ if full_length <= longest => {}
            TooLong::Truncate => {
                tokens.truncate(longest);
                if let Some(labels) = &mut labels {
                    labels.truncate(longest);
                }
            }
            TooLong::Drop => return Ok(Outcome::TooLong),
            TooLong::Error => {
                return Err(DataError::TooLong {
                    place: place.clone(),
                    expected: longest,
                    found: full_length,
                });
            }
        }
        Ok(Outcome::Kept(Row {
            tokens,
            labels,
            full_length,
        }))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    Tokens,
    Labels,
}

/// Whether `number` is an integer too large for 64 bits: an id out of range, not a wrong type.
fn is_huge(number: &Number) -> bool {
    number
        .as_f64()
        .is_some_and(|n| n.abs() >= 9_223_372_036_854_775_808.0) // 2^63
}

/// The ids and labels of a text of two parts, with the tokenizer's own special tokens and the end
/// token.
fn plain(
    tokenizer: &TextTokenizer,
    prompt: &str,
    completion: &str,
    train_on: TrainOn,
) -> Result<Labelled, String> {
    if prompt.is_empty() || train_on == TrainOn::All {
        let text = format!("{prompt}{completion}");
        return Ok((tokenizer.encode_row(&text)?, None));
    }
    let text = format!("{prompt}{completion}");
    let (mut ids, offsets) = tokenizer.encode_with_offsets(&text, AddedTokens::Tokenizers)?;
    let completion = prompt.len()..text.len();
    let mut trained = trained_tokens(&offsets, std::slice::from_ref(&completion));
    if ids.last() != Some(&tokenizer.end_token()) {
        ids.push(tokenizer.end_token());
        trained.push(true);
    }
    // The tokenizer may have added it, for no byte of the text.
    *trained.last_mut().expect("the end token is there") = true;
    let labels = labels_where(&ids, &trained);
    Ok((ids, Some(labels)))
}

fn labels_where(ids: &[i32], trained: &[bool]) -> Vec<i32> {
    let labelled = ids.iter().zip(trained);
    labelled
        .map(|(&id, &trained)| if trained { id } else { UNTRAINED })
        .collect()
}

pub(super) fn required<'a>(
    row: &'a Map<String, Value>,
    field: &str,
    place: &Place,
) -> Result<&'a Value, DataError> {
    row.get(field).ok_or_else(|| DataError::MissingField {
        place: place.clone(),
        field: field.into(),
        found: format::names(row),
    })
}

pub(super) fn wrong_field(
    place: &Place,
    field: &str,
    expected: &'static str,
    found: &Value,
) -> DataError {
    wrong_type(place, &format!("field `{field}`"), expected, found)
}

pub(super) fn wrong_type(
    place: &Place,
    what: &str,
    expected: &'static str,
    found: &Value,
) -> DataError {
    DataError::WrongType {
        place: place.clone(),
        what: what.into(),
        expected,
        found: match found {
            Value::Null => "null".into(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => format!("the number {number}"),
            Value::String(text) => format!("the string \"{}\"", format::clip(text)),
            Value::Array(_) => "an array".into(),
            Value::Object(_) => "an object".into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn raw(text: &[u8]) -> RawRow {
        RawRow {
            line: 3,
            column: 0,
            bytes: Some(text.to_vec()),
            last: false,
        }
    }

    fn read(text: &str, change: impl FnOnce(&mut DataOptions)) -> Result<Outcome, String> {
        let mut options = DataOptions::default();
        change(&mut options);
        let place = Place::new(Path::new("f"), 3);
        let rules = RowRules {
            options: &options,
            format: Format::InputIds,
            tokenizer: None,
            template: None,
            vocab_size: 10,
        };
        parse(&raw(text.as_bytes()), &place)
            .and_then(|row| rules.read(&row, &place))
            .map_err(|e| e.to_string())
    }

    fn kept(tokens: &[i32], labels: Option<&[i32]>, full_length: usize) -> Outcome {
        Outcome::Kept(Row {
            tokens: tokens.to_vec(),
            labels: labels.map(<[i32]>::to_vec),
            full_length,
        })
    }

    #[test]
    fn ids_and_labels_are_read_as_they_are() {
        let row = r#"{"input_ids": [0, 9], "labels": [-100, 3], "attention_mask": [1, 1]}"#;
        assert_eq!(read(row, |_| ()), Ok(kept(&[0, 9], Some(&[-100, 3]), 2)));
        let row = r#"{"input_ids": [0, 9], "labels": null, "other": {}}"#;
        assert_eq!(read(row, |_| ()), Ok(kept(&[0, 9], None, 2)));
        let row = r#"{"ids": [4]}"#;
        let renamed = read(row, |o| {
            o.fields.insert("input_ids".into(), "ids".into());
        });
        assert_eq!(renamed, Ok(kept(&[4], None, 1)));
    }

    #[test]
    fn long_rows_are_cut_left_out_or_refused() {
        let row = r#"{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}"#;
        let under = |too_long| {
            read(row, |o| {
                o.max_seq_len = 2;
                o.too_long = too_long;
            })
        };
        let cut = kept(&[1, 2], Some(&[1, 2]), 3);
        assert_eq!(under(TooLong::Truncate), Ok(cut));
        assert_eq!(under(TooLong::Drop), Ok(Outcome::TooLong));
        let refused = under(TooLong::Error).unwrap_err();
        assert!(
            refused.contains("f:3: the row has 3 tokens; data.max_seq_len is 2"),
            "{refused}"
        );
    }

    #[test]
    fn bad_rows_say_what_was_expected() {
        for (row, expected) in [
            ("[1]", "the row is an array; expected an object"),
            ("3", "the row is the number 3; expected an object"),
            (
                "{\"input_ids\": [1,]}",
                "invalid JSON at column 18: trailing comma",
            ),
            (
                "{\"input_ids\":\n [1 2]}",
                "f:4: invalid JSON at column 5: expected `,` or `]`",
            ),
            ("{} {}", "invalid JSON at column 4: trailing characters"),
            (
                r#"{"labels": []}"#,
                "field `input_ids` is missing; the row has `labels`",
            ),
            (
                r#"{"input_ids": "1 2"}"#,
                "field `input_ids` is the string \"1 2\"; expected an array",
            ),
            (r#"{"input_ids": null}"#, "field `input_ids` is null"),
            (
                r#"{"input_ids": [1, "2"]}"#,
                "field `input_ids`[1] is the string \"2\"; expected an integer",
            ),
            (
                r#"{"input_ids": [1.5]}"#,
                "field `input_ids`[0] is the number 1.5; expected an integer",
            ),
            (
                r#"{"input_ids": [10]}"#,
                "input_ids[0] = 10 is outside the model's vocabulary; expected 0 to 9",
            ),
            (r#"{"input_ids": [0, -1]}"#, "input_ids[1] = -1 is outside"),
            (
                r#"{"input_ids": [18446744073709551615]}"#,
                "= 18446744073709551615 is outside",
            ),
            (
                r#"{"input_ids": [99999999999999999999999]}"#,
                "is outside the model's vocabulary",
            ),
            (r#"{"input_ids": [-100]}"#, "input_ids[0] = -100 is outside"),
            (
                r#"{"input_ids": [1], "labels": [-1]}"#,
                "labels[0] = -1 is outside the model's vocabulary; expected 0 to 9, or -100",
            ),
            (
                r#"{"input_ids": [1, 2], "labels": [1]}"#,
                "labels has 1 entries; expected 2",
            ),
            (
                r#"{"input_ids": [1, 2], "attention_mask": [1]}"#,
                "attention_mask has 1 entries; expected 2",
            ),
            (
                r#"{"input_ids": [1, 2], "attention_mask": [1, 0]}"#,
                "attention_mask[1] is 0",
            ),
            (
                r#"{"input_ids": [1], "labels": 3}"#,
                "field `labels` is the number 3; expected an array",
            ),
        ] {
            let message = read(row, |_| ()).expect_err(row);
            assert!(message.starts_with("f:"), "{row}: {message}");
            assert!(message.contains(expected), "{row}: {message}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_placed() {
        let place = Place::new(Path::new("f"), 3);
        let message = |row: &RawRow| parse(row, &place).unwrap_err().to_string();
        assert!(message(&raw(b"{\"a\": \"\xff\"}")).starts_with("f:3: byte 8 of the row"));
        let mut cut = raw(b"{\"a\": \"\xe6\x97");
        assert!(message(&cut).contains("not valid UTF-8"));
        cut.last = true;
        assert!(message(&cut).contains("the file ends inside this row"));
        let deep = "[".repeat(100_000);
        assert!(message(&raw(deep.as_bytes())).contains("recursion limit"));
        let surrogate = raw(br#"{"a": "\ud800"}"#);
        assert!(
            message(&surrogate).contains("invalid JSON"),
            "{}",
            message(&surrogate)
        );
    }
}
