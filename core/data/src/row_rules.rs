//! The fields of a row -> its token ids and labels, by the format and the chat template of its
//! file.

mod input_ids;

use serde_json::{Map, Value};

use super::chat_template::{self, ChatTemplate, Fault, Message, Turns};
use super::conversation::{ASSISTANT, Example, Fields};
use super::counts::Answers;
use super::error::{DataError, RowFault, RowLocation, TemplateError};
use super::format::Format;
use super::options::{DataOptions, Tools, TrainOn};
use super::row::{Kind, Row, UNTRAINED};
use super::special_tokens::{self, SplitToken};
use super::tokenizer::{AddedTokens, TextTokenizer};
use super::tools;
use super::turns::{self, Rendered, trained_tokens};

/// `[n]` token ids and their labels, as in [`Row`].
type Labelled = (Vec<i32>, Option<Vec<i32>>);

/// The rules for reading the rows of one file.
pub(super) struct RowRules<'a> {
    pub options: &'a DataOptions,
    /// A format, not `auto`.
    pub format: Format,
    /// Present for all formats but `input_ids`.
    pub tokenizer: Option<&'a TextTokenizer>,
    /// Present where rows have turns.
    pub template: Option<ChatTemplate>,
    /// Special tokens that the template writes and the tokenizer splits.
    pub split: Vec<SplitToken>,
    /// Rows of the model's embedding.
    pub vocab_size: usize,
}

impl RowRules<'_> {
    /// The tokens of `row`, not cut.
    ///
    /// # Errors
    /// [`DataError::Row`] for a fault of the row. [`DataError::Template`] for a missing template or
    /// an exceeded bound.
    pub(super) fn read(
        &self,
        row: &Map<String, Value>,
        place: &RowLocation,
    ) -> Result<Row, DataError> {
        match self.tokenizer {
            Some(tokenizer) => self.example(tokenizer, row, place),
            None => {
                let (tokens, labels) = self.input_ids(row, place)?;
                Ok(Row::new(tokens, labels, self.kind()))
            }
        }
    }

    /// The choice of trained tokens for rows of the file's format.
    pub(super) fn train_on(&self) -> TrainOn {
        self.options.train_on.of(self.format)
    }

    /// The content of `row` before templates are applied.
    pub(super) fn fields(
        &self,
        row: &Map<String, Value>,
        place: &RowLocation,
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
        place: &RowLocation,
    ) -> Result<Row, DataError> {
        let unencoded = |reason| RowFault::Encode { reason }.at(place.clone());
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
                return Err(TemplateError::Missing {
                    path: place.path.clone(),
                    known: chat_template::names(),
                }
                .into());
            }
        };
        self.check_ids(&tokens, place)?;
        Ok(Row::new(tokens, labels, kind))
    }

    /// The conversation's text with its trained parts, and the choice that was applied. Under
    /// [`TrainOn::Auto`], where the template does not let earlier answers be located, only the last
    /// answer is trained.
    fn render(
        &self,
        template: &ChatTemplate,
        tokenizer: &TextTokenizer,
        turns: Turns<'_>,
        completion_from: usize,
        place: &RowLocation,
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
}

/// The counts of a conversation's answers.
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
    // The tokenizer may have added it; no byte of the text belongs to it.
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
mod tests;
