//! The turns of a conversation as templates see them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The role: `system`, `user`, `assistant`, `tool` or another one that the template knows.
    pub role: String,
    /// The text.
    pub content: String,
    /// Other keys that a template may read, such as `tool_calls` and `name`.
    #[serde(flatten)]
    pub other: Map<String, Value>,
    /// Whether the turn has tool calls and no text; templates then see `none`.
    #[serde(skip)]
    pub(crate) without_text: bool,
}

impl Message {
    /// A turn of text only.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message {
            role: role.into(),
            content: content.into(),
            other: Map::new(),
            without_text: false,
        }
    }

    /// The turn as a template sees it.
    pub(super) fn to_value(&self) -> Value {
        let mut value = serde_json::to_value(self).expect("a turn is plain data");
        if self.without_text {
            value["content"] = Value::Null;
        }
        value
    }

    /// Bytes of what a template reads of it.
    pub(super) fn bytes(&self) -> usize {
        let other = if self.other.is_empty() {
            0
        } else {
            json_bytes(&self.other)
        };
        self.role.len() + self.content.len() + other
    }
}

/// The turns of a conversation, and the tools that they may call.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a> {
    pub messages: &'a [Message],
    /// A list of objects.
    pub tools: Option<&'a Value>,
}

impl<'a> From<&'a [Message]> for Turns<'a> {
    fn from(messages: &'a [Message]) -> Self {
        Turns {
            messages,
            tools: None,
        }
    }
}

/// Bytes of a value as JSON.
pub(super) fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}
