//! Names of modules <-> the `adapter_config.json` that PEFT 0.21 writes and reads for IA3.

use espalier_interface::{Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

/// The object of `adapter_config.json`.
pub fn write(targets: &[String], feedforward: &[String], base_model: &str) -> Json {
    json!({
        "auto_mapping": null,
        "base_model_name_or_path": base_model,
        "exclude_modules": null,
        "fan_in_fan_out": false,
        "feedforward_modules": feedforward,
        "inference_mode": true,
        "init_ia3_weights": true,
        "modules_to_save": null,
        "peft_type": "IA3",
        "peft_version": "0.21.2",
        "revision": null,
        "target_modules": targets,
        "task_type": "CAUSAL_LM",
    })
}

/// The options of a saved adapter.
///
/// # Errors
/// `UNSUPPORTED` names a feature that this adapter lacks; `INVALID` for missing targets.
pub fn read(config: &Json) -> Result<Options> {
    for key in ["exclude_modules", "modules_to_save", "fan_in_fan_out"] {
        let value = config.get(key).unwrap_or(&Json::Null);
        if !value.is_null() && value != false && value != &json!([]) {
            return Err(PluginError::unsupported(format!(
                "adapter_config.json: `{key}` is {value}, which this adapter does not do"
            )));
        }
    }
    let mut options = Map::new();
    for (key, option) in [
        ("target_modules", "targets"),
        ("feedforward_modules", "feedforward"),
    ] {
        match config.get(key) {
            Some(list @ Json::Array(_)) => drop(options.insert(option.to_owned(), list.clone())),
            Some(Json::String(_)) => {
                return Err(PluginError::unsupported(format!(
                    "adapter_config.json: `{key}` is a regular expression, expected a list of names"
                )));
            }
            _ => {
                let message = format!("adapter_config.json: `{key}` is no list of names");
                return Err(PluginError::invalid(message));
            }
        }
    }
    Ok(Options(options))
}
