//! Refuses keys that no section has, and values of another type than the key's default.
//!
//! The known keys are read off the option structs ([`known`]), so that they stand in one place.

use std::cell::RefCell;

use serde_json::{Map, Value};

use super::faults::Faults;
use super::sources::{Layer, join};
use super::{Config, ConfigError, GroupRule, SiteRule, known, nearest};

/// Lists whose items may also be given as one string with commas.
const COMMA_LISTS: [&str; 3] = ["plugins", "run.devices", "compare.arms"];

/// Checks `layer` against `known`, the defaults as a tree, and turns a lone string into a list
/// where the key wants a list. Faulty values are left out.
pub(super) fn check(layer: &mut Layer, known: &Map<String, Value>, faults: &mut Faults) {
    let mut values = std::mem::take(&mut layer.values);
    let checker = Checker {
        layer,
        known,
        faults: RefCell::new(faults),
    };
    checker.table(&mut values, known, "");
    layer.values = values;
}

/// The key of parameter groups.
const GROUPS: &str = "optim.groups";

struct Checker<'a> {
    layer: &'a Layer,
    known: &'a Map<String, Value>,
    faults: RefCell<&'a mut Faults>,
}

impl Checker<'_> {
    fn table(&self, values: &mut Map<String, Value>, known: &Map<String, Value>, path: &str) {
        values.retain(|key, value| {
            let here = join(path, key);
            let checked = match known.get(key) {
                None => Err(self.unknown(key, path, known)),
                Some(_) if path.is_empty() && Config::ROLES.contains(&key.as_str()) => {
                    self.sections(value, &here)
                }
                Some(_) if here == "sites" => self.sites(value),
                Some(_) if here == "arms" => self.arms(value),
                Some(_) if here == GROUPS => self.groups(value),
                Some(default) => self.value(value, default, &here),
            };
            let is_sound = checked.is_ok();
            if let Err(fault) = checked {
                self.faults.borrow_mut().add_value(&here, fault);
            }
            is_sound
        });
    }

    fn value(&self, value: &mut Value, default: &Value, path: &str) -> Result<(), ConfigError> {
        let expected = match (default, &*value) {
            (Value::Object(known), Value::Object(_)) if known.is_empty() => return Ok(()),
            (Value::Object(known), Value::Object(_)) => {
                let Value::Object(values) = value else {
                    unreachable!("matched above")
                };
                self.table(values, known, path);
                return Ok(());
            }
            (Value::Object(_), _) => "a table",
            (Value::Array(_), Value::String(text)) => {
                *value = list(text, path);
                return Ok(());
            }
            (Value::Array(_), Value::Array(_)) => return Ok(()),
            (Value::Array(_), _) => "a list",
            (Value::String(_), Value::String(_)) => return Ok(()),
            (Value::String(_), _) => "a string",
            (Value::Bool(_), Value::Bool(_)) => return Ok(()),
            (Value::Bool(_), _) => "true or false",
            (Value::Number(_), Value::Number(_)) => return Ok(()),
            (Value::Number(_), _) => "a number",
            // Unset by default: the typed reading decides.
            (Value::Null, _) => return Ok(()),
        };
        Err(self.wrong_type(path, expected, value))
    }

    /// `[role.NAME]`: the options inside belong to the plugin and are checked by its declaration.
    fn sections(&self, value: &Value, path: &str) -> Result<(), ConfigError> {
        let Value::Object(sections) = value else {
            return Err(self.wrong_type(path, &format!("a table [{path}.NAME]"), value));
        };
        for (name, options) in sections {
            if !options.is_object() {
                let expected = format!("a table [{path}.NAME] of one plugin's options");
                return Err(self.wrong_type(&join(path, name), &expected, options));
            }
        }
        Ok(())
    }

    fn sites(&self, value: &mut Value) -> Result<(), ConfigError> {
        let default = serde_json::to_value(SiteRule::default()).unwrap_or_default();
        let known = known::filled::<SiteRule>(default);
        let needed = ("match", "a pattern of site names");
        self.tables(value, "sites", &known, needed)
    }

    fn groups(&self, value: &mut Value) -> Result<(), ConfigError> {
        let default = serde_json::to_value(GroupRule::default()).unwrap_or_default();
        let known = known::filled::<GroupRule>(default);
        let needed = ("pattern", "a pattern of param names");
        self.tables(value, GROUPS, &known, needed)
    }

    /// `[[arms]]`: a name, components, and sections as the config has them. The content of those is
    /// checked once they are laid over the rest.
    fn arms(&self, value: &mut Value) -> Result<(), ConfigError> {
        let mut known = self.known.clone();
        known.retain(|key, _| !["arms", "compare"].contains(&key.as_str()));
        known.insert("name".into(), Value::String(String::new()));
        self.tables(value, "arms", &known, ("name", "a name for the arm"))
    }

    /// A list of tables `[[path]]` with the keys `known`, each with a `needed` one.
    fn tables(
        &self,
        value: &mut Value,
        path: &str,
        known: &Map<String, Value>,
        (needed, meaning): (&str, &str),
    ) -> Result<(), ConfigError> {
        let Value::Array(entries) = value else {
            let expected = format!("a list of tables [[{path}]]");
            return Err(self.wrong_type(path, &expected, value));
        };
        for (index, entry) in entries.iter_mut().enumerate() {
            let path = format!("{path}.{index}");
            let Value::Object(entry) = entry else {
                return Err(self.wrong_type(&path, "a table", entry));
            };
            self.table(entry, known, &path);
            if !entry.contains_key(needed) {
                return Err(ConfigError::Value {
                    key: format!("{path}.{needed}"),
                    expected: meaning.into(),
                    found: "nothing".into(),
                    origin: Box::new(self.layer.origin(&path)),
                });
            }
        }
        Ok(())
    }

    fn unknown(&self, key: &str, path: &str, known: &Map<String, Value>) -> ConfigError {
        let here = nearest(key, known.keys().map(String::as_str)).map(str::to_owned);
        ConfigError::UnknownKey {
            key: key.to_owned(),
            section: match path {
                "" => "the top level".into(),
                _ => format!("[{path}]"),
            },
            origin: Box::new(self.layer.origin(&join(path, key))),
            nearest: here.or_else(|| self.elsewhere(key)),
            known: known.keys().cloned().collect(),
        }
    }

    /// The same or a near key of another section, with its section.
    fn elsewhere(&self, key: &str) -> Option<String> {
        let sections = self.known.iter().filter_map(|(section, keys)| {
            let names = keys.as_object()?.keys();
            let name = nearest(key, names.map(String::as_str))?;
            Some((strsim::damerau_levenshtein(key, name), join(section, name)))
        });
        sections.min().map(|(_, name)| name)
    }

    fn wrong_type(&self, path: &str, expected: &str, found: &Value) -> ConfigError {
        ConfigError::Value {
            key: path.to_owned(),
            expected: expected.to_owned(),
            found: describe(found),
            origin: Box::new(self.layer.origin(path)),
        }
    }
}

fn list(text: &str, path: &str) -> Value {
    if !COMMA_LISTS.contains(&path) {
        return Value::Array(vec![text.into()]);
    }
    let items = text.split(',').map(str::trim);
    Value::Array(
        items
            .filter(|item| !item.is_empty())
            .map(Value::from)
            .collect(),
    )
}

/// A value as an error shows it.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::String(text) => format!("the string {text:?}"),
        Value::Array(_) => format!("the list {value}"),
        Value::Object(_) => "a table".into(),
        _ => value.to_string(),
    }
}
