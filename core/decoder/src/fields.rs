//! A `config.json` -> its values by key, each checked for type and range.

use std::ops::RangeInclusive;

use espalier_interface::{PluginError, Result};
use serde_json::{Map, Value as Json};

/// An object of a `config.json`. A key that is absent or null counts as not set.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    object: &'a Map<String, Json>,
    /// Prefix of a key in errors: empty, or `rope_parameters.`.
    path: &'a str,
}

impl<'a> Fields<'a> {
    /// The object `json`; errors name its keys as `path` + key.
    ///
    /// # Errors
    /// `INVALID` where `json` is no object.
    pub fn new(json: &'a Json, path: &'a str) -> Result<Self> {
        match json.as_object() {
            Some(object) => Ok(Fields { object, path }),
            None => Err(PluginError::invalid(format!(
                "config.json: expected an object{}{}, found {}",
                if path.is_empty() { "" } else { " at " },
                path.trim_end_matches('.'),
                shown(json)
            ))),
        }
    }

    /// The value of `key`, or nothing.
    pub fn get(&self, key: &str) -> Option<&'a Json> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// Whether `key` is present, even as null.
    pub fn is_written(&self, key: &str) -> bool {
        self.object.contains_key(key)
    }

    /// Keys and values that are set.
    pub fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Json)> {
        self.object.iter().filter(|(_, value)| !value.is_null())
    }

    /// The whole number `key` within `range`, or `default`.
    ///
    /// # Errors
    /// `INVALID` with the range and the value found; also where it is missing and there is no
    /// default.
    pub fn count(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        default: Option<u64>,
    ) -> Result<u64> {
        let expected = format!("a whole number in {}..={}", range.start(), range.end());
        match (self.get(key), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(self.expected(key, &expected, None)),
            (Some(found), _) => match found.as_u64().filter(|number| range.contains(number)) {
                Some(number) => Ok(number),
                None => Err(self.expected(key, &expected, Some(found))),
            },
        }
    }

    /// The number `key`, finite and above zero, or `default`.
    ///
    /// # Errors
    /// `INVALID` with the value found; also where it is missing and there is no default.
    pub fn positive(&self, key: &str, default: Option<f64>) -> Result<f64> {
        let expected = "a number above 0";
        match (self.get(key), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(self.expected(key, expected, None)),
            (Some(found), _) => match found.as_f64().filter(|x| x.is_finite() && *x > 0.0) {
                Some(number) => Ok(number),
                None => Err(self.expected(key, expected, Some(found))),
            },
        }
    }

    /// The list `key` of numbers, each finite and above zero.
    ///
    /// # Errors
    /// `INVALID` with the value found; also where it is missing.
    pub fn positive_list(&self, key: &str) -> Result<Vec<f64>> {
        let expected = "a list of numbers above 0";
        let Some(found) = self.get(key) else {
            return Err(self.expected(key, expected, None));
        };
        let Some(list) = found.as_array() else {
            return Err(self.expected(key, expected, Some(found)));
        };
        let number = |(index, found): (usize, &Json)| {
            let number = found.as_f64().filter(|x| x.is_finite() && *x > 0.0);
            let of_list = format!("{key}[{index}]");
            number.ok_or_else(|| self.expected(&of_list, "a number above 0", Some(found)))
        };
        list.iter().enumerate().map(number).collect()
    }

    /// The number `key`, finite and above zero; none where it is null, `default` where it is left
    /// out.
    ///
    /// # Errors
    /// `INVALID` with the value found.
    pub fn optional_positive(&self, key: &str, default: Option<f64>) -> Result<Option<f64>> {
        match (self.is_written(key), self.get(key)) {
            (false, _) => Ok(default),
            (true, None) => Ok(None),
            (true, Some(_)) => self.positive(key, None).map(Some),
        }
    }

    /// The boolean `key`, or false.
    ///
    /// # Errors
    /// `INVALID` where it is neither true nor false.
    pub fn flag(&self, key: &str) -> Result<bool> {
        self.flag_or(key, false)
    }

    /// The boolean `key`, or `default`.
    ///
    /// # Errors
    /// `INVALID` where it is neither true nor false.
    pub fn flag_or(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Json::Bool(flag)) => Ok(*flag),
            Some(found) => Err(self.expected(key, "true or false", Some(found))),
        }
    }

    /// The text `key`, or `default`.
    ///
    /// # Errors
    /// `INVALID` where it is no text.
    pub fn text(&self, key: &str, default: &'a str) -> Result<&'a str> {
        match self.get(key) {
            None => Ok(default),
            Some(Json::String(text)) => Ok(text),
            Some(found) => Err(self.expected(key, "a text", Some(found))),
        }
    }

    fn expected(&self, key: &str, expected: &str, found: Option<&Json>) -> PluginError {
        let found = found.map_or("nothing".to_owned(), shown);
        PluginError::invalid(format!(
            "config.json: `{}{key}`: expected {expected}, found {found}",
            self.path
        ))
    }
}

/// A JSON value, shortened for an error message.
fn shown(json: &Json) -> String {
    let text = json.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
