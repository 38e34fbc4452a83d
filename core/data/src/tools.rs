//! The tools of a row and the tool calls -> the input of a chat template, or why it cannot use
//! them.
//!
//! To find out whether a template writes them, a row is rendered once more without them. Where the
//! text is the same, they would be ignored.

use serde_json::{Map, Value};

use super::chat_template::{ChatTemplate, Turns};
use super::error::{DataError, RowFault, RowLocation};
use super::fields;
use super::row::{wrong_field, wrong_type};

/// Keys of tool calls in a turn.
const CALLS: [&str; 2] = ["tool_calls", "function_call"];
/// Roles of a tool's answers.
const RESULTS: [&str; 3] = ["tool", "function", "ipython"];

/// The tools that `field` of a row lists: a list of objects, or the JSON of one in a string.
///
/// # Errors
/// [`DataError::Row`] for anything else.
pub(super) fn of_row(
    row: &Map<String, Value>,
    field: &str,
    place: &RowLocation,
) -> Result<Option<Value>, DataError> {
    let wrong = |found: &Value| {
        let expected = "a list of objects, or the JSON of one in a string";
        Err(wrong_field(place, field, expected, found))
    };
    let list = match row.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(text @ Value::String(json)) => match serde_json::from_str(json) {
            Ok(Value::Null) => return Ok(None),
            Ok(list @ Value::Array(_)) => list,
            _ => return wrong(text),
        },
        Some(list @ Value::Array(_)) => list.clone(),
        Some(other) => return wrong(other),
    };
    for (index, tool) in list.as_array().into_iter().flatten().enumerate() {
        if !tool.is_object() {
            let what = format!("field `{field}`[{index}]");
            return Err(wrong_type(place, &what, "an object", tool));
        }
    }
    Ok(Some(list))
}

/// Whether the turn with these other keys calls tools.
pub(super) fn calls(turn: &Map<String, Value>) -> bool {
    CALLS.iter().any(|key| turn.get(*key).is_some_and(is_there))
}

/// Refuses tools of a row that is read as plain text.
///
/// # Errors
/// [`RowFault::Unused`] where there are any.
pub(super) fn check_plain(tools: Option<&Value>, place: &RowLocation) -> Result<(), DataError> {
    if tools.is_some_and(is_there) {
        Err(RowFault::Unused {
            what: "its tools".to_owned(),
            why: format!(
                "the row is read as plain text; set data.chat_template to one that writes tools, {}",
                without_tools()
            ),
        }
        .at(place.clone()))
    } else {
        Ok(())
    }
}

/// Refuses tools, tool calls and tool answers that do not change the `text` of `template`.
///
/// # Errors
/// [`RowFault::Unused`] for the first of them.
pub(super) fn check_written(
    template: &ChatTemplate,
    turns: Turns<'_>,
    text: &str,
    place: &RowLocation,
) -> Result<(), DataError> {
    let unused = |what: String, instead: String| {
        RowFault::Unused {
            what,
            why: format!(
                "the chat template {} does not write {instead}",
                template.origin()
            ),
        }
        .at(place.clone())
    };
    // A template that raises an error without them has used them.
    let same = |turns: Turns<'_>| template.text(turns).is_ok_and(|other| other == text);
    if let Some(tools) = turns.tools.filter(|tools| is_there(tools)) {
        let without = Turns {
            tools: None,
            ..turns
        };
        if same(without) {
            let what = format!("its tools ({})", names(tools));
            let instead = format!(
                "them; choose one that does with data.chat_template, {}",
                without_tools()
            );
            return Err(unused(what, instead));
        }
    }
    for (index, message) in turns.messages.iter().enumerate() {
        let mut changed = message.clone();
        let what = if calls(&message.other) {
            changed
                .other
                .retain(|key, _| !CALLS.contains(&key.as_str()));
            "calls of tools"
        } else if RESULTS.contains(&message.role.as_str()) && !message.content.is_empty() {
            changed.content += " and more";
            "answer of a tool"
        } else {
            continue;
        };
        let mut messages = turns.messages.to_vec();
        messages[index] = changed;
        let changed = Turns {
            messages: &messages,
            ..turns
        };
        if same(changed) {
            let instead = format!(
                "it; choose one that does with data.chat_template, {}",
                without_tools()
            );
            let what = format!("the {what} in message {}", index + 1);
            return Err(unused(what, instead));
        }
    }
    Ok(())
}

fn is_there(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// The names of at most three tools.
fn names(tools: &Value) -> String {
    let name = |tool: &Value| {
        let name = tool.pointer("/function/name").or(tool.get("name"));
        let name = name.and_then(Value::as_str);
        format!("`{}`", fields::clip(name.unwrap_or("without a name")))
    };
    let list = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names: Vec<String> = list.iter().take(3).map(name).collect();
    if list.len() > names.len() {
        names.push("...".to_owned());
    }
    names.join(", ")
}

fn without_tools() -> &'static str {
    "or train without them: data.tools = \"ignore\""
}
