//! The sets of options that a component is tried with.

use super::*;

fn option(kind: &str, default: Json, range: &str) -> OptionDescriptor {
    OptionDescriptor {
        name: "x".into(),
        kind: kind.into(),
        default,
        range: range.into(),
        doc: String::new(),
    }
}

#[test]
fn bounds_and_alternatives_come_from_the_range() {
    for (kind, default, range, expected) in [
        (
            "integer",
            json!(64),
            "32..=4096, power of two",
            json!([32, 4096]),
        ),
        ("integer", json!(4), "4 | 8", json!([8])),
        ("integer", json!(3), "1..", json!([1, 6])),
        ("integer", json!(16), "", json!([32])),
        ("number", json!(0.0), "0..1", json!([0.75])),
        ("text", json!("a"), "a | b", json!(["b"])),
        ("bool", json!(true), "", json!([false])),
        ("texts", json!("all"), "", json!([])),
        ("integer_table", json!({}), "1..=8", json!([])),
    ] {
        let found = alternatives(&option(kind, default.clone(), range));
        assert_eq!(Json::Array(found), expected, "{kind} {default} {range}");
    }
}

#[test]
fn what_is_given_stays() {
    let component = ComponentDescriptor {
        name: "sample".into(),
        role: "quantizer".into(),
        doc: String::new(),
        options: vec![option("integer", json!(64), "32..=128")],
        capabilities: Default::default(),
    };
    let labels = |given: Json| -> Vec<String> {
        let given = given.as_object().expect("an object").clone();
        let sets = option_sets(&component, &given);
        sets.into_iter().map(|set| set.label).collect()
    };
    assert_eq!(labels(json!({})), ["defaults", "x = 32", "x = 128"]);
    assert_eq!(labels(json!({"x": 96})), ["x = 96"]);
}
