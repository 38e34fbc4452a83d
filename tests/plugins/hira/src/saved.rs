//! Options <-> the `adapter_config.json` that PEFT 0.21 writes and reads for HiRA.

use espalier_interface::{Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::Hira;

/// Keys that ask for what this adapter does not do, unless they are empty.
const EMPTY: [&str; 6] = [
    "exclude_modules",
    "fan_in_fan_out",
    "layers_pattern",
    "layers_to_transform",
    "modules_to_save",
    "rank_pattern",
];

/// The object of `adapter_config.json`.
pub fn write(hira: &Hira, base_model: &str) -> Json {
    json!({
        "auto_mapping": null,
        "base_model_name_or_path": base_model,
        "exclude_modules": null,
        "fan_in_fan_out": false,
        "hira_dropout": hira.dropout,
        "inference_mode": true,
        "init_weights": true,
        "layers_pattern": null,
        "layers_to_transform": null,
        "modules_to_save": null,
        "peft_type": "HIRA",
        "peft_version": "0.21.2",
        "r": hira.rank,
        "rank_pattern": {},
        "revision": null,
        "target_modules": hira.targets,
        "task_type": "CAUSAL_LM",
    })
}

/// The options of a saved adapter.
///
/// # Errors
/// `UNSUPPORTED` names a feature that this adapter lacks; `INVALID` for missing keys.
pub fn read(config: &Json) -> Result<Options> {
    if config.get("peft_type") != Some(&json!("HIRA")) {
        let message = "adapter_config.json: `peft_type` is not HIRA";
        return Err(PluginError::unsupported(message));
    }
    for key in EMPTY {
        let value = config.get(key).unwrap_or(&Json::Null);
        if !value.is_null() && ![json!(false), json!([]), json!({}), json!("")].contains(value) {
            return Err(PluginError::unsupported(format!(
                "adapter_config.json: `{key}` is {value}, which this adapter does not do"
            )));
        }
    }
    let targets = match config.get("target_modules") {
        Some(list @ Json::Array(_)) => list.clone(),
        Some(Json::String(_)) => {
            return Err(PluginError::unsupported(
                "adapter_config.json: `target_modules` is a regular expression, expected a list",
            ));
        }
        _ => {
            let message = "adapter_config.json: `target_modules` is no list of names";
            return Err(PluginError::invalid(message));
        }
    };
    let get = |key: &str| config.get(key).filter(|value| !value.is_null()).cloned();
    let mut options = Map::new();
    options.insert("rank".to_owned(), get("r").unwrap_or(json!(32)));
    let dropout = get("hira_dropout").unwrap_or(json!(0.0));
    options.insert("dropout".to_owned(), dropout);
    options.insert("targets".to_owned(), targets);
    Ok(Options(options))
}
