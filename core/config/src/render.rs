//! Writes a config as TOML with the origin of every value beside it.

use serde_json::{Map, Value};

use super::Origin;
use super::sources::join;

/// Column at which the comments begin, where the value leaves room.
const COMMENT_COLUMN: usize = 40;

/// `tree` as TOML; `origin` gives the source of a key's value.
pub(super) fn render(tree: &Map<String, Value>, origin: impl Fn(&str) -> Origin) -> String {
    let mut text = String::new();
    table(tree, ["", ""], &origin, &mut text);
    text
}

/// Plain values first, then the tables within, as TOML wants them. The path is given twice: as
/// `origin` knows it, and with quotes as TOML writes it.
fn table(
    tree: &Map<String, Value>,
    [path, written]: [&str; 2],
    origin: &impl Fn(&str) -> Origin,
    text: &mut String,
) {
    for (key, value) in tree.iter().filter(|(_, value)| !is_table(value)) {
        let here = join(path, key);
        if here == "sites" {
            continue;
        }
        match value {
            Value::Null => text.push_str(&format!("# {} is unset\n", quoted_key(key))),
            _ => {
                let line = format!("{} = {}", quoted_key(key), toml_value(value));
                let origin = origin(&here);
                text.push_str(&format!("{line:<COMMENT_COLUMN$} # {origin}\n"));
            }
        }
    }
    for (key, value) in tree {
        let Value::Object(inner) = value else {
            continue;
        };
        let here = join(path, key);
        let written = join(written, &quoted_key(key));
        // An open table without entries has no line of its own.
        if inner.values().any(|value| !is_table(value)) {
            text.push_str(&format!("\n[{written}]\n"));
        }
        table(inner, [&here, &written], origin, text);
    }
    if let (true, Some(Value::Array(rules))) = (path.is_empty(), tree.get("sites")) {
        for rule in rules.iter().filter_map(Value::as_object) {
            let comment = origin("sites");
            text.push_str(&format!("\n{:<COMMENT_COLUMN$} # {comment}\n", "[[sites]]"));
            for (key, value) in rule.iter().filter(|(_, value)| !value.is_null()) {
                text.push_str(&format!("{key} = {}\n", toml_value(value)));
            }
        }
    }
}

fn is_table(value: &Value) -> bool {
    value.is_object()
}

/// A key as TOML writes it: bare where it may be.
fn quoted_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        toml::Value::String(key.to_owned()).to_string()
    }
}

pub fn toml_value(value: &Value) -> String {
    match value {
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml_value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) => {
            let items: Vec<String> = table
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| format!("{} = {}", quoted_key(key), toml_value(value)))
                .collect();
            format!("{{{}}}", items.join(", "))
        }
        other => other.to_string(),
    }
}
