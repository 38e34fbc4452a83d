//! The end of an answer: end tokens and stop texts.

use std::path::Path;

use espalier_system::files::{ModelDirectory, WeightsError};
use serde_json::Value;

use crate::Error;

/// The tokens that end an answer: `eos_token_id` of `generation_config.json` and of `config.json`,
/// a number or a list, and the tokenizer's own.
///
/// # Errors
/// A `generation_config.json` that cannot be read, or an invalid id.
pub fn end_tokens(
    directory: &ModelDirectory,
    tokenizers: Option<i32>,
    vocab_size: u64,
) -> Result<Vec<i32>, Error> {
    let mut tokens: Vec<i32> = tokenizers.into_iter().collect();
    tokens.extend(ids(
        &directory.path().join("config.json"),
        directory.config(),
        vocab_size,
    )?);
    if let Some(config) = directory.generation_config()? {
        let path = directory.path().join("generation_config.json");
        tokens.extend(ids(&path, &config, vocab_size)?);
    }
    tokens.sort_unstable();
    tokens.dedup();
    Ok(tokens)
}

/// The ids under `eos_token_id`.
fn ids(path: &Path, config: &Value, vocab_size: u64) -> Result<Vec<i32>, Error> {
    let found = match config.get("eos_token_id") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.clone(),
        Some(id) => vec![id.clone()],
    };
    let id = |value: &Value| {
        let id = value.as_u64().filter(|&id| id < vocab_size);
        id.map(|id| id as i32).ok_or_else(|| {
            Error::Weights(WeightsError {
                path: path.to_owned(),
                message: format!("eos_token_id: expected ids below {vocab_size}, found {value}"),
            })
        })
    };
    found.iter().map(id).collect()
}

/// Cuts a streamed text at the first stop text.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    stops: Vec<String>,
    /// Text held back, since it can be the start of a stop text.
    held: String,
}

/// A piece of text, and whether a stop text followed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPiece {
    /// Text to show.
    pub text: String,
    /// Whether the answer ends with it.
    pub stopped: bool,
}

impl Cut {
    /// A cut at any of `stops`; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty());
        Cut {
            stops: stops.cloned().collect(),
            held: String::new(),
        }
    }

    /// Takes the next piece, and returns the text that can no longer be part of a stop text.
    pub fn push(&mut self, piece: &str) -> TextPiece {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop));
        if let Some(at) = found.min() {
            let text = self.held[..at].to_owned();
            self.held.clear();
            return TextPiece {
                text,
                stopped: true,
            };
        }
        let overlaps = self.stops.iter().map(|stop| overlap(&self.held, stop));
        let keep = overlaps.max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        TextPiece {
            text: std::mem::replace(&mut self.held, rest),
            stopped: false,
        }
    }

    /// The text held back, for an answer that ends without a stop text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest suffix of `text` that is a prefix of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at);
    lengths
        .filter(|&len| text.ends_with(&stop[..len]))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stop_texts_are_found_across_pieces_and_never_shown() {
        let mut cut = Cut::new(&["\n\n".into(), "END".into(), String::new()]);
        let mut shown = String::new();
        let mut stopped = false;
        for piece in ["a\n", "b E", "N", "D of it"] {
            let piece = cut.push(piece);
            shown.push_str(&piece.text);
            stopped = piece.stopped;
        }
        assert!(stopped);
        assert_eq!(shown, "a\nb ");
    }

    #[test]
    fn text_held_back_without_a_stop_text_is_returned() {
        let mut cut = Cut::new(&["ENDE".into()]);
        assert_eq!(cut.push("x EN").text, "x ");
        assert_eq!(cut.push("é E").text, "ENé ");
        assert_eq!(cut.finish(), "E");
    }

    #[test]
    fn end_tokens_are_a_number_or_a_list_and_below_the_vocabulary() {
        let of = |config: Value| ids(Path::new("config.json"), &config, 10);
        assert_eq!(of(json!({})).expect("none"), Vec::<i32>::new());
        assert_eq!(of(json!({"eos_token_id": 3})).expect("one"), [3]);
        assert_eq!(of(json!({"eos_token_id": [3, 9]})).expect("two"), [3, 9]);
        let error = of(json!({"eos_token_id": 10})).expect_err("too large");
        assert_eq!(error.exit_code(), 4);
        assert!(error.to_string().contains("below 10, found 10"), "{error}");
    }
}
