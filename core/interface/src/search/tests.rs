//! The capability `search`: what may be left out, and what is refused.

use super::*;

fn declared() -> Vec<OptionDescriptor> {
    let option = |name: &str, kind: OptionKind, range: &str| OptionDescriptor {
        name: name.to_owned(),
        kind: kind.0.to_owned(),
        default: Json::Null,
        range: range.to_owned(),
        doc: String::new(),
    };
    vec![
        option("offload", OptionKind::TEXT, "none | params"),
        option("groups", OptionKind::INTEGER, "1..=8"),
        option("late", OptionKind::BOOL, ""),
    ]
}

fn read(text: &str) -> Result<SearchSpec> {
    SearchSpec::of(&ComponentDescriptor {
        name: "cut".to_owned(),
        role: "sharding".to_owned(),
        doc: String::new(),
        options: declared(),
        capabilities: BTreeMap::from_iter([(SEARCH.to_owned(), text.to_owned())]),
    })
}

fn refused(text: &str) -> String {
    read(text).expect_err(text).message
}

#[test]
fn what_is_left_out_has_no_condition() {
    let text = r#"{"options": {"offload": {"none": {}, "params": {"stage": "offload_weights"}},
                       "groups": {"2": {"world": "machines"}}, "late": {"true": {"after": "shard_state"}}}}"#;
    let spec = read(text).expect("a spec");
    assert_eq!(spec.world, SearchWorld::Any);
    assert_eq!(spec.options["offload"]["none"], ValueSpec::default());
    assert_eq!(spec.options["groups"]["2"].world, SearchWorld::Machines);
    assert_eq!(spec.options["late"]["true"].after, MemoryStage::ShardState);
    assert!(SearchWorld::Ranks.holds(2, 1) && !SearchWorld::Machines.holds(2, 1));
}

#[test]
fn options_and_values_must_be_declared() {
    assert!(refused("{").contains("capability `search`"));
    assert!(refused(r#"{"stages": {}}"#).contains("unknown field `stages`"));
    assert!(refused(r#"{"options": {"speed": {}}}"#).contains("found `speed`"));
    assert!(refused(r#"{"options": {"offload": {"disk": {}}}}"#).contains("found `disk`"));
    assert!(refused(r#"{"options": {"groups": {"9": {}}}}"#).contains("found `9`"));
    assert!(refused(r#"{"options": {"groups": {"two": {}}}}"#).contains("found `two`"));
    assert!(refused(r#"{"options": {"late": {"1": {}}}}"#).contains("found `1`"));
}
