//! The version of a config on record -> the values that the program of that time used for what
//! nobody had set.
//!
//! A run goes on as it began. So its `run.json` says the version of its config, and each key that
//! came later, or has another default since, has a row here.

use std::collections::BTreeMap;

use espalier_config::{ConfigError, Origin, ResolvedConfig};
use espalier_engine::observer::{Event, Observer};
use serde_json::{Map, Value as Json};

/// Version of the config that this program puts on record as `config_version`; records without one
/// are of version 1.
pub const CONFIG_VERSION: u64 = 2;

/// What changed since version 1, in order: the version that brought it, the key, and the value, as
/// JSON, with which an older run goes on where its user sets none. That is what the program did
/// before the key was there, or the old default.
const ROWS: &[(u64, &str, &str)] = &[
    (2, "data.train_on", r#""completion""#),
    (2, "run.plugin_timeout_secs", "900"),
    (2, "run.join_timeout_secs", "300"),
    (2, "data.max_lost", "1.0"),
    (2, "data.on_empty", r#""train""#),
    (2, "data.tools", r#""ignore""#),
];

/// The values with which a run whose config is of `version` goes on, by their keys.
pub fn earlier_values(version: u64) -> BTreeMap<&'static str, Json> {
    values_before(ROWS, version)
}

/// The version of the config in a record: `run.json`, its copy in a checkpoint, or `compare.json`.
pub fn config_version(record: &Json) -> u64 {
    record["config_version"].as_u64().unwrap_or(1)
}

/// The config in a record, with the keys that came after it.
pub(crate) fn completed_config(record: &Json) -> Json {
    complete(&record["config"], earlier_values(config_version(record)))
}

/// `resolved`, for a run whose config is of `version`: what no layer sets has the values of that
/// time. Says which those are.
///
/// # Errors
/// Values that do not go together with those that were set.
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
        let note = format!("going on with {key} = {value}, as when this began");
        observer.observe(&Event::Note(&note));
    }
    resolved.with_values("the run on record", values)
}

/// The values of `rows` that hold for `version`: of several for one key, those before its first
/// change since.
fn values_before<'a>(rows: &[(u64, &'a str, &str)], version: u64) -> BTreeMap<&'a str, Json> {
    let later = rows.iter().filter(|(since, ..)| *since > version);
    let mut values = BTreeMap::new();
    for (_, key, value) in later {
        let value = || serde_json::from_str(value).expect("the rows' values are JSON");
        values.entry(*key).or_insert_with(value);
    }
    values
}

/// `config` with those of `values` that it has no value for.
fn complete(config: &Json, values: BTreeMap<&str, Json>) -> Json {
    let mut config = config.clone();
    for (key, value) in values {
        if let Some(place) = place_of(&mut config, key).filter(|place| place.is_null()) {
            *place = value;
        }
    }
    config
}

/// Where the value of a dotted key stands, made where it is missing; nothing in what is no table.
fn place_of<'a>(config: &'a mut Json, key: &str) -> Option<&'a mut Json> {
    key.split('.').try_fold(config, |place, name| {
        if place.is_null() {
            *place = Json::Object(Map::new());
        }
        Some(place.as_object_mut()?.entry(name).or_insert(Json::Null))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use espalier_config::{Sources, TrainOn, resolve};
    use espalier_engine::observer::Unobserved;

    /// A key that changed twice, one that came without a default, and one of a section that came.
    const CHANGES: &[(u64, &str, &str)] = &[
        (2, "data.order", r#""file""#),
        (2, "optim.decay", "null"),
        (3, "data.order", r#""drawn""#),
        (3, "hub.revision", "7"),
    ];

    #[test]
    fn a_version_has_the_values_before_the_first_change_after_it() {
        let values = |version| json!(values_before(CHANGES, version));
        let first = json!({"data.order": "file", "optim.decay": null, "hub.revision": 7});
        assert_eq!(values(1), first);
        assert_eq!(values(2), json!({"data.order": "drawn", "hub.revision": 7}));
        assert_eq!(values(3), json!({}));
    }

    #[test]
    fn a_record_without_a_version_is_of_the_first() {
        assert_eq!(config_version(&json!({"config": {}})), 1);
        assert_eq!(config_version(&json!({"config_version": 3})), 3);
    }

    #[test]
    fn a_config_on_record_keeps_what_it_has() {
        let config = json!({"data": {"order": "mine", "files": ["a"]}, "optim": {}});
        let expected = json!({
            "data": {"order": "mine", "files": ["a"]},
            "optim": {"decay": null},
            "hub": {"revision": 7},
        });
        assert_eq!(complete(&config, values_before(CHANGES, 1)), expected);
        let broken = json!({"data": 3, "optim": [], "hub": {"revision": 7}});
        assert_eq!(complete(&broken, values_before(CHANGES, 1)), broken);
    }

    #[test]
    fn every_row_is_a_value_of_a_key_that_there_is_and_no_version_is_ahead() {
        assert!(ROWS.is_sorted_by_key(|(since, ..)| since));
        for (since, key, _) in ROWS {
            assert!((2..=CONFIG_VERSION).contains(since), "{key}");
        }
        let defaults = resolve(&Sources::default()).expect("the defaults");
        let begun = as_begun(&defaults, 1, &Unobserved).expect("a config");
        for (key, value) in earlier_values(1) {
            assert_eq!(begun.value(key), value, "{key}");
        }
    }

    #[test]
    fn what_the_user_sets_stays() {
        let set = resolve(&Sources::default().set("data.train_on=\"all\"")).expect("a config");
        let begun = as_begun(&set, 1, &Unobserved).expect("a config");
        assert_eq!(
            json!(begun.config().data.train_on),
            json!(set.config().data.train_on)
        );
        let unset = resolve(&Sources::default()).expect("a config");
        let begun = as_begun(&unset, 1, &Unobserved).expect("a config");
        assert_eq!(
            json!(begun.config().data.train_on),
            json!(TrainOn::Completion)
        );
        // Once there, it is as if the user had set it: laying more over it and going on again leave
        // it.
        let over = begun.overlaid("--flag", Map::new(), &["run.seed=7".to_owned()]);
        let over = over.expect("a config");
        assert_eq!(over.origin("data.train_on"), begun.origin("data.train_on"));
        assert_eq!(over.origin("run.epochs"), Origin::Default);
        assert_eq!(over.origin("run.seed"), Origin::Set("run.seed".to_owned()));
    }
}
