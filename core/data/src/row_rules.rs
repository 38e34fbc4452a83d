//! The fields of a row -> its token ids and labels, as the format and the chat template of its file say.

use serde_json::{Map, Number, Value};

use super::chat_template::{self, ChatTemplate, Fault, Message, Turns};
use super::conversation::{ASSISTANT, Example, Fields};
use super::counts::Answers;
use super::error::{DataError, Place};
use super::fields::renamed;
use super::format::Format;
use super::options::{DataOptions, Tools, TrainOn};
use super::row::{Kind, Row, UNTRAINED, required, wrong_field, wrong_type};
use super::special_tokens::{self, SplitToken};
use super::tokenizer::{AddedTokens, TextTokenizer};
use super::tools;
use super::turns::{self, Rendered, trained_tokens};

/// `[n]` token ids and their labels, as in [`Row`].
type Labelled = (Vec<i32>, Option<Vec<i32>>);

/// How the rows of one file are read.
pub(super) struct RowRules<'a> {
    pub options: &'a DataOptions,
    /// A format, not `auto`.
    pub format: Format,
    /// For all formats but `input_ids`.
    pub tokenizer: Option<&'a TextTokenizer>,
    /// Where rows have turns.
    pub template: Option<ChatTemplate>,
    /// Special tokens that the template writes and the tokenizer splits.
    pub split: Vec<SplitToken>,
    /// Rows of the model's embedding.
    pub vocab_size: usize,
}

impl RowRules<'_> {
    /// The tokens of `row`, none cut off.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&self, row: &Map<String, Value>, place: &Place) -> Result<Row, DataError> {
        match self.tokenizer {
            Some(tokenizer) => self.example(tokenizer, row, place),
            None => {
                let (tokens, labels) = self.input_ids(row, place)?;
                Ok(Row::new(tokens, labels, self.kind()))
            }
        }
    }

    /// What decides about the trained tokens of rows of the file's format.
    pub(super) fn train_on(&self) -> TrainOn {
        self.options.train_on.of(self.format)
    }

    /// What `row` says before any template.
    pub(super) fn fields(
        &self,
        row: &Map<String, Value>,
        place: &Place,
    ) -> Result<Example, DataError> {
        let fields = Fields {
            options: self.options,
            templated: self.template.is_some(),
        };
        fields.read(self.format, row, place)
    }

    fn kind(&self) -> Kind {
        Kind {
            format: self.format,
            train_on: self.train_on(),
            ..Kind::default()
        }
    }

    /// The ids and labels of a row of text or turns.
    fn example(
        &self,
        tokenizer: &TextTokenizer,
        row: &Map<String, Value>,
        place: &Place,
    ) -> Result<Row, DataError> {
        let unencoded = |reason| DataError::Encode {
            place: place.clone(),
            reason,
        };
        let mut kind = self.kind();
        let (tokens, labels) = match (self.fields(row, place)?, &self.template) {
            (Example::Plain { prompt, completion }, _) => {
                plain(tokenizer, &prompt, &completion, kind.train_on).map_err(unencoded)?
            }
            (
                Example::Turns {
                    messages,
                    completion_from,
                    tools,
                },
                Some(template),
            ) => {
                let turns = Turns {
                    messages: &messages,
                    tools: tools.as_ref(),
                };
                let (rendered, train_on) =
                    self.render(template, tokenizer, turns, completion_from, place)?;
                if self.options.tools == Tools::Write {
                    tools::check_written(template, turns, &rendered.text, place)?;
                }
                let last_alone = train_on != kind.train_on;
                kind.answers = answers(&messages, completion_from, train_on, last_alone);
                kind.split = special_tokens::count(&self.split, &rendered.text);
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
        Ok(Row::new(tokens, labels, kind))
    }

    /// The conversation's text with what is trained of it, and what decided about that: where nobody chose and the
    /// template does not let earlier answers be told apart, the last answer alone.
    fn render(
        &self,
        template: &ChatTemplate,
        tokenizer: &TextTokenizer,
        turns: Turns<'_>,
        completion_from: usize,
        place: &Place,
    ) -> Result<(Rendered, TrainOn), DataError> {
        template.of_row(place, |template| {
            let render = |train_on| {
                turns::render(template, tokenizer, turns, completion_from, train_on)
                    .map(|rendered| (rendered, train_on))
            };
            let rendered = render(self.train_on());
            match rendered {
                Err(Fault::Raised(_)) if self.options.train_on == TrainOn::Auto => {
                    render(TrainOn::Completion).or(rendered)
                }
                _ => rendered,
            }
        })
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
        let same_length = |field, found| {
            if found == tokens.len() {
                Ok(())
            } else {
                Err(DataError::Length {
                    place: place.clone(),
                    field,
                    expected: tokens.len(),
                    found,
                })
            }
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
}

/// What of a conversation is trained, answer by answer.
fn answers(
    messages: &[Message],
    completion_from: usize,
    train_on: TrainOn,
    last_alone: bool,
) -> Answers {
    let from = match train_on {
        TrainOn::Auto | TrainOn::Completion => completion_from,
        TrainOn::Assistant | TrainOn::All => 0,
    };
    let is_answer = |message: &&Message| message.role == ASSISTANT;
    let trained = messages[from..].iter().filter(is_answer);
    let is_empty = |message: &&Message| {
        message.content.trim().is_empty() && message.other.is_empty() && !message.without_text
    };
    Answers {
        trained: trained.clone().count() as u32,
        untrained: messages[..from].iter().filter(is_answer).count() as u32,
        empty: trained.filter(is_empty).count() as u32,
        last_alone,
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::options::TooLong;
    use super::super::reader::RawRow;
    use super::super::row::{Outcome, cut, parse};
    use super::*;

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
            split: Vec::new(),
            vocab_size: 10,
        };
        parse(&raw(text.as_bytes()), &place)
            .and_then(|row| rules.read(&row, &place))
            .and_then(|row| cut(row, &options, || place))
            .map_err(|e| e.to_string())
    }

    fn row(tokens: &[i32], labels: Option<&[i32]>) -> Row {
        let kind = Kind {
            format: Format::InputIds,
            train_on: TrainOn::Completion,
            ..Kind::default()
        };
        Row::new(tokens.to_vec(), labels.map(<[i32]>::to_vec), kind)
    }

    fn kept(tokens: &[i32], labels: Option<&[i32]>, full: [usize; 2]) -> Outcome {
        let [full_length, full_trained] = full;
        Outcome::Kept(Row {
            full_length,
            full_trained,
            ..row(tokens, labels)
        })
    }

    #[test]
    fn ids_and_labels_are_read_as_they_are() {
        let row = r#"{"input_ids": [0, 9], "labels": [-100, 3], "attention_mask": [1, 1]}"#;
        assert_eq!(
            read(row, |_| ()),
            Ok(kept(&[0, 9], Some(&[-100, 3]), [2, 1]))
        );
        let row = r#"{"input_ids": [0, 9], "labels": null, "other": {}}"#;
        assert_eq!(read(row, |_| ()), Ok(kept(&[0, 9], None, [2, 1])));
        let row = r#"{"ids": [4]}"#;
        let renamed = read(row, |o| {
            o.fields.insert("input_ids".into(), "ids".into());
        });
        assert_eq!(renamed, Ok(kept(&[4], None, [1, 0])));
    }

    #[test]
    fn long_rows_are_cut_left_out_or_refused() {
        let text = r#"{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}"#;
        let under = |too_long| {
            read(text, |o| {
                o.max_seq_len = 2;
                o.too_long = too_long;
            })
        };
        let cut = kept(&[1, 2], Some(&[1, 2]), [3, 2]);
        assert_eq!(under(TooLong::Truncate), Ok(cut));
        let left_out = Outcome::TooLong(row(&[1, 2, 3], Some(&[1, 2, 3])));
        assert_eq!(under(TooLong::Drop), Ok(left_out));
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
