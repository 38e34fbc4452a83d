//! The option structs -> a reference of every key: type, default, allowed values, meaning.
//!
//! Nothing is written twice. Types and meanings are the fields and doc comments of the structs,
//! read from their sources, which are part of the program. Defaults are those of the structs.
//! Allowed values are what the checks of a config say when they refuse a value.

mod allowed;
mod source;

use serde_json::{Map, Value};

use super::{Config, known, toml_value};

/// The sources of the structs.
const SOURCES: [&str; 7] = [
    include_str!("lib.rs"),
    include_str!("run.rs"),
    include_str!("model.rs"),
    espalier_data::OPTIONS_SOURCE,
    include_str!("optim.rs"),
    include_str!("sites.rs"),
    include_str!("compare.rs"),
];

/// The sections with keys of their own: their name, whether they are lists of tables, and their
/// struct.
const SECTIONS: [(&str, Tables, &str); 8] = [
    ("run", Tables::One, "RunOptions"),
    ("model", Tables::One, "ModelOptions"),
    ("data", Tables::One, "DataOptions"),
    ("optim", Tables::One, "OptimOptions"),
    ("optim.groups", Tables::Many, "GroupRule"),
    ("sites", Tables::Many, "SiteRule"),
    ("compare", Tables::One, "CompareOptions"),
    ("arms", Tables::Many, "ArmOptions"),
];

/// How often a section may stand in a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    One,
    Many,
}

/// A section of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionReference {
    /// As TOML writes it: `[run]`, `[[sites]]`; empty for the keys before all sections.
    pub header: String,
    /// What it is about, a sentence; may be empty.
    pub meaning: String,
    /// Its keys, in the order of a config.
    pub keys: Vec<KeyReference>,
}

/// A key of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReference {
    /// With its section: `run.seed`.
    pub key: String,
    /// The type, in words.
    pub kind: String,
    /// The default as TOML, or `unset`.
    pub default: String,
    /// The allowed values; empty where the type says all.
    pub allowed: String,
    /// What it does.
    pub meaning: String,
}

/// All sections but those of plugins, whose options the plugins declare.
pub fn reference() -> Vec<SectionReference> {
    let defaults = known::tree(&Config::default());
    let top = SectionReference {
        header: String::new(),
        meaning: String::new(),
        keys: vec![plugins(&defaults)],
    };
    let sections = SECTIONS.iter().map(|(name, tables, of)| {
        let header = match tables {
            Tables::One => format!("[{name}]"),
            Tables::Many => format!("[[{name}]]"),
        };
        let about = about(name);
        let rest = about.strip_prefix(&format!("`{header}`: "));
        SectionReference {
            header,
            meaning: rest.unwrap_or(&about).to_owned(),
            keys: keys(name, *tables, of, &defaults),
        }
    });
    std::iter::once(top).chain(sections).collect()
}

/// The key of the components, which stands before all sections.
fn plugins(defaults: &Map<String, Value>) -> KeyReference {
    let fields = fields("Config");
    let field = fields.iter().find(|field| field.name == "plugins");
    entry(
        field.expect("a field of the config"),
        "plugins",
        defaults.get("plugins"),
    )
}

/// The doc comment of a section's field.
fn about(section: &str) -> String {
    let (of, name) = match section.split_once('.') {
        Some((_, name)) => ("OptimOptions", name),
        None => ("Config", section),
    };
    let fields = fields(of);
    let field = fields.into_iter().find(|field| field.name == name);
    field.expect("every section is a field").doc
}

fn keys(
    section: &str,
    tables: Tables,
    of: &str,
    defaults: &Map<String, Value>,
) -> Vec<KeyReference> {
    let fields = fields(of).into_iter();
    // Sections laid over the config are no key of their own, and lists of tables have a section.
    let is_key = |field: &source::Field| !field.is_flattened && !field.kind.ends_with("Rule>");
    fields
        .filter(is_key)
        .map(|field| {
            let key = format!("{section}.{}", field.name);
            let default = match tables {
                Tables::One => defaults.get(section).and_then(|keys| keys.get(&field.name)),
                Tables::Many => None,
            };
            entry(&field, &key, default)
        })
        .collect()
}

fn entry(field: &source::Field, key: &str, default: Option<&Value>) -> KeyReference {
    let default = match default {
        None | Some(Value::Null) => "unset".to_owned(),
        Some(value) => toml_value(value),
    };
    KeyReference {
        key: key.to_owned(),
        kind: in_words(&field.kind).to_owned(),
        default,
        allowed: allowed::values(key, &field.kind),
        meaning: field.doc.clone(),
    }
}

fn fields(of: &str) -> Vec<source::Field> {
    let found = SOURCES.iter().find_map(|text| source::fields(text, of));
    found.expect("the struct is in its source")
}

/// A type of Rust in words.
fn in_words(kind: &str) -> &str {
    let inner = kind.strip_prefix("Option<");
    match inner.map_or(kind, |kind| kind.trim_end_matches('>')) {
        "u64" | "usize" => "whole number",
        "f64" => "number",
        "[f64; 2]" => "two numbers",
        "bool" => "true or false",
        "String" => "text",
        "PathBuf" => "path",
        "Vec<String>" => "list of texts",
        "Vec<PathBuf>" => "list of paths",
        "BTreeMap<String, String>" => "table of texts",
        "Section" => "table",
        _ => "choice",
    }
}

#[cfg(test)]
mod tests;
