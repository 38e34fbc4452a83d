//! Attributes of a node: JSON values by name, and readers that check their type.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{PluginError, Result};

/// Attributes of a node: JSON values by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(pub BTreeMap<String, Json>);

impl Attributes {
    /// No attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// These attributes and `name = value`.
    pub fn with(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// The number `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or not a number.
    pub fn number(&self, name: &str) -> Result<f64> {
        let found = self.0.get(name);
        found
            .and_then(Json::as_f64)
            .ok_or_else(|| expected(name, "a number", found))
    }

    /// The number `name`, or nothing where it is absent or null.
    pub fn optional_number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Json::as_f64)
    }

    /// The natural number `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or not a natural number.
    pub fn count(&self, name: &str) -> Result<usize> {
        let found = self.0.get(name);
        let number = found
            .and_then(Json::as_u64)
            .and_then(|n| usize::try_from(n).ok());
        number.ok_or_else(|| expected(name, "a natural number", found))
    }

    /// The truth value `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or not a truth value.
    pub fn boolean(&self, name: &str) -> Result<bool> {
        let found = self.0.get(name);
        found
            .and_then(Json::as_bool)
            .ok_or_else(|| expected(name, "true or false", found))
    }

    /// The text `name`, which has to be there.
    ///
    /// # Errors
    /// `INVALID` where it is missing or not a text.
    pub fn name(&self, name: &str) -> Result<&str> {
        let found = self.0.get(name);
        found
            .and_then(Json::as_str)
            .ok_or_else(|| expected(name, "a text", found))
    }

    /// True where the attribute `name` is `true`; an absent one is false.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Json::as_bool).unwrap_or(false)
    }

    /// The text `name`, or nothing.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Json::as_str)
    }

    /// The list of numbers `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or not a list of numbers.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let found = self.0.get(name);
        let list = found.and_then(Json::as_array);
        let numbers = list.and_then(|l| l.iter().map(Json::as_f64).collect::<Option<Vec<_>>>());
        numbers.ok_or_else(|| expected(name, "a list of numbers", found))
    }
}

fn expected(name: &str, kind: &str, found: Option<&Json>) -> PluginError {
    let found = found.map_or("nothing".to_owned(), Json::to_string);
    PluginError::invalid(format!(
        "attribute `{name}`: expected {kind}, found {found}"
    ))
}
