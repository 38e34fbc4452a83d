//! A VeRA's options and sites <-> the `adapter_config.json` that PEFT 0.21 writes and reads.

use espalier_interface::adaptation::Site;
use espalier_interface::{Options, Result};
use serde_json::{Map, Value as Json, json};

use super::Vera;
use crate::config_file::{self, PEFT_VERSION, get, is_unused, refused};
use crate::targets;

/// Keys that do not change the adapter's function. The host takes A and B from the files, or draws
/// them where the files leave them out (`save_projection`).
const IGNORED: [&str; 8] = [
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "init_weights",
    "layers_pattern",
    "peft_version",
    "revision",
    "save_projection",
];

/// PEFT's keys, ours, and PEFT's values where a key is left out.
const OPTIONS: [(&str, &str, f64); 4] = [
    ("r", "rank", 256.0),
    ("d_initial", "d_initial", 0.1),
    ("vera_dropout", "dropout", 0.0),
    ("projection_prng_key", "projection_prng_key", 0.0),
];

/// The object of `adapter_config.json`, keys in PEFT's order, which is the alphabet's.
///
/// # Errors
/// As [`Vera::pick`].
pub fn write(vera: &Vera, sites: &[Site], base_model: &str) -> Result<Json> {
    let chosen = vera.pick(sites)?;
    Ok(json!({
        "auto_mapping": null,
        "base_model_name_or_path": base_model,
        "bias": "none",
        "d_initial": vera.d_initial,
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_weights": true,
        "layers_pattern": null,
        "layers_to_transform": null,
        "modules_to_save": null,
        "peft_type": "VERA",
        "peft_version": PEFT_VERSION,
        "projection_prng_key": vera.key,
        "r": vera.rank,
        "revision": null,
        "save_projection": true,
        "target_modules": targets::shortest(sites, &chosen),
        "task_type": "CAUSAL_LM",
        "vera_dropout": vera.dropout,
    }))
}

/// The options that make this adapter equal to a saved one.
///
/// # Errors
/// `UNSUPPORTED` for a key that asks for a feature that this adapter lacks, `INVALID` for a missing
/// key.
pub fn read(config: &Json) -> Result<Options> {
    let object = config_file::object(config)?;
    for (key, value) in object {
        let accepted = match key.as_str() {
            "target_modules" => true,
            "peft_type" => value == "VERA",
            "task_type" => value.is_null() || value == "CAUSAL_LM",
            "bias" => value.is_null() || value == "none",
            key => {
                let is_option = OPTIONS.iter().any(|(theirs, ..)| *theirs == key);
                is_option || IGNORED.contains(&key) || is_unused(value)
            }
        };
        if !accepted {
            return Err(refused(key, value));
        }
    }
    config_file::require(object, "peft_type")?;
    let mut options = Map::new();
    for (theirs, ours, default) in OPTIONS {
        let whole = ["r", "projection_prng_key"].contains(&theirs);
        let default = if whole {
            json!(default as u64)
        } else {
            json!(default)
        };
        let value = get(object, theirs).cloned().unwrap_or(default);
        options.insert(ours.to_owned(), value);
    }
    let targets = config_file::require(object, "target_modules")?;
    options.insert("targets".to_owned(), targets.clone());
    Ok(Options(options))
}
