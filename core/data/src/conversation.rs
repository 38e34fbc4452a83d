//! A row's fields -> the turns of a conversation, or a prompt and its completion.

use serde_json::{Map, Value};

use super::chat_template::Message;
use super::error::{DataError, RowFault, RowLocation};
use super::fields::renamed;
use super::format::Format;
use super::options::{DataOptions, OnEmpty, Tools};
use super::row::{required, wrong_field, wrong_type};
use super::tools;

/// The role whose turns the model learns.
pub(super) const ASSISTANT: &str = "assistant";

/// Role names in files, ShareGPT's included, and the names that templates use.
const ROLES: [(&str, &str); 11] = [
    ("system", "system"),
    ("developer", "developer"),
    ("user", "user"),
    (ASSISTANT, ASSISTANT),
    ("tool", "tool"),
    ("function", "function"),
    ("ipython", "ipython"),
    ("human", "user"),
    ("gpt", ASSISTANT),
    ("chatgpt", ASSISTANT),
    ("observation", "tool"),
];

/// What a field of an answer should hold.
const ANSWER: &str = "an answer to train on";

/// The content of a row before templates are applied.
pub(super) enum Example {
    /// Text that is used as it is; the prompt may be empty.
    Plain { prompt: String, completion: String },
    /// Turns; the answers from `completion_from` on are the completion.
    Turns {
        messages: Vec<Message>,
        completion_from: usize,
        /// The tools that answers may call: a list of objects.
        tools: Option<Value>,
    },
}

/// The rules for reading rows that are neither text nor ids.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub options: &'a DataOptions,
    /// Whether prompts and completions that are plain text become turns too.
    pub templated: bool,
}

impl Fields<'_> {
    /// The content of `row`.
    ///
    /// # Errors
    /// [`DataError::Row`] for a missing field, a wrong type or an unknown role.
    pub(super) fn read(
        &self,
        format: Format,
        row: &Map<String, Value>,
        place: &RowLocation,
    ) -> Result<Example, DataError> {
        match format {
            Format::Chat => self.chat(row, place),
            Format::Alpaca => self.alpaca(row, place),
            Format::PromptCompletion => self.prompt_completion(row, place),
            Format::Auto | Format::Text | Format::InputIds => Ok(Example::Plain {
                prompt: String::new(),
                completion: self
                    .words(row, "text", "a text to train on", place)?
                    .to_owned(),
            }),
        }
    }

    /// The tools of a row that is not text or ids already.
    fn tools(
        &self,
        row: &Map<String, Value>,
        place: &RowLocation,
    ) -> Result<Option<Value>, DataError> {
        match self.options.tools {
            Tools::Write => tools::of_row(row, self.name("tools"), place),
            Tools::Ignore => Ok(None),
        }
    }

    fn chat(&self, row: &Map<String, Value>, place: &RowLocation) -> Result<Example, DataError> {
        let (messages, conversations) = (self.name("messages"), self.name("conversations"));
        let field = if row.contains_key(conversations) && !row.contains_key(messages) {
            conversations
        } else {
            messages
        };
        let messages = self.messages(required(row, field, place)?, field, place)?;
        let last = messages.iter().rposition(|m| m.role == ASSISTANT);
        Ok(Example::Turns {
            completion_from: last.unwrap_or(messages.len()),
            messages,
            tools: self.tools(row, place)?,
        })
    }

    fn alpaca(&self, row: &Map<String, Value>, place: &RowLocation) -> Result<Example, DataError> {
        let instruction = self.text(row, "instruction", place)?;
        let input = match row.get(self.name("input")) {
            None | Some(Value::Null) => "",
            Some(_) => self.text(row, "input", place)?,
        };
        let output = self.words(row, "output", ANSWER, place)?;
        let tools = self.tools(row, place)?;
        match (self.templated, input) {
            (true, "") => Ok(answered(instruction.to_owned(), output, tools)),
            (true, _) => Ok(answered(format!("{instruction}\n{input}"), output, tools)),
            (false, _) => {
                tools::check_plain(tools.as_ref(), place)?;
                Ok(Example::Plain {
                    prompt: alpaca_prompt(instruction, input),
                    completion: output.to_owned(),
                })
            }
        }
    }

    fn prompt_completion(
        &self,
        row: &Map<String, Value>,
        place: &RowLocation,
    ) -> Result<Example, DataError> {
        let prompt = self.name("prompt");
        if let Some(turns @ Value::Array(_)) = row.get(prompt) {
            if !self.templated {
                let expected = "a string, as in the first row";
                return Err(wrong_field(place, prompt, expected, turns));
            }
            let mut messages = self.messages(turns, prompt, place)?;
            let completion_from = messages.len();
            let field = self.name("completion");
            messages.extend(self.messages(required(row, field, place)?, field, place)?);
            return Ok(Example::Turns {
                messages,
                completion_from,
                tools: self.tools(row, place)?,
            });
        }
        let prompt = self.text(row, "prompt", place)?;
        let completion = self.words(row, "completion", ANSWER, place)?;
        let tools = self.tools(row, place)?;
        if self.templated {
            return Ok(answered(prompt.to_owned(), completion, tools));
        }
        tools::check_plain(tools.as_ref(), place)?;
        Ok(Example::Plain {
            prompt: prompt.to_owned(),
            completion: completion.to_owned(),
        })
    }

    fn name<'a>(&'a self, field: &'a str) -> &'a str {
        renamed(&self.options.fields, field)
    }

    fn text<'a>(
        &self,
        row: &'a Map<String, Value>,
        field: &str,
        place: &RowLocation,
    ) -> Result<&'a str, DataError> {
        let field = self.name(field);
        match required(row, field, place)? {
            Value::String(text) => Ok(text),
            other => Err(wrong_field(place, field, "a string", other)),
        }
    }

    /// A text that is to be trained; an empty one is a fault of the row.
    fn words<'a>(
        &self,
        row: &'a Map<String, Value>,
        field: &str,
        expected: &'static str,
        place: &RowLocation,
    ) -> Result<&'a str, DataError> {
        let text = self.text(row, field, place)?;
        if text.trim().is_empty() && self.options.on_empty == OnEmpty::Bad {
            Err(RowFault::Empty {
                field: self.name(field).to_owned(),
                expected,
            }
            .at(place.clone()))
        } else {
            Ok(text)
        }
    }

    fn messages(
        &self,
        value: &Value,
        field: &str,
        place: &RowLocation,
    ) -> Result<Vec<Message>, DataError> {
        let turns = match value {
            Value::Array(turns) if !turns.is_empty() => turns,
            Value::Array(_) => {
                return Err(RowFault::NoTurns {
                    field: field.into(),
                }
                .at(place.clone()));
            }
            other => {
                let expected = "an array of messages";
                return Err(wrong_field(place, field, expected, other));
            }
        };
        let numbered = turns.iter().enumerate();
        numbered
            .map(|(index, turn)| match turn {
                Value::Object(turn) => self.message(turn, &format!("`{field}`[{index}]"), place),
                other => {
                    let what = format!("field `{field}`[{index}]");
                    Err(wrong_type(place, &what, "an object", other))
                }
            })
            .collect()
    }

    /// One turn of `role` and `content`, or ShareGPT's `from` and `value`.
    fn message(
        &self,
        turn: &Map<String, Value>,
        what: &str,
        place: &RowLocation,
    ) -> Result<Message, DataError> {
        let sharegpt =
            !turn.contains_key(self.name("role")) && turn.contains_key(self.name("from"));
        let [role, content] = if sharegpt {
            ["from", "value"]
        } else {
            ["role", "content"]
        };
        let role = self.name(role);
        let named = |key: &str| format!("field {what}.{key}");
        let said = match required(turn, role, place)? {
            Value::String(role) => role,
            other => return Err(wrong_type(place, &named(role), "a string", other)),
        };
        let Some((_, known)) = ROLES.iter().find(|(name, _)| name == said) else {
            return Err(RowFault::UnknownRole {
                what: named(role),
                found: super::fields::clip(said),
                known: ROLES.map(|(name, _)| name).join(", "),
            }
            .at(place.clone()));
        };
        let content = self.name(content);
        // With tool calls there may be no text.
        let calls = match self.options.tools {
            Tools::Write => tools::calls(turn),
            Tools::Ignore => turn.contains_key("tool_calls"),
        };
        let without_text = calls && turn.get(content).is_none_or(Value::is_null);
        let text = match turn.get(content) {
            _ if without_text => String::new(),
            _ => text_of(required(turn, content, place)?)
                .ok_or_else(|| wrong_type(place, &named(content), "a string", &turn[content]))?,
        };
        let mut message = Message::new(*known, text);
        message.without_text = without_text && self.options.tools == Tools::Write;
        let others = turn.iter().filter(|(key, value)| {
            ![role, content, "role", "content"].contains(&key.as_str()) && !value.is_null()
        });
        message.other = others.map(|(k, v)| (k.clone(), v.clone())).collect();
        Ok(message)
    }
}

/// A string, or the texts of a list of text parts one after the other.
fn text_of(content: &Value) -> Option<String> {
    let part = |part: &Value| {
        if part["type"] == "text" {
            part["text"].as_str().map(str::to_owned)
        } else {
            None
        }
    };
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => None,
    }
}

fn answered(prompt: String, completion: &str, tools: Option<Value>) -> Example {
    Example::Turns {
        messages: vec![
            Message::new("user", prompt),
            Message::new(ASSISTANT, completion),
        ],
        completion_from: 1,
        tools,
    }
}

/// # Source
/// Stanford Alpaca, with the line end after `### Response:` that later projects write.
fn alpaca_prompt(instruction: &str, input: &str) -> String {
    const REQUEST: &str = "Write a response that appropriately completes the request.";
    match input {
        "" => format!(
            "Below is an instruction that describes a task. {REQUEST}\n\n\
             ### Instruction:\n{instruction}\n\n### Response:\n"
        ),
        _ => format!(
            "Below is an instruction that describes a task, paired with an input that provides \
             further context. {REQUEST}\n\n\
             ### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
        ),
    }
}
