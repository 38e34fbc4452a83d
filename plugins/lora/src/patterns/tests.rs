//! Patterns -> numbers of sites, as PEFT finds them.

use espalier_interface::adaptation::SiteKind;
use serde_json::json;

use super::*;

fn site(name: &str) -> Site {
    Site {
        name: name.to_owned(),
        kind: SiteKind::Linear,
        shape: [8, 8],
        tied_to: None,
        has_bias: false,
    }
}

fn patterns(json: Json) -> Patterns {
    Patterns::read("rank_pattern", Some(&json)).expect("well formed")
}

/// The answers are those of PEFT 0.21.2's `get_pattern_key`.
#[test]
fn patterns_match_as_in_peft() {
    let q = "model.layers.1.self_attn.q_proj";
    for (pattern, matches) in [
        ("q_proj", true),
        ("self_attn.q_proj", true),
        ("self_attn.*", true),
        (q, true),
        (".*", true),
        ("[qk]_proj", true),
        ("q_proj|v_proj", true),
        ("layers.[12].self_attn.q_proj", true),
        (r"model\.layers\.1\..*", true),
        // Neither the end of a word nor the begin of a name.
        ("proj", false),
        ("model", false),
        ("self_attn", false),
        ("layers.0.self_attn.q_proj", false),
    ] {
        let found = patterns(json!({ pattern: 4 }));
        assert_eq!(found.of(&site(q)).is_some(), matches, "{pattern}");
    }
}

#[test]
fn the_first_pattern_that_matches_holds() {
    let found = patterns(json!({"layers.0.*": 2, "q_proj": 4}));
    let number = |name: &str| found.of(&site(name)).cloned();
    assert_eq!(number("model.layers.0.self_attn.q_proj"), Some(json!(2)));
    assert_eq!(number("model.layers.1.self_attn.q_proj"), Some(json!(4)));
    assert_eq!(number("model.layers.1.self_attn.k_proj"), None);
}

#[test]
fn patterns_without_a_site_are_refused_with_the_nearest_name() {
    let sites = ["a.q_proj", "a.up_proj"].map(site);
    let joined: Vec<&Site> = sites.iter().collect();
    let check = |json: Json| patterns(json).check(&joined);
    check(json!({})).expect("nothing to match");
    check(json!({"up_proj": 4, "a.*": 2})).expect("both match");
    let message = check(json!({"q_proj": 4, "upproj": 2})).expect_err("a name is none");
    assert!(
        message.message.contains(
            "rank_pattern `upproj` matches no site that the targets select, the nearest is \
             `up_proj`; their names end in `q_proj`, `up_proj`"
        ),
        "{message}"
    );
}

#[test]
fn other_values_are_refused() {
    for (json, words) in [
        (json!(4), "expected a table"),
        (json!(["q_proj"]), "expected a table"),
        (json!({"(": 4}), "no regular expression"),
    ] {
        let error = Patterns::read("rank_pattern", Some(&json)).expect_err("no table");
        assert!(error.message.contains(words), "{error}");
    }
}
