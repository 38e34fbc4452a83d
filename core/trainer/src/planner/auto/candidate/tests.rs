//! Sets of options for `--auto`, from the declaration of a component.

use super::*;

fn declared() -> Vec<OptionDescriptor> {
    let option = |name: &str, kind: &str, range: &str| OptionDescriptor {
        name: name.to_owned(),
        kind: kind.to_owned(),
        default: Json::Null,
        range: range.to_owned(),
        doc: String::new(),
    };
    vec![
        option("cut", "text", "weights | state | groups"),
        option("keep", "text", "device | host"),
        option("late", "bool", ""),
        option("reduce_dtype", "text", "f32 | bf16"),
        OptionDescriptor {
            default: 1.into(),
            ..option("ahead", "integer", "0..=4")
        },
    ]
}

fn spec() -> SearchSpec {
    let text = r#"{"options": {
            "cut": {"weights": {"stage": "shard_weights"}, "state": {"stage": "shard_state", "world": "ranks"},
                    "groups": {"stage": "shard_weights", "world": "machines"}},
            "keep": {"device": {"world": "ranks"}, "host": {"stage": "offload_weights"}},
            "late": {"false": {}, "true": {"stage": "offload_activations", "after": "offload_weights"}},
            "ahead": {"0": {}, "1": {}, "2": {"world": "ranks"}}}}"#;
    serde_json::from_str(text).expect("a spec")
}

fn sets(given: &[(&str, &str)], world: World) -> Vec<OptionSet> {
    let given = given.iter();
    let given = given.map(|(name, value)| ((*name).to_owned(), Json::from(*value)));
    option_sets(&declared(), &spec(), &given.collect(), world)
}

#[test]
fn undeclared_options_are_not_searched() {
    let four = sets(&[], World::threads(4));
    // Two ways to shard, on the device or (with or without activations) on the host.
    assert_eq!(four.len(), 2 * 3);
    assert!(
        four.iter()
            .all(|set| !set.values.contains_key("reduce_dtype"))
    );
    let one = sets(&[], World::ONE);
    assert_eq!(one.len(), 2, "{one:?}");
    assert!(one.iter().all(|set| set.values["keep"] == "host"));
    let none = option_sets(
        &declared(),
        &SearchSpec::default(),
        &Section::new(),
        World::ONE,
    );
    assert_eq!(none.len(), 1);
    assert_eq!(none[0].values, Section::new());
}

#[test]
fn a_set_has_the_last_stage_of_its_values() {
    let stages: Vec<MemoryStage> = sets(&[], World::threads(2))
        .iter()
        .map(|set| set.stage)
        .collect();
    let expected = [
        MemoryStage::ShardWeights,
        MemoryStage::OffloadWeights,
        MemoryStage::OffloadActivations,
        MemoryStage::ShardState,
        MemoryStage::OffloadWeights,
        MemoryStage::OffloadActivations,
    ];
    assert_eq!(stages, expected);
}

#[test]
fn values_of_the_user_are_kept_and_count() {
    let host = sets(&[("keep", "host")], World::threads(2));
    assert_eq!(host.len(), 2 * 2);
    assert!(host.iter().all(|set| !set.values.contains_key("keep")));
    assert!(
        host.iter()
            .all(|set| set.stage >= MemoryStage::OffloadWeights)
    );
    // The user can request a value that the search omits in this world.
    assert_eq!(sets(&[("keep", "device")], World::ONE).len(), 1);
}

#[test]
fn options_that_save_no_memory_refine_the_other_sets() {
    assert!(
        sets(&[], World::threads(2))
            .iter()
            .all(|set| !set.values.contains_key("ahead"))
    );
    let refined = |given: &Section, world| refinements(&declared(), &spec(), given, world);
    let ahead = |value: i32| Section::from_iter([("ahead".to_owned(), value.into())]);
    // The default is no refinement.
    let none = Section::new();
    assert_eq!(refined(&none, World::threads(2)), [ahead(0), ahead(2)]);
    assert_eq!(refined(&none, World::ONE), [ahead(0)]);
    assert_eq!(refined(&ahead(4), World::threads(2)), []);
}
