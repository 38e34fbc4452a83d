//! Options of components: defaults, refused values and unknown keys.

use serde_json::json;

use super::*;

fn component() -> ComponentDescriptor {
    let option = |name: &str, kind: &str, default: Json, range: &str| OptionDescriptor {
        name: name.to_owned(),
        kind: kind.to_owned(),
        default,
        range: range.to_owned(),
        doc: String::new(),
    };
    ComponentDescriptor {
        name: "sample".to_owned(),
        role: "adapter".to_owned(),
        doc: String::new(),
        options: vec![
            option("rank", "integer", json!(16), "1..=64"),
            option("alpha", "number", json!(32), "0.."),
            option("flag", "bool", json!(false), ""),
            option("mode", "text", Json::Null, "fast | exact"),
            option("targets", "texts", json!("all"), ""),
            option("ranks", "integer_table", json!({}), "1..=64"),
            option("alphas", "number_table", json!({}), "0.."),
        ],
        capabilities: Default::default(),
    }
}

fn checked(given: Json) -> Result<Json, String> {
    let given = given.as_object().expect("an object").clone();
    let options = check(&component(), &given).map_err(|error| error.to_string())?;
    Ok(Json::Object(options.0))
}

#[test]
fn defaults_fill_what_is_not_given() {
    let expected = json!({
        "rank": 16, "alpha": 0.5, "flag": false, "targets": ["q", "v"], "ranks": {"q": 4},
        "alphas": {}
    });
    let given = json!({
        "alpha": 0.5, "targets": ["q", "v"], "rank": null, "ranks": {"q": 4}
    });
    assert_eq!(checked(given), Ok(expected));
    let mode = checked(json!({"mode": "fast"})).expect("allowed");
    assert_eq!(mode["mode"], "fast");
}

#[test]
fn wrong_values_are_shown_beside_what_was_expected() {
    let rank = "`adapter.sample.rank`: expected a whole number in 1..=64, found 0";
    for (given, part) in [
        (json!({"rank": 0}), rank),
        (json!({"rank": 4.0}), "found 4.0"),
        (json!({"rank": "8"}), "found \"8\""),
        (json!({"flag": 1}), "expected true or false, found 1"),
        (
            json!({"mode": "slow"}),
            "a text in fast | exact, found \"slow\"",
        ),
        (
            json!({"ranks": {"q": 0}}),
            "a table of whole numbers by name in 1..=64, found {\"q\":0}",
        ),
        (json!({"ranks": {"q": 4.5}}), "found {\"q\":4.5}"),
        (json!({"ranks": 4}), "found 4"),
        (
            json!({"alphas": {"q": "1"}}),
            "a table of numbers by name in 0.., found {\"q\":\"1\"}",
        ),
        (json!({"alphas": {"q": -1}}), "found {\"q\":-1}"),
        (
            json!({"targets": [1]}),
            "a text or a list of texts, found [1]",
        ),
        (json!({"alpha": -1}), "a number in 0.., found -1"),
    ] {
        let message = checked(given).expect_err(part);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest() {
    let message = checked(json!({"rnak": 8})).expect_err("misspelt");
    assert!(
        message.contains("unknown option `rnak` of adapter `sample`"),
        "{message}"
    );
    assert!(message.contains("the nearest is `rank`"), "{message}");
    assert!(
        message.ends_with("known: rank, alpha, flag, mode, targets, ranks, alphas"),
        "{message}"
    );
}
