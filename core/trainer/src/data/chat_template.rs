//! A conversation -> its text, by the model's own chat template or another one, as transformers
//! renders it.

mod environment;
mod shipped;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use minijinja::Environment;
use minijinja::value::Value as Jinja;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::environment::{BEGIN, END, MARKING, NAME};
use self::shipped::SHIPPED;
use super::error::DataError;
use super::tokenizer::{json, token_text};
use crate::files::{FileKind, read_regular_text};

/// The name under which `data.chat_template` finds the tokenizer's own template.
const OWN: &str = "tokenizer";
/// Tokens of `tokenizer_config.json` that templates name.
const SPECIAL_TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool` or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Other keys that a template may read, such as `tool_calls` and `name`.
    #[serde(flatten)]
    pub other: Map<String, Value>,
    /// Whether there is no text beside calls of tools; templates then see `none`.
    #[serde(skip)]
    pub(super) without_text: bool,
}

impl Message {
    /// A turn of nothing but text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message {
            role: role.into(),
            content: content.into(),
            other: Map::new(),
            without_text: false,
        }
    }

    /// The turn as a template sees it.
    fn to_value(&self) -> Value {
        let mut value = serde_json::to_value(self).expect("a turn is plain data");
        if self.without_text {
            value["content"] = Value::Null;
        }
        value
    }
}

/// The turns of a conversation, and the tools that it may call.
#[derive(Clone, Copy)]
pub(super) struct Turns<'a> {
    pub messages: &'a [Message],
    /// A list of objects.
    pub tools: Option<&'a Value>,
}

impl<'a> Turns<'a> {
    /// The first `count` turns.
    pub(super) fn first(self, count: usize) -> Self {
        Turns {
            messages: &self.messages[..count],
            ..self
        }
    }
}

impl<'a> From<&'a [Message]> for Turns<'a> {
    fn from(messages: &'a [Message]) -> Self {
        Turns {
            messages,
            tools: None,
        }
    }
}

/// A template with the special tokens of the model that it writes for.
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: BTreeMap<String, String>,
    origin: String,
    source: String,
}

impl ChatTemplate {
    /// The template of `choice` for the model in `model_dir`: `llama2`, `llama3`, `mistral`,
    /// `chatml` or `zephyr`, which are shipped; `tokenizer` or none for the tokenizer's own; the
    /// name of one in the tokenizer's list; else a file. Nothing where the tokenizer's own is asked
    /// for and it has none.
    ///
    /// # Errors
    /// A file that cannot be read, a name that is nowhere, a text that is no template.
    pub fn open(model_dir: &Path, choice: Option<&str>) -> Result<Option<Self>, DataError> {
        let found = match choice {
            None | Some(OWN) => own(model_dir, "default")?,
            Some(name) => Some(chosen(model_dir, name)?),
        };
        let Some((origin, source)) = found else {
            return Ok(None);
        };
        let environment = environment::new(&source).map_err(|error| DataError::Template {
            origin: origin.clone(),
            reason: reason(&error),
        })?;
        Ok(Some(ChatTemplate {
            environment,
            special_tokens: special_tokens(model_dir)?,
            origin,
            source,
        }))
    }

    /// The text of `messages`; with `add_generation_prompt` also what the template writes before an
    /// answer.
    ///
    /// # Errors
    /// What the template raises.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, DataError> {
        self.text(messages.into(), add_generation_prompt)
            .map_err(|reason| DataError::TemplateRaised {
                origin: self.origin.clone(),
                reason,
            })
    }

    /// The names of the templates that need no file, with commas between them.
    pub fn shipped() -> String {
        names()
    }

    /// Where the template comes from: a name or a path.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether the template encloses in `{% generation %}` what the model is to say.
    pub(super) fn marks_generation(&self) -> bool {
        environment::has_generation_tags(&self.source)
    }

    /// As [`ChatTemplate::render`], with the bare reason of a failure.
    pub(super) fn text(
        &self,
        turns: Turns<'_>,
        add_generation_prompt: bool,
    ) -> Result<String, String> {
        self.fill_in(turns, add_generation_prompt, false)
    }

    /// The text of `turns` and its bytes that `{% generation %}` encloses.
    pub(super) fn generated(
        &self,
        turns: Turns<'_>,
    ) -> Result<(String, Vec<Range<usize>>), String> {
        let marked = self.fill_in(turns, false, true)?;
        let (mut text, mut spans, mut begin) = (String::new(), Vec::new(), None);
        for letter in marked.chars() {
            match (letter, begin) {
                (BEGIN, None) => begin = Some(text.len()),
                (END, Some(start)) => {
                    spans.push(start..text.len());
                    begin = None;
                }
                (BEGIN | END, _) => {
                    return Err(format!(
                        "the row holds the noncharacter {letter:?}; remove it"
                    ));
                }
                _ => text.push(letter),
            }
        }
        Ok((text, spans))
    }

    fn fill_in(
        &self,
        turns: Turns<'_>,
        add_generation_prompt: bool,
        marking: bool,
    ) -> Result<String, String> {
        let said = |message: &Message| Jinja::from_serialize(message.to_value());
        let tokens = self.special_tokens.iter();
        let mut variables: BTreeMap<&str, Jinja> = tokens
            .map(|(name, token)| (name.as_str(), token.as_str().into()))
            .collect();
        variables.extend([
            ("messages", turns.messages.iter().map(said).collect()),
            (
                "tools",
                turns.tools.map_or(Jinja::from(()), Jinja::from_serialize),
            ),
            ("documents", Jinja::from(())),
            ("add_generation_prompt", add_generation_prompt.into()),
            (MARKING, marking.into()),
        ]);
        let template = self.environment.get_template(NAME);
        template
            .and_then(|template| template.render(Jinja::from_iter(variables)))
            .map_err(|error| reason(&error))
    }
}

/// A minijinja error in one line, without its kind where it says more.
fn reason(error: &minijinja::Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line} of the template)"),
        None => detail,
    }
}

/// The tokenizer's template called `name`, with its origin; `default` is also the only one.
fn own(model_dir: &Path, name: &str) -> Result<Option<(String, String)>, DataError> {
    let file = match name {
        "default" => model_dir.join("chat_template.jinja"),
        _ => model_dir.join(format!("additional_chat_templates/{name}.jinja")),
    };
    match read_regular_text(&file, FileKind::ChatTemplate) {
        Ok(source) => return Ok(Some((file.display().to_string(), source))),
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(DataError::io(&file, e.into())),
    }
    let path = model_dir.join("tokenizer_config.json");
    let origin = path.display().to_string();
    let config = json(&path)?.unwrap_or_default();
    let source = match config.get("chat_template") {
        Some(Value::String(source)) if name == "default" => Some(source.as_str()),
        Some(Value::Array(list)) => list
            .iter()
            .find(|entry| entry["name"] == name)
            .and_then(|entry| entry["template"].as_str()),
        _ => None,
    };
    Ok(source.map(|source| (origin, source.to_owned())))
}

/// A template by name or file, with its origin.
fn chosen(model_dir: &Path, name: &str) -> Result<(String, String), DataError> {
    if let Some((_, source)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        return Ok((name.to_owned(), (*source).to_owned()));
    }
    if !name.contains(['/', '\\'])
        && let Some(found) = own(model_dir, name)?
    {
        return Ok(found);
    }
    match read_regular_text(Path::new(name), FileKind::ChatTemplate) {
        Ok(source) => Ok((name.to_owned(), source)),
        Err(e) if e.is_not_found() => Err(DataError::option(
            "chat_template",
            format!("{OWN}, {}, or a file", names()),
            format!("\"{name}\""),
        )),
        Err(e) => Err(DataError::io(Path::new(name), e.into())),
    }
}

/// The names of the shipped templates.
pub(super) fn names() -> String {
    SHIPPED.map(|(name, _)| name).join(", ")
}

fn special_tokens(model_dir: &Path) -> Result<BTreeMap<String, String>, DataError> {
    let mut tokens = BTreeMap::new();
    for file in ["tokenizer_config.json", "special_tokens_map.json"] {
        let config = json(&model_dir.join(file))?.unwrap_or_default();
        for name in SPECIAL_TOKENS {
            if let Some(token) = config.get(name).and_then(token_text) {
                tokens.entry(name.to_owned()).or_insert(token.to_owned());
            }
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests;
