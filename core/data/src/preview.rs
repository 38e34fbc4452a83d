//! A dataset's rows -> the texts of their tokens, and which of them are trained.

use serde::Serialize;

use super::dataset::Dataset;
use super::error::DataError;
use super::row::UNTRAINED;
use super::tokenizer::{TextTokenizer, Vocabulary};

/// One row as it is trained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preview {
    /// Its file and line.
    pub place: String,
    /// Tokens that stay.
    pub length: usize,
    /// Tokens before it was cut to `max_seq_len`.
    pub full_length: usize,
    /// Tokens that are trained.
    pub trained_tokens: usize,
    /// The tokens, `[length]`.
    pub tokens: Vec<ShownToken>,
}

/// One token of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownToken {
    /// Its id.
    pub id: i32,
    /// Its text; empty for a part of a character that ends later, and without a tokenizer.
    pub text: String,
    /// Whether it is trained.
    pub trained: bool,
    /// Whether it is a special token.
    pub special: bool,
}

impl Preview {
    /// The row at `index` of `dataset`.
    ///
    /// # Errors
    /// [`DataError::Cache`] for rows that cannot be read back.
    ///
    /// # Panics
    /// Where `index` is not below [`Dataset::num_sequences`].
    pub fn of(dataset: &Dataset, vocabulary: &Vocabulary, index: usize) -> Result<Self, DataError> {
        let sequence = dataset.sequence(index)?;
        let origin = dataset.origin(index)?;
        // Rows of ids need no tokenizer; where there is one, their text can be shown.
        let tokenizer = vocabulary.tokenizer().ok();
        let texts = texts(tokenizer, &sequence.tokens);
        // A label is at the token before the one that is trained.
        let trained = sequence.labels().map(|label| label != UNTRAINED);
        let trained = std::iter::once(false).chain(trained);
        let tokens = sequence.tokens.iter().zip(texts).zip(trained);
        let tokens = tokens.map(|((&id, text), trained)| ShownToken {
            id,
            text,
            trained,
            special: tokenizer.is_some_and(|tokenizer| tokenizer.is_special(id)),
        });
        Ok(Preview {
            place: origin.place.to_string(),
            length: sequence.tokens.len(),
            full_length: origin.full_length,
            trained_tokens: sequence.trained_tokens,
            tokens: tokens.collect(),
        })
    }
}

/// The text that each token adds to the ones before: a decoder may drop the space before a single
/// token.
fn texts(tokenizer: Option<&TextTokenizer>, ids: &[i32]) -> Vec<String> {
    let Some(tokenizer) = tokenizer else {
        return vec![String::new(); ids.len()];
    };
    /// Tokens before one that its text may depend on.
    const BEFORE: usize = 8;
    let decode = |ids: &[i32]| tokenizer.decode(ids).unwrap_or_default();
    let mut texts: Vec<String> = Vec::with_capacity(ids.len());
    let mut begun = 0;
    for end in 1..=ids.len() {
        let from = begun.min(end - 1).saturating_sub(BEFORE);
        let (before, with) = (decode(&ids[from..begun]), decode(&ids[from..end]));
        // The decoder shows an incomplete character as a replacement character.
        if with.ends_with('\u{FFFD}') && end < ids.len() && end - begun < 4 {
            texts.push(String::new());
            continue;
        }
        texts.push(with.strip_prefix(&before).unwrap_or(&with).to_owned());
        begun = end;
    }
    texts
}
