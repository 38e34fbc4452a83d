//! Rows and batches.

use serde_json::Value;

use crate::ImportError;
use crate::adapter::names;
use crate::imported::Making;
use crate::source::Source;

/// Takes their keys over.
///
/// # Errors
/// A value of the wrong kind.
pub fn set(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    files(source, making)?;
    template(source, making)?;
    held_out(source, making)?;
    let sequence = source.whole("sequence_len")?;
    if let Some((_, tokens)) = sequence {
        making.set("data.max_seq_len", tokens as i64);
    }
    if let Some((_, true)) = source.flag("train_on_inputs")? {
        making.set("data.train_on", "all");
    }
    batches(source, making, sequence.map(|(_, tokens)| tokens))
}

/// The data sets: a path, a list of paths, or of tables with one.
fn files(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    let Some((key, sets)) = source.take("datasets") else {
        return Ok(());
    };
    let sets = match sets {
        Value::Array(sets) => sets,
        one => vec![one],
    };
    let (mut paths, mut formats) = (Vec::new(), Vec::new());
    for set in &sets {
        let path = set.as_str().or_else(|| set["path"].as_str());
        let path = path.ok_or_else(|| ImportError::Value {
            key: key.clone(),
            expected: "a `path` in each data set",
            found: set.to_string(),
        })?;
        paths.push(toml::Value::from(path));
        formats.push(set["type"].as_str().and_then(format_of));
        let Value::Object(set) = set else {
            continue;
        };
        for (option, value) in set {
            let name = format!("{key}: {path}: {option}");
            match option.as_str() {
                "path" => {}
                "type" => of_type(value, name, making),
                "split" if value == "train" => {}
                "field_messages" | "message_property_mappings" if reads_turns(set) => {
                    making.needless(name, "such turns are recognized");
                }
                _ if value.is_null() => {}
                _ => making.lacks(name, format!("{value} is not read")),
            }
        }
    }
    making.set("data.files", paths);
    // One format for all, or each file's own.
    formats.dedup();
    if let [Some(format)] = formats[..] {
        making.set("data.format", format);
    }
    Ok(())
}

/// The format of a data set's `type`.
fn format_of(kind: &str) -> Option<&'static str> {
    match kind.split('.').next().unwrap_or_default() {
        "alpaca" => Some("alpaca"),
        "chat_template" | "sharegpt" => Some("chat"),
        "completion" | "pretrain" => Some("text"),
        _ => None,
    }
}

fn of_type(kind: &Value, name: String, making: &mut Making) {
    match kind.as_str() {
        Some(kind) if format_of(kind).is_some() => {
            if kind.contains('.') {
                making.differs(
                    name,
                    format!("of `{kind}` the part before the point is taken"),
                );
            }
        }
        Some(kind) => making.differs(name, format!("`{kind}` is not known; rows are recognized")),
        None => making.lacks(
            name,
            "a format of its own; see data.fields, which renames fields",
        ),
    }
}

/// Whether turns are `conversations` of `from` and `value`, or `messages` of `role` and `content`.
fn reads_turns(set: &serde_json::Map<String, Value>) -> bool {
    let field = set.get("field_messages").and_then(Value::as_str);
    let [role, content] = ["role", "content"].map(|name| {
        let mapped = set.get("message_property_mappings");
        mapped.and_then(|mapped| mapped[name].as_str())
    });
    matches!(
        (field, role, content),
        (Some("conversations"), Some("from"), Some("value"))
            | (
                Some("messages") | None,
                Some("role") | None,
                Some("content") | None
            )
    )
}

fn template(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    let Some((key, template)) = source.text("chat_template")? else {
        return Ok(());
    };
    match template.as_str() {
        "tokenizer_default" => making.set("data.chat_template", "tokenizer"),
        "llama3" | "chatml" | "llama2" | "mistral" | "zephyr" => {
            making.set("data.chat_template", template);
        }
        other => making.lacks(
            key,
            format!("`{other}` is not among the named templates; data.chat_template takes a file"),
        ),
    }
    Ok(())
}

fn held_out(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    if let Some((_, size)) = source.number("val_set_size")?
        && size > 0.0
    {
        let whole = size.fract() == 0.0;
        making.set(
            "data.eval_split",
            if whole {
                toml::Value::from(size as i64)
            } else {
                toml::Value::from(size)
            },
        );
    }
    if let Some((key, sets)) = source.take("test_datasets") {
        let paths = sets.as_array().map(|sets| {
            let paths = sets.iter().map(|set| set["path"].clone());
            Value::Array(paths.collect())
        });
        match paths.as_ref().and_then(names) {
            Some(paths) => making.set("data.eval_files", paths),
            None => making.lacks(key, "expected a list of data sets with a `path`"),
        }
    }
    Ok(())
}

fn batches(
    source: &mut Source,
    making: &mut Making,
    sequence: Option<u64>,
) -> Result<(), ImportError> {
    let micro = source.whole("micro_batch_size")?;
    let micro = micro.map_or(1, |(_, rows)| rows.max(1));
    let accumulated = source.whole("gradient_accumulation_steps")?;
    let accumulated = accumulated.map_or(1, |(_, steps)| steps.max(1));
    making.set("data.micro_batch", micro as i64);
    making.set("data.batch_size", (micro * accumulated) as i64);
    let packing = source.flag("sample_packing")?;
    if let Some((key, true)) = packing {
        let tokens = micro * sequence.unwrap_or(2048);
        making.set("data.pack_tokens", tokens as i64);
        making.differs(
            key,
            format!(
                "a step there has {accumulated} times up to {tokens} tokens, however many rows that is; here data.batch_size counts rows: raise it by the rows of a micro-batch"
            ),
        );
    }
    for key in [
        "eval_sample_packing",
        "pad_to_sequence_len",
        "group_by_length",
    ] {
        if let Some((key, _)) = source.take(key) {
            making.needless(key, "micro-batches have no padding");
        }
    }
    Ok(())
}
