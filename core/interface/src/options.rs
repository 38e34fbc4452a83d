//! The options that a component declares, and the checked values that it gets.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::{PluginError, Result};

/// The type of an option, by name; the set may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionKind(pub &'static str);

impl OptionKind {
    /// `true` or `false`.
    pub const BOOL: OptionKind = OptionKind("bool");
    /// A whole number.
    pub const INTEGER: OptionKind = OptionKind("integer");
    /// A number.
    pub const NUMBER: OptionKind = OptionKind("number");
    /// A text.
    pub const TEXT: OptionKind = OptionKind("text");
    /// A text or a list of texts.
    pub const TEXTS: OptionKind = OptionKind("texts");
    /// A table: whole numbers by names, each in the range.
    pub const INTEGER_TABLE: OptionKind = OptionKind("integer_table");
    /// A table: numbers by names, each in the range.
    pub const NUMBER_TABLE: OptionKind = OptionKind("number_table");
}

/// An option as its component declares it. It is constant, so that it can be read from a library
/// without running it.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Name, as in `[quantizer.NAME]`.
    pub name: &'static str,
    /// Type.
    pub kind: OptionKind,
    /// Default, as JSON text; `null` leaves it unset.
    pub default: &'static str,
    /// Allowed values, as text for people and for the check: `32..=4096`, `a | b`, or empty. See
    /// [`crate::range`].
    pub range: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
}

/// A component's options with every value set and checked by the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Options(pub Map<String, Json>);

impl Options {
    /// The whole number `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or of another type.
    pub fn integer(&self, name: &str) -> Result<i64> {
        self.get(name, "a whole number", Json::as_i64)
    }

    /// The whole number `name`, at least zero.
    ///
    /// # Errors
    /// `INVALID` where it is missing, negative or of another type.
    pub fn count(&self, name: &str) -> Result<u64> {
        self.get(name, "a whole number of at least 0", Json::as_u64)
    }

    /// The number `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or of another type.
    pub fn number(&self, name: &str) -> Result<f64> {
        self.get(name, "a number", Json::as_f64)
    }

    /// The truth value `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or of another type.
    pub fn flag(&self, name: &str) -> Result<bool> {
        self.get(name, "true or false", Json::as_bool)
    }

    /// The text `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or of another type.
    pub fn text(&self, name: &str) -> Result<String> {
        self.get(name, "a text", |json| json.as_str().map(str::to_owned))
    }

    /// The texts `name`: a list, or a single text.
    ///
    /// # Errors
    /// `INVALID` where it is missing or of another type.
    pub fn texts(&self, name: &str) -> Result<Vec<String>> {
        self.get(name, "a text or a list of texts", |json| match json {
            Json::String(text) => Some(vec![text.clone()]),
            Json::Array(list) => list.iter().map(|x| x.as_str().map(str::to_owned)).collect(),
            _ => None,
        })
    }

    fn get<T>(&self, name: &str, kind: &str, read: impl Fn(&Json) -> Option<T>) -> Result<T> {
        let found = self.0.get(name);
        found.and_then(read).ok_or_else(|| {
            let found = found.map_or("nothing".to_owned(), Json::to_string);
            PluginError::invalid(format!("option `{name}`: expected {kind}, found {found}"))
        })
    }
}
