//! A choice of template -> its text and origin, and the special tokens of the model.

use std::collections::BTreeMap;
use std::path::Path;

use espalier_system::files::{FileKind, read_regular_text};
use serde_json::Value;

use super::shipped::SHIPPED;
use crate::error::DataError;
use crate::tokenizer::{json, token_text};

/// The name under which `data.chat_template` finds the tokenizer's own template.
pub(super) const OWN: &str = "tokenizer";
/// Tokens of `tokenizer_config.json` that templates can use.
const SPECIAL_TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The tokenizer's template called `name`, with its origin; `default` is also the only one.
pub(super) fn own(model_dir: &Path, name: &str) -> Result<Option<(String, String)>, DataError> {
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
pub(super) fn chosen(model_dir: &Path, name: &str) -> Result<(String, String), DataError> {
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
pub(crate) fn names() -> String {
    SHIPPED.map(|(name, _)| name).join(", ")
}

/// The special tokens of the model, by their names in `tokenizer_config.json`.
pub(super) fn special_tokens(model_dir: &Path) -> Result<BTreeMap<String, String>, DataError> {
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
