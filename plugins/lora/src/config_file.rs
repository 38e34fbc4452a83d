//! What PEFT's configs have in common: `adapter_config.json` of every kind of adapter.

use espalier_interface::{PluginError, Result};
use serde_json::{Map, Value as Json};

/// The PEFT release whose keys are written.
pub const PEFT_VERSION: &str = "0.21.2";

/// PEFT's prefix of a module's name in the keys of `adapter_model.safetensors`.
pub const PREFIX: &str = "base_model.model.";

/// The content of a file.
///
/// # Errors
/// `INVALID` where it is no object.
pub fn object(config: &Json) -> Result<&Map<String, Json>> {
    let object = config.as_object();
    object.ok_or_else(|| PluginError::invalid("adapter_config.json: expected an object"))
}

/// A key's value that is not null.
pub fn get<'a>(object: &'a Map<String, Json>, key: &str) -> Option<&'a Json> {
    object.get(key).filter(|value| !value.is_null())
}

/// As [`get`].
///
/// # Errors
/// `INVALID` where there is none.
pub fn require<'a>(object: &'a Map<String, Json>, key: &str) -> Result<&'a Json> {
    let missing = || PluginError::invalid(format!("adapter_config.json: `{key}` is missing"));
    get(object, key).ok_or_else(missing)
}

/// The error for a key whose value asks for what an adapter does not do.
pub fn refused(key: &str, value: &Json) -> PluginError {
    PluginError::unsupported(format!(
        "adapter_config.json: `{key}` is {value}, which this adapter does not do"
    ))
}

/// True for a value that PEFT writes for an unused feature.
pub fn is_unused(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => true,
        Json::String(text) => text.is_empty(),
        Json::Array(list) => list.is_empty(),
        Json::Object(object) => object.is_empty(),
        _ => false,
    }
}
