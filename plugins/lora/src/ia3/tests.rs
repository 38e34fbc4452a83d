//! The scaled sites, their params and files, as PEFT has them.

use espalier_interface::ErrorCode;
use serde_json::json;

use super::*;

fn sites() -> Vec<Site> {
    let site = |name: &str, kind, shape| Site {
        name: name.to_owned(),
        kind,
        shape,
        tied_to: None,
        has_bias: false,
    };
    vec![
        site("model.embed_tokens", SiteKind::Embedding, [512, 64]),
        site(
            "model.layers.0.self_attn.k_proj",
            SiteKind::Linear,
            [32, 64],
        ),
        site("model.layers.0.mlp.down_proj", SiteKind::Linear, [64, 176]),
        site(
            "model.layers.1.self_attn.k_proj",
            SiteKind::Linear,
            [32, 64],
        ),
        site("model.layers.1.mlp.down_proj", SiteKind::Linear, [64, 176]),
        site("lm_head", SiteKind::Head, [512, 64]),
    ]
}

fn ia3(targets: Json, feedforward: Json) -> Result<Ia3> {
    let options = json!({"targets": targets, "feedforward": feedforward});
    Ia3::new(&serde_json::from_value(options).expect("an object"))
}

/// Site and shape of each param.
fn params(targets: Json, feedforward: Json) -> Vec<(usize, Vec<u64>)> {
    let adapter = ia3(targets, feedforward).expect("good options");
    let made = adapter.adapt(&sites()).expect("sites match");
    let joins = made.joins.iter();
    let of = |join: &Join| {
        join.fragment.validate().expect("a whole graph");
        let param = &made.params[join.params[0]];
        assert_eq!(param.init, Init::Ones);
        assert_eq!(join.fragment.params[0].shape, param.shape);
        (join.site, param.shape.clone())
    };
    joins.map(of).collect()
}

#[test]
fn feedforward_modules_scale_their_input() {
    let found = params(json!(["k_proj", "down_proj"]), json!(["down_proj"]));
    let layer = |first: usize| [(first, vec![32, 1]), (first + 1, vec![1, 176])];
    assert_eq!(found, [layer(1), layer(3)].concat());
    // A list has ends of names, an expression whole ones.
    let found = params(json!("all-linear"), json!(["1.self_attn.k_proj"]));
    assert_eq!(found[2], (3, vec![1, 64]));
    assert_eq!(found[0], (1, vec![32, 1]));
    let found = params(json!(".*(k_proj|lm_head)"), json!(".*0.*k_proj"));
    let expected = [(1, vec![1, 64]), (3, vec![32, 1]), (5, vec![512, 1])];
    assert_eq!(found, expected);
}

#[test]
fn what_no_linear_answers_to_is_refused() {
    for (targets, feedforward, words) in [
        (json!(["k_prj"]), json!([]), "the nearest is `k_proj`"),
        (
            json!(["k_proj"]),
            json!(["down_proj"]),
            "feedforward module `down_proj`",
        ),
        (
            json!(["embed_tokens"]),
            json!([]),
            "token table `model.embed_tokens`",
        ),
        (
            json!(["k_proj"]),
            json!("all-linear"),
            "expected a list of names",
        ),
        (json!(["k_proj"]), json!("("), "no regular expression"),
    ] {
        let refused = ia3(targets, feedforward).and_then(|adapter| adapter.adapt(&sites()));
        let error = refused.expect_err(words);
        assert_eq!(error.code, ErrorCode::INVALID);
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn what_is_saved_gives_the_same_factors_and_pefts_subset() {
    for (targets, feedforward, written) in [
        (
            json!(["k_proj", "down_proj"]),
            json!(["down_proj"]),
            [json!(["down_proj", "k_proj"]), json!(["down_proj"])],
        ),
        (
            json!("all-linear"),
            json!(["layers.1.mlp.down_proj"]),
            [
                json!([
                    "model.layers.1.mlp.down_proj",
                    "k_proj",
                    "model.layers.0.mlp.down_proj"
                ]),
                json!(["model.layers.1.mlp.down_proj"]),
            ],
        ),
        (json!("lm_head"), json!([]), [json!(["lm_head"]), json!([])]),
    ] {
        let adapter = ia3(targets, feedforward).expect("good options");
        let saved = adapter.saved_config(&sites(), "m").expect("sites match");
        let found = [&saved["target_modules"], &saved["feedforward_modules"]];
        assert_eq!(found, [&written[0], &written[1]]);
        let read = adapter.options_from_saved(&saved).expect("our own");
        let again = Ia3::new(&read).expect("good options").adapt(&sites());
        assert_eq!(again, adapter.adapt(&sites()));
    }
}

#[test]
fn unsupported_features_are_named() {
    for (key, value) in [
        ("modules_to_save", json!(["lm_head"])),
        ("fan_in_fan_out", json!(true)),
        ("exclude_modules", json!("lm_head")),
        ("peft_type", json!("LORA")),
        ("task_type", json!("SEQ_CLS")),
    ] {
        let mut config = json!({
            "peft_type": "IA3", "target_modules": ["k_proj"], "feedforward_modules": []
        });
        config[key] = value;
        let error = saved::read(&config).expect_err(key);
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        assert!(error.message.contains(&format!("`{key}` is ")), "{error}");
    }
    let error = saved::read(&json!({"peft_type": "IA3", "target_modules": ["k_proj"]}));
    let error = error.expect_err("PEFT's default is of the model");
    assert!(
        error.message.contains("`feedforward_modules` is missing"),
        "{error}"
    );
}
