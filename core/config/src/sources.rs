//! Turns files, environment variables, `--set` arguments and flags into layers of one shape.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use espalier_system::files::{FileKind, read_regular_text};
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigError, Origin};

/// Environment variables that are config keys begin with this: `HOST__RUN__SEED=7`.
const PREFIX: &str = "HOST__";

/// The user's settings, in the order in which later layers win over earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    below: Vec<(Origin, Map<String, Value>)>,
    files: Vec<PathBuf>,
    environment: Vec<(String, String)>,
    sets: Vec<String>,
    flags: Vec<(String, String, Value)>,
    prober: Option<PathBuf>,
}

impl Sources {
    /// Names the program that tries plugin libraries in processes of its own. Without one none is
    /// tried before it is opened.
    pub fn prober(mut self, program: impl Into<PathBuf>) -> Self {
        self.prober = Some(program.into());
        self
    }

    pub(super) fn probing_program(&self) -> Option<PathBuf> {
        self.prober.clone()
    }

    /// Adds what `flag` (`--run`) found on record, as the weakest layer.
    pub fn recorded(mut self, flag: &str, values: Map<String, Value>) -> Self {
        self.below.push((Origin::Record(flag.into()), values));
        self
    }

    /// Adds a whole config, as `flag` gave it, below the files.
    pub(super) fn below(mut self, flag: &str, values: Map<String, Value>) -> Self {
        self.below.push((Origin::Flag(flag.into()), values));
        self
    }

    /// Adds a `--config` file; a later one wins over an earlier one.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Adds those of `variables` whose names begin with `HOST__`; `__` separates section and key.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let ours = variables
            .into_iter()
            .filter(|(name, _)| name.starts_with(PREFIX));
        self.environment.extend(ours);
        self.environment.sort();
        self
    }

    /// Adds a `--set` argument, `key=value` with a TOML value; a bare word is a string.
    pub fn set(mut self, assignment: impl Into<String>) -> Self {
        self.sets.push(assignment.into());
        self
    }

    /// Adds `flag` (`--model`) that sets `key` (`model.path`).
    pub fn flag(mut self, flag: &str, key: &str, value: impl Into<Value>) -> Self {
        self.flags.push((flag.into(), key.into(), value.into()));
        self
    }

    /// All layers, the weakest first.
    pub(super) fn layers(&self) -> Result<Vec<Layer>, ConfigError> {
        let below = self.below.iter();
        let mut layers: Vec<Layer> = below
            .map(|(origin, values)| Layer::new(origin.clone(), values.clone()))
            .collect();
        for path in &self.files {
            layers.push(Layer::from_file(path)?);
        }
        for (name, text) in &self.environment {
            let key = name[PREFIX.len()..].to_lowercase();
            let place = || format!("environment {name}");
            let value = parse_value(text).map_err(|message| syntax(place(), message))?;
            layers.push(Layer::single(
                Origin::Environment(name.clone()),
                key.split("__").map(str::to_owned).collect(),
                value,
            ));
        }
        for assignment in &self.sets {
            layers.push(Layer::from_assignment(assignment)?);
        }
        for (flag, key, value) in &self.flags {
            layers.push(Layer::single(
                Origin::Flag(flag.clone()),
                key.split('.').map(str::to_owned).collect(),
                value.clone(),
            ));
        }
        Ok(layers)
    }
}

/// One source's values and where each of them stood.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    origin: Origin,
    /// Keys joined by dots, with the line each begins on; empty but for files.
    lines: BTreeMap<String, usize>,
    /// The values as a tree of sections.
    pub(super) values: Map<String, Value>,
}

impl Layer {
    /// A layer without lines.
    pub(super) fn new(origin: Origin, values: Map<String, Value>) -> Self {
        Layer {
            origin,
            lines: BTreeMap::new(),
            values,
        }
    }

    fn single(origin: Origin, key: Vec<String>, value: Value) -> Self {
        let tree = key.into_iter().rev().fold(value, |value, segment| {
            Value::Object(Map::from_iter([(segment, value)]))
        });
        match tree {
            Value::Object(values) => Layer::new(origin, values),
            _ => Layer::new(origin, Map::new()),
        }
    }

    fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text =
            read_regular_text(path, FileKind::RunConfig).map_err(|error| ConfigError::Read {
                path: path.to_owned(),
                source: error.into(),
            })?;
        let parsed = DeTable::parse(&text).map_err(|error| {
            let (line, column) = position(&text, error.span().map_or(0, |span| span.start));
            let place = format!("{}:{line}:{column}", path.display());
            syntax(place, one_line(error.message()))
        })?;
        let mut lines = BTreeMap::new();
        collect_lines(parsed.get_ref(), "", &text, &mut lines);
        let table: toml::Table =
            toml::from_str(&text).map_err(|e| syntax(path.display().to_string(), e.to_string()))?;
        let values = table
            .into_iter()
            .map(|(key, value)| Ok((key, to_json(value)?)))
            .collect::<Result<_, String>>()
            .map_err(|message| syntax(path.display().to_string(), message))?;
        Ok(Layer {
            origin: Origin::File(path.to_owned(), 1),
            lines,
            values,
        })
    }

    fn from_assignment(assignment: &str) -> Result<Self, ConfigError> {
        let place = || format!("--set {assignment}");
        let (key, text) = assignment
            .split_once('=')
            .ok_or_else(|| syntax(place(), "expected key=value, found no `=`".into()))?;
        let key = key.trim();
        let segments: Vec<String> = key.split('.').map(|part| part.trim().to_owned()).collect();
        if segments.iter().any(String::is_empty) {
            let message = format!("expected a key like section.key, found `{key}`");
            return Err(syntax(place(), message));
        }
        let value = parse_value(text).map_err(|message| syntax(place(), message))?;
        Ok(Layer::single(Origin::Set(key.into()), segments, value))
    }

    /// Takes the value at `path` out, or the list that has it; none where it is not of this layer.
    pub(super) fn leave_out(&mut self, path: &[String]) -> Option<Value> {
        let (last, above) = path.split_last()?;
        let mut values = &mut self.values;
        for key in above {
            if !values.get(key)?.is_object() {
                return values.remove(key);
            }
            values = values.get_mut(key)?.as_object_mut()?;
        }
        values.remove(last)
    }

    /// Where the value of `key` stood, or the nearest table around it.
    pub(super) fn origin(&self, key: &str) -> Origin {
        let Origin::File(path, first) = &self.origin else {
            return self.origin.clone();
        };
        let mut key = key;
        loop {
            if let Some(line) = self.lines.get(key) {
                return Origin::File(path.clone(), *line);
            }
            match key.rfind('.') {
                Some(dot) => key = &key[..dot],
                None => return Origin::File(path.clone(), *first),
            }
        }
    }
}

/// A TOML value; text that is none and does not begin like one is taken as a string.
pub fn parse_value(text: &str) -> Result<Value, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("expected a value, found nothing".into());
    }
    match toml::from_str::<toml::Table>(&format!("value = {text}")) {
        Ok(mut table) if table.len() == 1 => match table.remove("value") {
            Some(value) => to_json(value),
            None => Err(format!("expected one TOML value, found `{text}`")),
        },
        Ok(_) => Err(format!("expected one TOML value, found `{text}`")),
        Err(error) if text.starts_with(['[', '{', '"', '\'']) => Err(one_line(error.message())),
        Err(_) if is_whole_number(text) => Err(format!(
            "expected a whole number from {} to {}, found {text}; quote it if it is text",
            i64::MIN,
            i64::MAX
        )),
        Err(_) => Ok(Value::String(text.to_owned())),
    }
}

/// Whether a text that is no TOML value is written as a whole number, and so is one beyond TOML's.
fn is_whole_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.starts_with(|first: char| matches!(first, '1'..='9'))
        && digits.chars().all(|c| c.is_ascii_digit() || c == '_')
        && !digits.contains("__")
        && !digits.ends_with('_')
}

/// JSON has all that a config needs of TOML: no dates, and finite numbers only.
fn to_json(value: toml::Value) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| format!("expected a finite number, found {number}"))?,
        toml::Value::Boolean(truth) => Value::Bool(truth),
        toml::Value::Datetime(date) => {
            return Err(format!(
                "expected no date, found {date}; quote it if it is text"
            ));
        }
        toml::Value::Array(items) => {
            Value::Array(items.into_iter().map(to_json).collect::<Result<_, _>>()?)
        }
        toml::Value::Table(table) => Value::Object(
            table
                .into_iter()
                .map(|(key, value)| Ok((key, to_json(value)?)))
                .collect::<Result<_, String>>()?,
        ),
    })
}

fn collect_lines(
    table: &DeTable<'_>,
    parent: &str,
    text: &str,
    lines: &mut BTreeMap<String, usize>,
) {
    for (key, value) in table.iter() {
        let path = join(parent, key.get_ref());
        lines.insert(path.clone(), position(text, key.span().start).0);
        collect_value_lines(value, &path, text, lines);
    }
}

fn collect_value_lines(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    text: &str,
    lines: &mut BTreeMap<String, usize>,
) {
    match value.get_ref() {
        DeValue::Table(table) => collect_lines(table, path, text, lines),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = join(path, &index.to_string());
                lines.insert(path.clone(), position(text, item.span().start).0);
                collect_value_lines(item, &path, text, lines);
            }
        }
        _ => {}
    }
}

/// `parent.key`, or `key` at the top level.
pub(super) fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() {
        key.to_owned()
    } else {
        format!("{parent}.{key}")
    }
}

/// Line and column of byte `at`, both counted from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before
        .iter()
        .rev()
        .take_while(|byte| **byte != b'\n')
        .count()
        + 1;
    (line, column)
}

fn one_line(message: &str) -> String {
    message.trim().replace('\n', ", ")
}

fn syntax(place: String, message: String) -> ConfigError {
    ConfigError::Syntax { place, message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_toml_and_bare_words_are_strings() {
        let good = |text: &str| parse_value(text).expect("a value");
        assert_eq!(good("7"), json!(7));
        assert_eq!(good("2e-4"), json!(2e-4));
        assert_eq!(good("1_000"), json!(1000));
        assert_eq!(good("true"), json!(true));
        assert_eq!(good("\"7\""), json!("7"));
        assert_eq!(good("[1, 2]"), json!([1, 2]));
        assert_eq!(good("{a = 1}"), json!({"a": 1}));
        assert_eq!(good("models/tiny"), json!("models/tiny"));
        assert_eq!(good("0.2.8"), json!("0.2.8"));
        assert_eq!(good("a b"), json!("a b"));
        assert_eq!(good("2024_model_"), json!("2024_model_"));
    }

    #[test]
    fn values_that_are_neither_are_refused() {
        let beyond = parse_value("18446744073709551615").expect_err("beyond TOML's");
        assert!(
            beyond.contains("to 9223372036854775807, found 18446744073709551615"),
            "{beyond}"
        );
        assert!(parse_value("-9_223_372_036_854_775_809").is_err());
        for text in ["", "  ", "[1, ", "{a", "\"x", "nan", "-inf", "2024-01-01"] {
            assert!(parse_value(text).is_err(), "{text:?} passed");
        }
        assert!(parse_value("1\nother = 2").is_err());
    }

    #[test]
    fn lines_are_found_in_nested_tables_and_arrays() {
        let text = "plugins = []\n[run]\nseed = 1\n\n[[sites]]\nmatch = \"*\"\n\
                    [quantizer.nf4]\nblock_size = 64\n";
        let mut lines = BTreeMap::new();
        let parsed = DeTable::parse(text).expect("TOML");
        collect_lines(parsed.get_ref(), "", text, &mut lines);
        assert_eq!(lines["plugins"], 1);
        assert_eq!(lines["run.seed"], 3);
        assert_eq!(lines["sites.0.match"], 6);
        assert_eq!(lines["quantizer.nf4.block_size"], 8);
    }
}
