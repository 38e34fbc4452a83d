//! Names of targets -> sites, as PEFT matches them.

use serde_json::json;

use super::*;

fn sites() -> Vec<Site> {
    let site = |name: &str, kind| Site {
        name: name.to_owned(),
        kind,
        shape: [8, 8],
        tied_to: None,
        has_bias: false,
    };
    vec![
        site("model.embed_tokens", SiteKind::Embedding),
        site("model.layers.0.self_attn.q_proj", SiteKind::Linear),
        site("model.layers.0.mlp.up_proj", SiteKind::Linear),
        site("model.layers.1.self_attn.q_proj", SiteKind::Linear),
        site("model.layers.1.mlp.up_proj", SiteKind::Linear),
        site("lm_head", SiteKind::Head),
    ]
}

fn pick(targets: Json) -> Vec<usize> {
    Targets::read(&targets)
        .expect("well formed")
        .pick(&sites())
        .expect("something matches")
}

fn refusal(targets: Json) -> String {
    match Targets::read(&targets) {
        Ok(targets) => targets.pick(&sites()).expect_err("nothing matches").message,
        Err(error) => error.message,
    }
}

#[test]
fn names_match_as_in_peft() {
    assert_eq!(pick(json!("all-linear")), [1, 2, 3, 4]);
    assert_eq!(pick(json!("All-Linear")), [1, 2, 3, 4]);
    assert_eq!(pick(json!(["q_proj"])), [1, 3]);
    assert_eq!(
        pick(json!(["1.mlp.up_proj", "lm_head", "embed_tokens"])),
        [0, 4, 5]
    );
    assert_eq!(pick(json!(r".*\.1\..*_proj")), [3, 4]);
    // An expression matches the whole name or nothing.
    assert_eq!(pick(json!("lm_head|.*q_proj")), [1, 3, 5]);
}

#[test]
fn targets_without_a_match_are_refused_with_the_existing_names() {
    let message = refusal(json!(["q_proj", "upproj"]));
    assert!(
        message.contains("`upproj` matches no site, the nearest is `up_proj`;"),
        "{message}"
    );
    assert!(
        message.ends_with("`embed_tokens`, `lm_head`, `q_proj`, `up_proj`"),
        "{message}"
    );
    // The end of a word is not the end of a name.
    assert!(refusal(json!(["proj"])).contains("`proj` matches no site"));
    assert!(refusal(json!("q_proj")).contains("[\"q_proj\"]"));
    assert!(refusal(json!([])).contains("empty list"));
    assert!(refusal(json!("(")).contains("no regular expression"));
    assert!(refusal(json!([1])).contains("found [1]"));
}

#[test]
fn the_shortest_names_match_the_same_sites() {
    let sites = sites();
    let cases = [
        (vec![1, 2, 3, 4], vec!["q_proj", "up_proj"]),
        (vec![0, 1, 3, 5], vec!["embed_tokens", "q_proj", "lm_head"]),
        (
            vec![1, 2, 4],
            vec!["model.layers.0.self_attn.q_proj", "up_proj"],
        ),
    ];
    for (chosen, expected) in cases {
        let names = shortest(&sites, &chosen);
        assert_eq!(names, expected);
        let names = Targets::Names(names);
        assert_eq!(names.pick(&sites).expect("they exist"), chosen);
    }
}
