//! The formats of rows.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the fields of a row mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Detected from the first row of each file.
    #[default]
    Auto,
    /// `text`: all of it is trained, and so is the end token that follows it.
    Text,
    /// `input_ids` with optional `labels` (-100: not trained), aligned as in Hugging Face's models:
    /// `labels[t]` is the label of token `t` itself, and its prediction is at `t - 1`. Taken as
    /// it is: no token is added.
    InputIds,
    /// `instruction`, `input`, `output`.
    Alpaca,
    /// `messages` of `role` and `content`, or sharegpt's `conversations`.
    Chat,
    /// `prompt`, `completion`.
    PromptCompletion,
}

/// The formats with their fields, for messages.
pub const KNOWN: &str = "text (field `text`), input_ids (`input_ids`, optional `labels`), alpaca \
    (`instruction`, `output`, optional `input`), chat (`messages` or `conversations`) and \
    prompt_completion (`prompt`, `completion`)";

impl Format {
    /// The name in the config.
    pub fn name(self) -> &'static str {
        match self {
            Format::Auto => "auto",
            Format::Text => "text",
            Format::InputIds => "input_ids",
            Format::Alpaca => "alpaca",
            Format::Chat => "chat",
            Format::PromptCompletion => "prompt_completion",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
