//! The version of a config on record -> the defaults of the program of that version.
//!
//! A resumed run keeps its original settings. Its `run.json` therefore has the version of its
//! config, and each key with a newer or changed default has a row here.

use std::collections::BTreeMap;

use espalier_config::{ConfigError, Origin, ResolvedConfig};
use espalier_engine::observer::{Event, Observer};
use serde_json::{Map, Value as Json};

/// Config version that this program records as `config_version`; records without one have version
/// 1.
pub const CONFIG_VERSION: u64 = 6;

/// Changes since version 1, in order: the version of the change, the key, and the JSON value for
/// older runs whose user sets none. The value is the old default, or the behaviour before the key
/// existed.
const ROWS: &[(u64, &str, &str)] = &[
    (2, "data.train_on", r#""completion""#),
    (2, "run.plugin_timeout_secs", "900"),
    (2, "run.join_timeout_secs", "300"),
    (2, "run.device_collective", "null"),
    (2, "data.max_lost", "1.0"),
    (2, "data.on_empty", r#""train""#),
    (2, "data.tools", r#""ignore""#),
    (3, "optim.decay_norms_and_biases", "true"),
    (3, "optim.groups", "[]"),
    (3, "optim.momentum", "null"),
    (3, "optim.nesterov", "null"),
    (4, "run.keep_best", "false"),
    (4, "run.stop_after_worse", "null"),
    (4, "optim.in_backward", "false"),
    (4, "optim.min_8bit_size", "4096"),
    (4, "model.train_only", "[]"),
    (5, "compare.bits", "null"),
    (5, "model.gradients", r#""f32""#),
    (5, "optim.state", r#""f32""#),
    (5, "optim.stochastic_rounding", "false"),
    (6, "data.calibration_files", "[]"),
    (6, "data.calibration_rows", "128"),
    (6, "run.plugin_hashes", "{}"),
    (6, "run.weight_cache_gb", "null"),
];

/// The values by key for a resumed run whose config has version `version`.
pub fn earlier_values(version: u64) -> BTreeMap<&'static str, Json> {
    values_before(ROWS, version)
}

/// The version of the config in a record: `run.json`, its copy in a checkpoint, or `compare.json`.
pub fn config_version(record: &Json) -> u64 {
    record["config_version"].as_u64().unwrap_or(1)
}

/// The config in a record, completed with newer keys.
pub(crate) fn completed_config(record: &Json) -> Json {
    complete(&record["config"], earlier_values(config_version(record)))
}

/// `resolved` for a run whose config has version `version`: keys that no layer sets have the values
/// of that version. Prints these values.
///
/// # Errors
/// [`ConfigError`] for values that contradict those that were set.
pub fn as_begun(
    resolved: &ResolvedConfig,
    version: u64,
    observer: &dyn Observer,
) -> Result<ResolvedConfig, ConfigError> {
    let mut values = earlier_values(version);
    values.retain(|key, value| {
        resolved.origin(key) == Origin::Default && resolved.value(key) != *value
    });
    for (key, value) in &values {
        let note = format!("continuing with {key} = {value}, as when this began");
        observer.observe(&Event::Note(&note));
    }
    resolved.with_values("the run on record", values)
}

/// The values of `rows` for `version`: of several rows of one key, the value before its first later
/// change.
fn values_before<'a>(rows: &[(u64, &'a str, &str)], version: u64) -> BTreeMap<&'a str, Json> {
    let later = rows.iter().filter(|(since, ..)| *since > version);
    let mut values = BTreeMap::new();
    for (_, key, value) in later {
        let value = || serde_json::from_str(value).expect("the rows' values are JSON");
        values.entry(*key).or_insert_with(value);
    }
    values
}

/// `config`, completed with those `values` whose keys it lacks.
fn complete(config: &Json, values: BTreeMap<&str, Json>) -> Json {
    let mut config = config.clone();
    for (key, value) in values {
        if let Some(place) = place_of(&mut config, key).filter(|place| place.is_null()) {
            *place = value;
        }
    }
    config
}

/// The place of a dotted key's value, created where it is missing; `None` inside a value that is no
/// table.
fn place_of<'a>(config: &'a mut Json, key: &str) -> Option<&'a mut Json> {
    key.split('.').try_fold(config, |place, name| {
        if place.is_null() {
            *place = Json::Object(Map::new());
        }
        Some(place.as_object_mut()?.entry(name).or_insert(Json::Null))
    })
}

#[cfg(test)]
mod tests;
