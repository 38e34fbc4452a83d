//! A row's fields -> the format they belong to.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{DataError, RowFault, RowLocation};
use super::format::{Format, KNOWN};

/// Formats with the fields that identify them: all fields of one alternative have to be present.
const TELLING: [(Format, &[&[&str]]); 5] = [
    (Format::Text, &[&["text"]]),
    (Format::InputIds, &[&["input_ids"]]),
    (Format::Alpaca, &[&["instruction", "output"]]),
    (Format::Chat, &[&["messages"], &["conversations"]]),
    (Format::PromptCompletion, &[&["prompt", "completion"]]),
];

/// Fields that `fields` may rename: those of the formats, of a conversation's turns, and its tools.
pub(super) const FIELDS: [&str; 16] = [
    "text",
    "input_ids",
    "labels",
    "attention_mask",
    "instruction",
    "input",
    "output",
    "messages",
    "conversations",
    "role",
    "content",
    "from",
    "value",
    "prompt",
    "completion",
    "tools",
];

/// The name that `field` has in the files.
pub(super) fn renamed<'a>(renames: &'a BTreeMap<String, String>, field: &'a str) -> &'a str {
    renames.get(field).map_or(field, String::as_str)
}

/// Refuses renames of fields that no format has.
pub(super) fn check_renames(renames: &BTreeMap<String, String>) -> Result<(), DataError> {
    for name in renames.keys() {
        if !FIELDS.contains(&name.as_str()) {
            let nearest = FIELDS
                .iter()
                .max_by(|a, b| strsim::jaro(name, a).total_cmp(&strsim::jaro(name, b)))
                .expect("the list is not empty");
            return Err(DataError::UnknownField {
                found: name.clone(),
                nearest: (*nearest).into(),
                known: FIELDS.join(", "),
            });
        }
    }
    Ok(())
}

/// The one format whose fields `row` has.
pub(super) fn tell(
    row: &Map<String, Value>,
    renames: &BTreeMap<String, String>,
    place: &RowLocation,
) -> Result<Format, DataError> {
    let has = |field: &&str| row.contains_key(renamed(renames, field));
    let fitting: Vec<Format> = TELLING
        .iter()
        .filter(|(_, alternatives)| alternatives.iter().any(|fields| fields.iter().all(has)))
        .map(|(format, _)| *format)
        .collect();
    match fitting[..] {
        [] => Err(RowFault::UnknownFormat {
            found: names(row),
            known: KNOWN,
        }
        .at(place.clone())),
        [format] => Ok(format),
        _ => Err(RowFault::AmbiguousFormat {
            formats: fitting
                .iter()
                .map(|f| f.name())
                .collect::<Vec<_>>()
                .join(", "),
        }
        .at(place.clone())),
    }
}

/// The fields of `row` for a message, at most 16 of them.
pub(super) fn names(row: &Map<String, Value>) -> String {
    if row.is_empty() {
        return "no fields".into();
    }
    let mut names: Vec<String> = row
        .keys()
        .take(16)
        .map(|k| format!("`{}`", clip(k)))
        .collect();
    if row.len() > names.len() {
        names.push("...".into());
    }
    names.join(", ")
}

/// A value of a file, short enough for a message.
pub(super) fn clip(text: &str) -> String {
    const LONGEST: usize = 48;
    if text.chars().count() <= LONGEST {
        return text.escape_debug().to_string();
    }
    let head: String = text.chars().take(LONGEST).collect();
    format!("{}...", head.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn told(row: &str, renames: &[(&str, &str)]) -> Result<Format, DataError> {
        let Value::Object(row) = serde_json::from_str(row).unwrap() else {
            panic!("an object")
        };
        let renames = renames
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect();
        tell(&row, &renames, &RowLocation::line(Path::new("f.jsonl"), 7))
    }

    #[test]
    fn fields_tell_the_format() {
        assert_eq!(told(r#"{"text":1,"id":2}"#, &[]).unwrap(), Format::Text);
        assert_eq!(
            told(r#"{"input_ids":[],"labels":[]}"#, &[]).unwrap(),
            Format::InputIds
        );
        assert_eq!(
            told(r#"{"body":1}"#, &[("text", "body")]).unwrap(),
            Format::Text
        );
        for (row, format) in [
            (r#"{"instruction":1,"input":2,"output":3}"#, Format::Alpaca),
            (r#"{"prompt":1,"messages":[]}"#, Format::Chat),
            (r#"{"conversations":[]}"#, Format::Chat),
            (r#"{"prompt":1,"completion":2}"#, Format::PromptCompletion),
        ] {
            assert_eq!(told(row, &[]).unwrap(), format);
        }
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        let several = told(r#"{"text":1,"instruction":2,"output":3}"#, &[]).unwrap_err();
        assert!(several.to_string().contains("text, alpaca"), "{several}");
        let none = told(r#"{"body":1}"#, &[]).unwrap_err().to_string();
        assert!(none.contains("`body`") && none.contains(KNOWN), "{none}");
        assert!(
            told("{}", &[])
                .unwrap_err()
                .to_string()
                .contains("no fields")
        );
    }
}
