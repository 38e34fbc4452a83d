//! A chat template and a tokenizer -> the special tokens that the template writes and the tokenizer
//! splits.
//!
//! Such a token is trained as the pieces of its text, which the model has never seen in that
//! meaning.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::chat_template::{ChatTemplate, Message, Turns};
use super::conversation::ASSISTANT;
use super::tokenizer::TextTokenizer;

/// A special token that the tokenizer splits into pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SplitToken {
    /// Its text.
    pub token: String,
    /// The template that writes it.
    pub template: String,
    /// Tokens that it becomes.
    pub pieces: u64,
    /// How often it occurs in the rows.
    pub count: u64,
    /// Whether it ends an answer.
    pub ends_answers: bool,
}

impl SplitToken {
    /// Whether it is the same token of the same template.
    pub(super) fn is_as(&self, other: &SplitToken) -> bool {
        (&self.token, &self.template) == (&other.token, &other.template)
    }
}

/// The special tokens of `template` that `tokenizer` splits, found by rendering turns like
/// `messages`. Their counts are 0.
pub(super) fn split(
    template: &ChatTemplate,
    tokenizer: &TextTokenizer,
    messages: &[Message],
) -> Vec<SplitToken> {
    // The turns' text must not be mistaken for the template's.
    const SAID: &str = "x";
    let messages: Vec<Message> = messages
        .iter()
        .map(|message| Message {
            content: SAID.to_owned(),
            ..message.clone()
        })
        .collect();
    let turns = Turns {
        messages: &messages,
        tools: None,
    };
    let Ok(text) = template.text(turns) else {
        return Vec::new();
    };
    let last = messages.iter().rposition(|m| m.role == ASSISTANT);
    let ended = last.and_then(|_| text.rsplit_once(SAID));
    let behind = ended.map_or("", |(_, behind)| behind.trim_start());
    let found: BTreeMap<&str, ()> = special()
        .find_iter(&text)
        .map(|m| (m.as_str(), ()))
        .collect();
    found
        .into_keys()
        .filter_map(|token| {
            let pieces = tokenizer.pieces(token)?;
            Some(SplitToken {
                token: token.to_owned(),
                template: template.origin().to_owned(),
                pieces: pieces as u64,
                count: 0,
                ends_answers: behind.starts_with(token),
            })
        })
        .collect()
}

/// How often each of `split` occurs in `text`.
pub(super) fn count(split: &[SplitToken], text: &str) -> Vec<u32> {
    let count = |one: &SplitToken| text.matches(one.token.as_str()).count() as u32;
    split.iter().map(count).collect()
}

/// Special tokens as models write them: `<|im_start|>`, `<s>`, `</s>`, `<start_of_turn>`, `<eos>`.
fn special() -> &'static Regex {
    static SPECIAL: OnceLock<Regex> = OnceLock::new();
    let pattern = r"<[|｜][^|｜<>\s]{1,40}[|｜]>|</?s>|<(?:bos|eos|(?:start|end)_of_[a-z]{1,20})>";
    SPECIAL.get_or_init(|| Regex::new(pattern).expect("a fixed pattern"))
}

/// A line about tokens that are split; none where there are none.
pub fn describe(split: &[SplitToken]) -> Option<String> {
    let template = &split.first()?.template;
    let tokens = split.iter().map(|one| {
        let times = one.count;
        format!("{} ({} pieces, {times} times)", one.token, one.pieces)
    });
    let tokens: Vec<String> = tokens.collect();
    let end = if split.iter().any(|one| one.ends_answers) {
        ", and no token ends an answer"
    } else {
        ""
    };
    Some(format!(
        "the chat template {template} writes {}, which the tokenizer has no token for: they are trained as \
         pieces of text{end}; choose a template whose tokens it has with data.chat_template (\"tokenizer\": the \
         model's own), or a model that has these tokens",
        tokens.join(", ")
    ))
}
