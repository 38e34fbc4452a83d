//! Scaled sites <-> the `adapter_config.json` that PEFT 0.21 writes and reads for IA3.

use espalier_interface::adaptation::Site;
use espalier_interface::{Options, Result};
use serde_json::{Map, Value as Json, json};

use super::{Factors, Scaled};
use crate::config_file::{self, PEFT_VERSION, is_unused, refused};
use crate::targets::{self, ending};

/// Keys that do not change the adapter's function.
const IGNORED: [&str; 6] = [
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "init_ia3_weights",
    "peft_version",
    "revision",
];

/// The object of `adapter_config.json`, keys in PEFT's order, which is the alphabet's.
pub fn write(scaled: &[Scaled], sites: &[Site], base_model: &str) -> Json {
    let [before, after] = [Factors::Input, Factors::Output].map(|place| {
        let chosen = scaled.iter().filter(|one| one.place == place);
        let chosen: Vec<usize> = chosen.map(|one| one.site).collect();
        targets::shortest(sites, &chosen)
    });
    // PEFT takes a feed-forward module for the end of a name where no dot is before it, too.
    let before: Vec<String> = if before.iter().all(|name| only_at_a_dot(name, scaled, sites)) {
        before
    } else {
        let chosen = scaled.iter().filter(|one| one.place == Factors::Input);
        chosen.map(|one| sites[one.site].name.clone()).collect()
    };
    let targets: Vec<&String> = before.iter().chain(&after).collect();
    json!({
        "auto_mapping": null,
        "base_model_name_or_path": base_model,
        "exclude_modules": null,
        "fan_in_fan_out": false,
        "feedforward_modules": before,
        "inference_mode": true,
        "init_ia3_weights": true,
        "modules_to_save": null,
        "peft_type": "IA3",
        "peft_version": PEFT_VERSION,
        "revision": null,
        "target_modules": targets,
        "task_type": "CAUSAL_LM",
    })
}

/// Whether `name` ends no longer word of a site whose output is scaled.
fn only_at_a_dot(name: &str, scaled: &[Scaled], sites: &[Site]) -> bool {
    let mut after = scaled.iter().filter(|one| one.place == Factors::Output);
    !after.any(|one| ending(&sites[one.site].name).ends_with(name))
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
            "target_modules" | "feedforward_modules" => true,
            "peft_type" => value == "IA3",
            "task_type" => value.is_null() || value == "CAUSAL_LM",
            key => IGNORED.contains(&key) || is_unused(value),
        };
        if !accepted {
            return Err(refused(key, value));
        }
    }
    config_file::require(object, "peft_type")?;
    let mut options = Map::new();
    for (key, option) in [
        ("target_modules", "targets"),
        ("feedforward_modules", "feedforward"),
    ] {
        let names = config_file::require(object, key)?;
        options.insert(option.to_owned(), names.clone());
    }
    Ok(Options(options))
}
