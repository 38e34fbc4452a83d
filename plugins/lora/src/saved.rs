//! A LoRA's or DoRA's settings <-> the `adapter_config.json` that PEFT 0.21 writes and reads.

use espalier_interface::adaptation::Site;
use espalier_interface::{Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::config_file::{self, PEFT_VERSION, get, is_unused, refused};
use crate::settings::{Scaling, Settings, Variant};
use crate::{targets, whole};

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

/// The object of `adapter_config.json`, keys in PEFT's order, which is the alphabet's.
///
/// # Errors
/// As [`Settings::pick`].
pub fn write(settings: &Settings, sites: &[Site], base_model: &str) -> Result<Json> {
    let chosen = settings.pick(sites)?;
    let modules_to_save = match settings.modules_to_save.as_slice() {
        [] => Json::Null,
        _ => json!(whole::names(sites, &settings.whole(sites)?)),
    };
    Ok(json!({
        "alora_invocation_tokens": null,
        "alpha_pattern": settings.alphas.written(),
        "arrow_config": null,
        "auto_mapping": null,
        "base_model_name_or_path": base_model,
        "bias": "none",
        "corda_config": null,
        "ensure_weight_tying": false,
        "eva_config": null,
        "exclude_modules": null,
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "kasa_config": null,
        "layer_replication": null,
        "layers_pattern": null,
        "layers_to_transform": null,
        "loftq_config": {},
        "lora_alpha": number(settings.alpha),
        "lora_bias": false,
        "lora_dropout": settings.dropout,
        "lora_ga_config": null,
        "megatron_config": null,
        "megatron_core": "megatron.core",
        "modules_to_save": modules_to_save,
        "monteclora_config": null,
        "peft_type": "LORA",
        "peft_version": PEFT_VERSION,
        "qalora_group_size": 16,
        "r": settings.rank,
        "rank_pattern": settings.ranks.written(),
        "revision": null,
        "target_modules": targets::shortest(sites, &chosen),
        "target_parameters": null,
        "task_type": "CAUSAL_LM",
        "trainable_token_indices": null,
        "use_bdlora": null,
        "use_dora": settings.variant == Variant::Dora,
        "use_qalora": false,
        "use_rslora": settings.scaling == Scaling::RankRoot,
        "velora_config": null,
    }))
}

/// The options that make this adapter equal to a saved one.
///
/// # Errors
/// `UNSUPPORTED` for a key that asks for a feature that this adapter lacks, and for the other
/// variant; `INVALID` for a missing key.
pub fn read(variant: Variant, config: &Json) -> Result<Options> {
    let object = config_file::object(config)?;
    for (key, value) in object {
        check(key, value)?;
    }
    // Last: of a file that neither variant reads, the key that neither does is named.
    check_variant(variant, object.get("use_dora").unwrap_or(&Json::Null))?;
    config_file::require(object, "peft_type")?;
    let get = |key: &str| get(object, key);
    let mut options = Map::new();
    // PEFT's own defaults where a key is left out.
    options.insert("rank".into(), get("r").cloned().unwrap_or(json!(8)));
    options.insert(
        "alpha".into(),
        get("lora_alpha").cloned().unwrap_or(json!(8)),
    );
    options.insert(
        "dropout".into(),
        get("lora_dropout").cloned().unwrap_or(json!(0.0)),
    );
    let targets = config_file::require(object, "target_modules")?;
    options.insert("targets".into(), targets.clone());
    options.insert(
        "rslora".into(),
        get("use_rslora").cloned().unwrap_or(json!(false)),
    );
    let whole = get("modules_to_save").cloned().unwrap_or(json!([]));
    options.insert("modules_to_save".into(), whole);
    for pattern in ["rank_pattern", "alpha_pattern"] {
        let table = get(pattern).cloned().unwrap_or(json!({}));
        options.insert(pattern.into(), table);
    }
    Ok(Options(options))
}

/// Refuses a key whose value changes the result in a way this adapter does not support.
fn check(key: &str, value: &Json) -> Result<()> {
    let accepted = match key {
        "r" | "lora_alpha" | "lora_dropout" | "target_modules" | "use_rslora" | "use_dora"
        | "rank_pattern" | "alpha_pattern" | "modules_to_save" => true,
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
        Ok(())
    } else {
        Err(refused(key, value))
    }
}

/// Refuses the files of the other variant by its name.
fn check_variant(variant: Variant, use_dora: &Json) -> Result<()> {
    let other = match (variant, use_dora) {
        (Variant::Lora, unused) if is_unused(unused) => return Ok(()),
        (Variant::Dora, Json::Bool(true)) => return Ok(()),
        (Variant::Lora, Json::Bool(true)) => "true: it is of the adapter `dora`".to_owned(),
        (Variant::Dora, unused) if is_unused(unused) => {
            "not true: it is of the adapter `lora`".to_owned()
        }
        (_, other) => format!("{other}, expected true or false"),
    };
    Err(PluginError::unsupported(format!(
        "adapter_config.json: `use_dora` is {other}"
    )))
}

/// A number as PEFT writes it: whole ones without a fraction.
fn number(value: f64) -> Json {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

#[cfg(test)]
mod tests;
