//! Options <-> the `adapter_config.json` that PEFT 0.21 writes and reads for LoRA with `use_dora`.

use espalier_interface::{Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::Dora;

/// Keys that do not change the adapter's function.
const IGNORED: [&str; 9] = [
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "layers_pattern",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
];

/// The object of `adapter_config.json`.
pub fn write(dora: &Dora, targets: &Json, base_model: &str) -> Json {
    json!({
        "alpha_pattern": {},
        "auto_mapping": null,
        "base_model_name_or_path": base_model,
        "bias": "none",
        "exclude_modules": null,
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "layer_replication": null,
        "layers_pattern": null,
        "layers_to_transform": null,
        "loftq_config": {},
        "lora_alpha": number(dora.alpha),
        "lora_bias": false,
        "lora_dropout": dora.dropout,
        "modules_to_save": null,
        "peft_type": "LORA",
        "peft_version": "0.21.2",
        "r": dora.rank,
        "rank_pattern": {},
        "revision": null,
        "target_modules": targets,
        "target_parameters": null,
        "task_type": "CAUSAL_LM",
        "use_dora": true,
        "use_qalora": false,
        "use_rslora": dora.rslora,
    })
}

/// The options of a saved adapter.
///
/// # Errors
/// `UNSUPPORTED` names a feature that this adapter lacks, plain LoRA among them; `INVALID` for
/// missing keys.
pub fn read(config: &Json) -> Result<Options> {
    let Some(object) = config.as_object() else {
        let message = "adapter_config.json: expected an object";
        return Err(PluginError::invalid(message));
    };
    for (key, value) in object {
        check(key, value)?;
    }
    if object.get("use_dora") != Some(&json!(true)) {
        return Err(PluginError::unsupported(
            "adapter_config.json: `use_dora` is not true: it is of a plain LoRA",
        ));
    }
    let get = |key: &str| object.get(key).filter(|value| !value.is_null());
    let missing =
        |key: &str| PluginError::invalid(format!("adapter_config.json: `{key}` is missing"));
    let mut options = Map::new();
    // PEFT's own defaults where a key is left out.
    for (key, option, default) in [
        ("r", "rank", json!(8)),
        ("lora_alpha", "alpha", json!(8)),
        ("lora_dropout", "dropout", json!(0.0)),
        ("use_rslora", "rslora", json!(false)),
    ] {
        let value = get(key).cloned().unwrap_or(default);
        options.insert(option.to_owned(), value);
    }
    get("peft_type").ok_or_else(|| missing("peft_type"))?;
    let targets = get("target_modules").ok_or_else(|| missing("target_modules"))?;
    options.insert("targets".to_owned(), targets.clone());
    Ok(Options(options))
}

/// Refuses a key whose value asks for what this adapter does not do.
fn check(key: &str, value: &Json) -> Result<()> {
    let accepted = match key {
        "r" | "lora_alpha" | "lora_dropout" | "target_modules" | "use_rslora" | "use_dora" => true,
        "peft_type" => value == "LORA",
        "task_type" => value.is_null() || value == "CAUSAL_LM",
        "bias" => value.is_null() || value == "none",
        // The other initialisations change the base weights as well.
        "init_lora_weights" => {
            value.is_null() || value.is_boolean() || value == "gaussian" || value == "orthogonal"
        }
        _ => IGNORED.contains(&key) || is_unused(value),
    };
    if accepted {
        return Ok(());
    }
    Err(PluginError::unsupported(format!(
        "adapter_config.json: `{key}` is {value}, which this adapter does not do"
    )))
}

/// True for a value that PEFT writes for an unused feature.
fn is_unused(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => true,
        Json::String(text) => text.is_empty(),
        Json::Array(list) => list.is_empty(),
        Json::Object(object) => object.is_empty(),
        _ => false,
    }
}

/// A number as PEFT writes it: whole ones without a fraction.
fn number(value: f64) -> Json {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        json!(value as i64)
    } else {
        json!(value)
    }
}
