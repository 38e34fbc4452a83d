//! Values of config keys in records of earlier versions.

use serde_json::json;

use super::*;
use espalier_config::{Sources, TrainOn, resolve};
use espalier_engine::observer::Unobserved;

/// A key that changed twice, a new one without a default, and one of a new section.
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
fn a_record_without_a_version_has_version_1() {
    assert_eq!(config_version(&json!({"config": {}})), 1);
    assert_eq!(config_version(&json!({"config_version": 3})), 3);
}

#[test]
fn a_config_on_record_keeps_its_values() {
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
fn every_row_has_an_existing_key_and_no_future_version() {
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
fn values_set_by_the_user_are_kept() {
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
    // An earlier value counts as set by the user: further overlays and another resume keep it.
    let over = begun.overlaid("--flag", Map::new(), &["run.seed=7".to_owned()]);
    let over = over.expect("a config");
    assert_eq!(over.origin("data.train_on"), begun.origin("data.train_on"));
    assert_eq!(over.origin("run.epochs"), Origin::Default);
    assert_eq!(over.origin("run.seed"), Origin::Set("run.seed".to_owned()));
}
